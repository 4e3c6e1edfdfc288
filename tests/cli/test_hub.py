"""A model that open_clip pushed to the hub: the hub's real client fetches it from a local test server."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import huggingface_hub.utils
import open_clip
import pytest
import torch
from safetensors.torch import save

from cli.export.command import export
from clipx.models import clip
from clipx.run import checkpoint
from evaluation.embedding.encoder import from_open_clip
from tests.helpers.commands import clipx_here
from tests.helpers.folder import settings, write_shards
from tests.helpers.hub_server import Hub, running_hub
from tests.helpers.runs import untrained, with_tower

pytestmark = pytest.mark.usefixtures("light_tower")
LIGHT = "open_clip:light-48"
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run a test hub for this process, with an empty cache and the token of a user."""
    if reset := getattr(huggingface_hub.utils, "reset_sessions", None):
        reset()  # before huggingface_hub 1.0, a session of an offline test stays offline
    with running_hub() as server:
        monkeypatch.setenv("HF_TOKEN", "hf_reader")
        constants = "huggingface_hub.constants"
        monkeypatch.setattr(f"{constants}.ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module in (constants, "huggingface_hub.file_download"):  # before 1.0, the second has a copy
            monkeypatch.setattr(f"{module}.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "hf/hub"))
        monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", server.url)
        monkeypatch.setattr("clipx.utils.hub.reachable", lambda: True)
        yield server


def pushed(root: Path, hub: Hub, bias: float | None = None) -> Path:
    """Export an untrained run, and put what open_clip pushes of it into the repository me/demo; return the run."""
    config = with_tower(root, LIGHT)
    config.temperature.bias = bias
    run = untrained(config)
    export([str(run), f"out={root}/mine.safetensors"])
    open_clip.add_model_config(root / "mine.json")
    model: Any = open_clip.create_model("mine", pretrained=str(root / "mine.safetensors"))
    module = import_module("open_clip.push_to_hf_hub")  # the package has a function of this name
    module.save_config_for_hf(model, root / CONFIG, model_config=open_clip.get_model_config("mine"))
    hub.repositories["me/demo"] = {CONFIG: (root / CONFIG).read_bytes(), WEIGHTS: save(model.state_dict())}
    return run


def test_a_model_of_the_hub_embeds_as_the_run(tmp_path: Path, hub: Hub) -> None:
    run = pushed(tmp_path, hub)
    config = with_tower(tmp_path, LIGHT)
    model = clip.build_model(config, pretrained=False).eval()
    checkpoint.load_weights(model, checkpoint.resolve(run))
    start = clip.build_model(with_tower(tmp_path, LIGHT, "hf-hub:me/demo")).eval()
    encoder = from_open_clip("hf-hub:me/demo", torch.device("cpu"))
    pixels, tokens = torch.randn(2, 3, 48, 48), torch.randint(1, 999, (2, 32))
    with torch.no_grad():
        expected = model.encode_image(pixels), model.encode_text(tokens)
        found = start.encode_image(pixels), start.encode_text(tokens)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close((encoder.image(pixels), encoder.text(tokens)), expected)
    words = open_clip.get_tokenizer("hf-hub:me/demo")(["a red circle"])
    assert torch.equal(encoder.tokenize(["a red circle"]), words) and words.shape == (1, 32)


def test_bias_and_preprocessing_are_those_of_the_hubs_configuration(tmp_path: Path, hub: Hub) -> None:
    pushed(tmp_path, hub, bias=-7.5)
    files = hub.repositories["me/demo"]
    config = json.loads(files[CONFIG])
    assert config["model_cfg"]["init_logit_bias"] == -7.5
    config["preprocess_cfg"] |= {"mean": [0.5, 0.25, 0.125], "resize_mode": "squash"}
    config["model_cfg"]["vision_cfg"]["image_size"] = 96
    files[CONFIG] = json.dumps(config).encode()
    del files[WEIGHTS]
    run_config = with_tower(tmp_path, LIGHT, "hf-hub:me/demo")
    with pytest.raises(ValueError, match=r"model\.image\.pretrained=hf-hub:me/demo .* has no open_clip_model"):
        clip.build_model(run_config)
    inputs = clip.build_model(run_config, pretrained=False).inputs  # as evaluation and resume do
    assert (inputs.mean, inputs.resize_mode, inputs.image_size) == ((0.5, 0.25, 0.125), "squash", 96)


def test_a_model_of_the_hub_states_its_activation_and_a_file_may_need_another(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(tmp_path, hub)
    configs = open_clip.factory._MODEL_CONFIGS
    monkeypatch.setitem(configs, "light-48-quickgelu", configs["light-48"] | {"quick_gelu": True})
    for weights, needed in (("hf-hub:me/demo", False), (f"{tmp_path}/mine.safetensors", True)):
        clip.build_model(with_tower(tmp_path, LIGHT, weights))
        assert ("need open_clip:light-48-quickgelu" in capsys.readouterr().err) == needed


def evaluated(root: Path, model: str) -> str:
    write_shards(root / "val", samples=4)
    done = clipx_here("eval", f"model={model}", f"datasets=[captions:{root}/val]", "workers=0", cwd=root, code=2)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_repository_without_a_usable_model_ends_in_one_line(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories |= {
        "me/none": {},
        "me/broken": {CONFIG: b"{"},
        "me/empty": {CONFIG: b'{"model_cfg": {}}'},
    }
    for name, part in {
        "me/x": "hf-hub:me/x: no such repository",
        "me/none": "me/none is no model in open_clip's layout: the repository has no open_clip_config.json",
        "me/broken": "has no usable open_clip_config.json",
        "me/empty": "model_cfg needs embed_dim, vision_cfg and text_cfg",
        "demo": "model=hf-hub:demo must be hf-hub:USER/NAME",
    }.items():
        assert part in evaluated(tmp_path, f"hf-hub:{name}")
    hub.private.add("me/none")
    monkeypatch.delenv("HF_TOKEN")
    assert "or no access; if it is private or gated, ask for access" in evaluated(tmp_path, "hf-hub:me/none")


def test_weights_that_do_not_fit_end_in_one_line(tmp_path: Path, hub: Hub) -> None:
    pushed(tmp_path, hub)
    files = hub.repositories["me/demo"]
    hub.repositories["me/y"] = {CONFIG: files[CONFIG]}
    hub.repositories["me/z"] = {**files, WEIGHTS: files[WEIGHTS][:2000]}
    assert "me/y is no model in open_clip's layout: the repository has no" in evaluated(tmp_path, "hf-hub:me/y")
    assert "hf-hub:me/z cannot be loaded by open_clip" in evaluated(tmp_path, "hf-hub:me/z")

    config = settings(tmp_path)
    config.model.image.name, config.model.image.pretrained = "open_clip:mini-vit-48", "hf-hub:me/demo"
    with pytest.raises(ValueError, match=r"has other towers than open_clip:mini-vit-48: "):
        clip.build_model(config)
    config.model.image.name, config.model.embed_dim = "timm:test_resnet", 64
    with pytest.raises(ValueError, match=r"pretrained=hf-hub:me/demo needs a tower named open_clip:NAME"):
        clip.build_model(config)
