"""Exported models give the same embeddings in open_clip; models that open_clip cannot represent are refused."""

import json
import re
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import onnxruntime
import open_clip
import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file
from timm.utils.model_ema import ModelEmaV3

from cli.export.command import export
from clipx.config.schema import TemperatureConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from clipx.run.saving import TrainState
from clipx.utils.files import write_text
from tests.helpers.runs import prepared, untrained, with_tower

pytestmark = pytest.mark.usefixtures("light_tower")
LIGHT = "open_clip:light-48"


@pytest.mark.parametrize(("tower", "suffix", "bias"), [("mini-48", ".pt", None), ("light-48", ".safetensors", -7.5)])
def test_an_exported_model_gives_the_embeddings_of_the_run(
    tmp_path: Path,
    tower: str,
    suffix: str,
    bias: float | None,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = with_tower(tmp_path, f"open_clip:{tower}")
    config.temperature.bias = bias
    run = untrained(config)
    out = tmp_path / f"mine{suffix}"
    export([str(run), f"out={out}"])
    printed = capsys.readouterr().out
    assert "initialized randomly" not in caplog.text
    assert f"open_clip.create_model('mine', pretrained='{out}')" in printed
    assert "open_clip.get_tokenizer('mine')" in printed
    assert ("import clipx.models.towers.small_cnn  # defines its image tower" in printed) is (tower == "mini-48")
    ours = clip.build_model(config)
    checkpoint.load_weights(ours, checkpoint.resolve(run))
    pixels, tokens = torch.randn(3, 3, 48, 48), torch.randint(1, 999, (3, 32))
    for name in [tower, "mine"] if bias is None else ["mine"]:
        theirs = open_clip.create_model(name, pretrained=str(out)).eval()
        with torch.no_grad():
            torch.testing.assert_close(theirs.encode_image(pixels, normalize=True), ours.eval().encode_image(pixels))
            torch.testing.assert_close(theirs.encode_text(tokens, normalize=True), ours.encode_text(tokens))
        assert float(theirs.logit_scale.detach().exp()) == pytest.approx(1 / config.temperature.tau, rel=1e-5)
        assert bias is None or float(theirs.logit_bias.detach()) == bias


@pytest.mark.long
def test_onnx_files_of_the_reports_page_give_open_clips_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = untrained(with_tower(tmp_path, "open_clip:mini-48"))
    monkeypatch.chdir(tmp_path)
    export([str(run), "out=mine.safetensors"])
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text()
    (code,) = re.findall(r"```python\n(# onnx_export.py\n.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    for side, inputs in names["inputs"].items():
        batch = torch.cat([inputs, inputs, inputs])  # another size than the example's
        (found,) = onnxruntime.InferenceSession(f"{side}.onnx").run(None, {"inputs": batch.numpy()})
        with torch.no_grad():
            expected = names["Tower"](names["model"], f"encode_{side}")(batch)
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [3, 10])
def test_a_run_that_was_not_finished_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], step: int) -> None:
    config = with_tower(tmp_path, LIGHT)
    config.train.epochs, config.train.samples = None, 10 * config.train.batch_size
    run = untrained(config, step)
    write_text(run / "log.jsonl", json.dumps({"step": step, "loss": 1.0, "samples": step * 8}) + "\n")
    export([str(run), f"out={tmp_path}/x.pt"])
    assert ("of a run that is not finished" in capsys.readouterr().err) is (step < 10)


@pytest.mark.long
def test_a_model_of_standard_towers_loads_without_clipx(tmp_path: Path) -> None:
    weights, config = tmp_path / "own.pt", tmp_path / "own.json"
    export([str(untrained(with_tower(tmp_path, "open_clip:light-48"))), f"out={weights}"])
    script = "import sys; sys.modules['clipx'] = None; import open_clip; "
    script += f"open_clip.add_model_config('{config}'); model = open_clip.create_model('own', pretrained='{weights}'); "
    script += "print(type(model).__name__, float(model.logit_scale.exp()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    name, scale = done.stdout.split()
    assert name == "CLIP" and float(scale) == pytest.approx(
        torch.load(weights, weights_only=True)["logit_scale"].exp().item()
    )


def test_averaged_weights_are_exported_on_request(tmp_path: Path) -> None:
    config = with_tower(tmp_path, LIGHT)
    run = untrained(config)
    with pytest.raises(UserError, match=r"ema=true: .* holds no averaged weights"):
        export([str(run), f"out={tmp_path}/x.pt", "ema=true"])
    model = clip.build_model(config)
    averaged = ModelEmaV3(model, 0.5)
    averaged.module.image.proj.data += 1
    TrainState(model, torch.optim.SGD(model.parameters()), "data", step=9, ema=averaged).save(run)
    for ema in ("true", "false"):
        out = tmp_path / f"{ema}.safetensors"
        export([str(run), f"out={out}", f"ema={ema}"])
        theirs = open_clip.create_model("light-48", pretrained=str(out))
        expected = (averaged.module if ema == "true" else model).state_dict()
        assert torch.equal(theirs.visual.proj, expected["image.proj"])


def test_the_best_checkpoint_is_exported_if_a_run_keeps_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = with_tower(tmp_path, LIGHT)
    config.train.keep_best = "min:loss"
    run = untrained(config, step=10)
    (best,) = checkpoint.checkpoints(run)
    untrained(config, step=20)
    (best.parent / "best").symlink_to(best.name)
    export([str(run), f"out={tmp_path}/x.safetensors"])
    assert f"exporting {best}, because train.keep_best=min:loss" in capsys.readouterr().err
    assert RunFolder(best).best_or_last() == (best, "")  # a checkpoint that was given
    exported, expected = load_file(tmp_path / "x.safetensors"), load_file(best / checkpoint.WEIGHTS)
    assert torch.equal(exported["visual.proj"], expected["image.proj"])


@pytest.mark.parametrize(("every", "share"), [("epoch", 1 / 2), ("step", 2 / 5)])  # 3 epochs of 2 steps: 0..2, 0..5
def test_the_exported_temperature_is_the_schedules_at_the_checkpoints_last_step(
    tmp_path: Path, every: str, share: float
) -> None:
    config = prepared(tmp_path, epochs=3)
    config.model.image.name = config.model.text.name = LIGHT
    config.temperature = TemperatureConfig(kind="linear", tau=0.07, tau_end=0.01, every=every)
    export([str(untrained(config, step=3)), f"out={tmp_path}/x.pt"])
    weights = torch.load(tmp_path / "x.pt", weights_only=True)
    assert float(weights["logit_scale"].exp()) == pytest.approx(1 / (0.07 - share * 0.06), rel=1e-5)


def test_the_activation_of_the_published_weights_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A published tag may use QuickGELU although the configuration does not say so."""
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda model, tag: {"quick_gelu": True})
    config = with_tower(tmp_path, LIGHT, pretrained="published")
    export([str(untrained(config)), f"out={tmp_path}/quick.safetensors"])
    assert json.loads((tmp_path / "quick.json").read_text())["quick_gelu"] is True
    loaded = open_clip.create_model("quick", pretrained=str(tmp_path / "quick.safetensors"))
    assert "QuickGELU" in repr(loaded)


REFUSED: list[tuple[dict[str, str], str]] = [  # settings of a run, and what the line says
    ({"model.text.name": "open_clip:mini-vit-48"}, "towers of one configuration"),
    ({"model.image.name": "timm:resnet50"}, "model.image.name=timm:resnet50 cannot be exported"),
    (
        {"model.image.name": "small:conv", "model.text.name": "small:bag"},
        "only towers named open_clip:NAME; out=FILE.safetensors",
    ),
    ({"model.text.name": "small:transformer"}, "only towers named open_clip:NAME"),
    ({"model.normalise": "never"}, "which have unit length, would differ"),
    ({"model.image.head": "linear"}, "data.features=true cannot be exported: open_clip has no such heads; out="),
    ({"model.points.kernel": "linear"}, "model.points.kernel=linear cannot be exported"),
]


def test_a_model_that_open_clip_cannot_represent_is_refused(tmp_path: Path) -> None:
    config = with_tower(tmp_path, LIGHT)
    run = untrained(config)
    for changes, part in REFUSED:
        changed = OmegaConf.structured(config)
        for key, value in changes.items():
            OmegaConf.update(changed, key, value)
        write_text(run / "config.yaml", OmegaConf.to_yaml(changed))
        for message in refusals(run, tmp_path):
            assert part in message and "\n" not in message


def refusals(run: Path, folder: Path) -> list[str]:
    """Check that exports beside an existing x.json and into a missing folder write nothing; return the two errors."""
    messages = []
    write_text(folder / "x.json", "the user's")
    before = sorted(folder.rglob("*"))
    for out in ("x.pt", "sub/x.pt"):
        with pytest.raises(UserError) as refused:
            export([str(run), f"out={folder / out}"])
        messages.append(str(refused.value))
    assert sorted(folder.rglob("*")) == before and (folder / "x.json").read_text() == "the user's"
    return messages


def test_preprocessing_that_open_clip_would_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = untrained(with_tower(tmp_path, LIGHT))
    real, means = open_clip.get_model_preprocess_cfg, cycle([{}, {"mean": (0.5, 0.5, 0.5)}])  # of the run, of the file
    monkeypatch.setattr("open_clip.get_model_preprocess_cfg", lambda model: dict(real(model)) | next(means))
    for message in refusals(run, tmp_path):
        assert re.search(r"images with mean=.*but open_clip with \(0.5", message)


def test_a_name_that_selects_siglips_tokenizer_is_refused(tmp_path: Path) -> None:
    run = untrained(with_tower(tmp_path, LIGHT))
    with pytest.raises(UserError, match=r"my_SigLIP\.pt: open_clip gives every model with siglip in its name SigLIP's"):
        export([str(run), f"out={tmp_path}/my_SigLIP.pt"])
