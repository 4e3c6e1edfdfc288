"""Initial weights come from another run with model.init; a resumed run loads no initial weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.towers import open_clip_towers
from clipx.run import directory
from clipx.run.checkpoint import WEIGHTS, checkpoints, verify
from clipx.train import fit
from clipx.training.setup import build_components, build_initial_model
from tests.helpers.folder import settings, write_shards


def saved(config: RunConfig) -> Path:
    """Save an untrained model with a changed temperature and return the checkpoint."""
    components = build_components(config, torch.device("cpu"), 8, "x")
    with torch.no_grad():
        dict(components.state.model.named_parameters())["temperature.nu"].fill_(1.5)
    return components.state.save(directory.directory(config))


def weights(config: RunConfig) -> dict[str, Tensor]:
    return load_file(checkpoints(directory.directory(config))[-1] / WEIGHTS)


def test_a_resume_needs_no_published_weights(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=16)
    file = tmp_path / "published.pt"
    name = open_clip_towers.parse_name("open_clip:mini-48", "model.image.name")
    torch.save(open_clip_towers.create_model(name, None, "model.image", custom_text=True).state_dict(), file)
    config = settings(tmp_path, epochs=2, save_every=2)
    config.model.image.pretrained = config.model.text.pretrained = str(file)
    config.train.keep = 2
    run = directory.claim(config)
    fit(config, run)
    whole = weights(config)
    shutil.rmtree(checkpoints(run)[-1])
    file.unlink()
    fit(config, run)
    again = weights(config)
    assert all(torch.equal(whole[name], value) for name, value in again.items())


@pytest.mark.parametrize("from_run_directory", [True, False])
def test_a_run_starts_from_the_weights_of_another(tmp_path: Path, from_run_directory: bool) -> None:
    write_shards(tmp_path / "train", samples=16)
    first = settings(tmp_path)
    checkpoint = saved(first)
    config = settings(tmp_path, epochs=1)
    config.name, config.model.init, config.train.ema = "second", str(checkpoint), 0.5
    if from_run_directory:
        config.model.init = str(directory.directory(first))
    config.seed, config.optimizer.lr, config.model.image.pretrained = 1, 0.0, "missing"
    config.model.text.pretrained = config.model.image.pretrained
    state = build_components(config, torch.device("cpu"), 8, "x").state
    assert state.ema
    for name, value in weights(first).items():
        assert torch.equal(state.model.state_dict()[name], value), name
        assert torch.equal(state.ema.module.state_dict()[name], value), name
    run = directory.claim(config)
    fit(config, run)
    assert float(weights(config)["temperature.nu"]) == pytest.approx(1.5)
    sha256 = verify(checkpoint)["sha256"][WEIGHTS]
    source = json.loads((run / "environment.json").read_text())["init"]
    assert source == {"checkpoint": str(checkpoint), "sha256": sha256}


def test_initial_weights_that_are_missing_corrupt_or_of_another_model_are_refused(tmp_path: Path) -> None:
    first = settings(tmp_path)
    checkpoint = saved(first)
    config = settings(tmp_path)
    config.model.init, config.temperature.bias = str(checkpoint), -10.0
    with pytest.raises(UserError, match=r"model.init=.* another model: bias has shape none there, \[\] in this"):
        build_initial_model(config)
    config.model.init = str(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"model.init=.*nowhere is missing"):
        build_initial_model(config)
    (checkpoint / WEIGHTS).write_bytes(b"")
    config.model.init = str(checkpoint)
    with pytest.raises(UserError, match=r"model.safetensors is corrupt"):
        build_initial_model(config)
