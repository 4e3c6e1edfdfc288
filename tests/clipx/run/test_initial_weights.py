"""Start weights, published or from model.init. Other inputs are refused; a resumed run loads no start weights."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig, TemperatureConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.temperature import published_note
from clipx.models.towers import open_clip_towers
from clipx.models.towers.positions import stretch
from clipx.run.checkpoint import WEIGHTS, checkpoints, verify
from clipx.run.folder import RunFolder
from clipx.run.initial_weights import build_initial_model
from clipx.run.saving import TrainState
from clipx.train import fit
from clipx.training.setup import build_components
from clipx.types import Progress
from tests.helpers import folder, hub
from tests.helpers.folder import write_shards
from tests.helpers.runs import trained, weights

TOWER = "open_clip:light-48"
pytestmark = pytest.mark.usefixtures("light_tower")


def settings(root: Path, text: str = "small:bag") -> RunConfig:
    """Return the settings of a run whose image tower is built in no time."""
    config = folder.settings(root, text=text)
    config.model.image.name = "small:conv"
    return config


def published() -> dict[str, Tensor]:
    """Return random weights in the form in which open_clip saves them."""
    model = open_clip_towers.create_model("light-48", None, "model.image", custom_text=False)
    return dict(model.state_dict())


def with_towers(root: Path, name: str, context_length: int | None = None) -> RunConfig:
    config = settings(root, text=TOWER)
    config.name, config.model.image.name, config.model.text.context_length = name, TOWER, context_length
    return config


def saved(config: RunConfig) -> Path:
    """Save an untrained model with a changed temperature and return the checkpoint."""
    components = build_components(config, torch.device("cpu"), 8, "x")
    with torch.no_grad():
        dict(components.state.model.named_parameters())["temperature.nu"].fill_(1.5)
    return components.state.save(RunFolder.create(config).path)


def test_a_run_names_the_tau_of_published_weights_and_resumes_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path / "train", samples=16)
    file, start = tmp_path / "published.pt", published()
    start["logit_scale"].fill_(math.log(100))
    torch.save(start, file)
    config = with_towers(tmp_path, "run")
    config.model.image.pretrained = config.model.text.pretrained = str(file)
    config.train.save_every = config.train.keep = 2
    run = trained(config)
    assert "temperature.tau=0.01" in capsys.readouterr().err
    assert published_note(replace(config.temperature, tau=0.01), clip.build_model(config).published_tau) == []
    whole = weights(run)
    shutil.rmtree(checkpoints(run)[-1])
    file.rename(tmp_path / "moved.pt")
    fit(config, run)
    torch.testing.assert_close(weights(run), whole, rtol=0, atol=0)
    config.model.image.pretrained = config.model.text.pretrained = str(tmp_path / "moved.pt")
    config.model.image.head = config.model.text.head = "mlp"  # trained at a tau of their own
    assert clip.build_model(config).published_tau is None


def test_a_run_starts_from_the_weights_of_another(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=8)
    first = with_towers(tmp_path, "first")
    checkpoint = saved(first)
    config = with_towers(tmp_path, "second")
    config.model.init, config.train.ema, config.train.epochs = str(RunFolder.of(first).path), 0.5, 1
    config.seed, config.optimizer.lr, config.model.image.pretrained = 1, 0.0, "missing"
    config.model.text.pretrained = config.model.image.pretrained
    state = build_components(config, torch.device("cpu"), 8, "x").state
    assert state.ema
    for name, value in weights(RunFolder.of(first).path).items():
        assert torch.equal(state.model.state_dict()[name], value), name
        assert torch.equal(state.ema.module.state_dict()[name], value), name
    run = trained(config)
    assert float(weights(run)["temperature.nu"]) == pytest.approx(1.5)
    sha256 = verify(checkpoint)["sha256"][WEIGHTS]
    source = json.loads((run / "environment.json").read_text())["init"]
    assert source == {"checkpoint": str(checkpoint), "sha256": sha256}


def test_initial_weights_that_are_corrupt_or_of_another_model_are_refused(tmp_path: Path) -> None:
    first = settings(tmp_path)
    checkpoint = saved(first)
    config = settings(tmp_path)
    config.model.init, config.model.image.name = str(checkpoint), "open_clip:mini-vit-48"
    with pytest.raises(UserError, match=r"another model: model\.image\.name is .* there, open_clip:mini-vit-48 in"):
        build_initial_model(config)
    (checkpoint / WEIGHTS).write_bytes(b"")
    config.model.image.name = "small:conv"
    with pytest.raises(UserError, match=r"model.safetensors is corrupt"):
        build_initial_model(config)


@pytest.mark.parametrize(
    ("kind", "parameterisation", "bias", "most", "tau"),
    [
        ("fixed", "exp", None, 100.0, 0.5),
        ("learned", "softplus", None, 100.0, 0.5),
        ("learned", "exp", -10.0, 100.0, math.exp(-1.5)),
        ("learned", "exp", None, 3.0, 1 / 3),  # stays within this run's bounds
    ],
)
def test_temperature_and_bias_follow_the_settings_where_the_start_run_has_others(
    kind: str, parameterisation: str, bias: float | None, most: float, tau: float, tmp_path: Path
) -> None:
    first = settings(tmp_path)
    checkpoint = saved(first)
    config = settings(tmp_path)
    config.name, config.model.init = "second", str(checkpoint)
    config.temperature = TemperatureConfig(kind=kind, parameterisation=parameterisation, tau=0.5, bias=bias)
    config.temperature.max_scale = most
    model = build_initial_model(config)
    assert 1 / float(model.temperature(Progress(0, 1, 0, 1)).detach()) == pytest.approx(tau)
    assert (model.bias is None) == (bias is None)
    assert model.bias is None or float(model.bias.detach()) == bias
    for name, value in weights(RunFolder.of(first).path).items():
        if not name.startswith("temperature."):
            assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.parametrize("from_run", [True, False])
def test_another_image_size_than_that_of_the_start_weights_is_refused_unless_forced(
    tmp_path: Path, from_run: bool
) -> None:
    config = with_towers(tmp_path, "second")
    if from_run:
        config.model.init = str(saved(with_towers(tmp_path, "first")))
    else:
        torch.save(published(), tmp_path / "start.pt")
        config.model.image.pretrained = config.model.text.pretrained = str(tmp_path / "start.pt")
    positions = build_initial_model(config).state_dict()["image.positional_embedding"]
    config.model.image.size = 48
    build_initial_model(config)
    config.model.image.size = 64
    with pytest.raises(UserError, match=r"model\.(init=.* image_size=48.* 64|image\.size=64.* 48).*force_inputs=true"):
        build_initial_model(config)
    config.model.force_inputs = True
    resized = build_initial_model(config).state_dict()["image.positional_embedding"]
    expected = {"visual.positional_embedding": positions}
    open_clip.model.resize_pos_embed(expected, open_clip.create_model("light-48", force_image_size=64))
    torch.testing.assert_close(resized, expected["visual.positional_embedding"])


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ({"mean": (0.1, 0.2, 0.3)}, r"takes images with mean=\(0.1, 0.2, 0.3\), this run has .*force_inputs=true"),
        ({"quick_gelu": True}, r"other layers: model.image is open_clip:light-48 with pretrained=some_tag there"),
    ],
)
def test_another_normalisation_or_activation_than_that_of_the_start_weights_is_refused(
    tag: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("open_clip.get_pretrained_cfg", lambda model, name: tag if name == "some_tag" else {})
    first = with_towers(tmp_path, "first")
    first.model.image.pretrained = first.model.text.pretrained = "some_tag"
    RunFolder.create(first)
    state = TrainState(clip.build_model(first, pretrained=False), torch.optim.SGD([torch.zeros(1)]), "x")
    config = with_towers(tmp_path, "second")
    config.model.init = str(state.save(RunFolder.of(first).path))
    with pytest.raises(UserError, match=f"model.init=.*{message}"):
        build_initial_model(config)
    config.model.image.pretrained = config.model.text.pretrained = "some_tag"
    build_initial_model(config)


def test_another_tokenizer_than_that_of_the_start_weights_is_refused(tmp_path: Path) -> None:
    configs = []
    for name in ("first", "second"):
        place = hub.write_distilbert(tmp_path / name)
        config = settings(tmp_path)
        config.name, config.model = name, hub.settings(place).model
        configs.append(config)
    first, second = configs
    second.model.init = str(saved(first))
    build_initial_model(second)
    vocabulary = (place / "vocab.txt").read_text().splitlines()
    (place / "vocab.txt").write_text("\n".join([*vocabulary[:5], *vocabulary[:4:-1]]) + "\n")
    with pytest.raises(UserError, match=r"model.init=.* reads tokens of hf:.*first.*, this run has hf:.*second"):
        build_initial_model(second)
    second.model.force_inputs = True
    build_initial_model(second)


@pytest.mark.parametrize("with_positions", [True, False])
def test_another_context_length_stretches_or_cuts_positions_and_changes_no_other_weight(
    tmp_path: Path, with_positions: bool
) -> None:
    def of_length(name: str, length: int) -> RunConfig:
        config = with_towers(tmp_path, name, length) if with_positions else settings(tmp_path)
        config.name, config.model.text.context_length = name, length
        return config

    checkpoint = saved(of_length("first", 32))
    start = load_file(checkpoint / WEIGHTS)
    for length in (24, 40):
        config = of_length("second", length)
        config.model.init = str(checkpoint)
        model = build_initial_model(config)
        assert model.inputs.context_length == length
        for name, value in model.text.state_dict(prefix="text.").items():
            old = start[name]
            assert torch.equal(value, stretch(old, length) if name.endswith("positional_embedding") else old), name
