"""Exported models embed in open_clip as they do here; what open_clip cannot express is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import open_clip
import pytest
import torch

from cli.export import export
from clipx import runs, state
from clipx.atomic import write_text
from clipx.config import RunConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.state import RunState
from tests.clipx.folder import settings


def run_with(root: Path, config: RunConfig) -> Path:
    """A run directory with one checkpoint of random weights."""
    run = runs.claim(config)
    model = clip.build(config, pretrained=False)
    RunState(model, torch.optim.SGD(model.parameters()), "data", step=3).save(run, keep=1)
    return run


def with_tower(root: Path, name: str, text: str = "", pretrained: str | None = None) -> RunConfig:
    config = settings(root)
    config.model.image.name, config.model.text.name = name, text or name
    config.model.image.pretrained = config.model.text.pretrained = pretrained
    return config


@pytest.mark.parametrize(("tower", "suffix"), [("mini-48", ".pt"), ("mini-vit-48", ".safetensors")])
def test_open_clip_embeds_as_the_run_does(
    tmp_path: Path, tower: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = with_tower(tmp_path, f"open_clip:{tower}")
    run = run_with(tmp_path, config)
    out = tmp_path / f"mine{suffix}"
    export([str(run), f"out={out}"])
    assert f"open_clip.create_model('{tower}', pretrained='{out}')" in capsys.readouterr().out
    ours = clip.build(config)
    state.load_weights(ours, state.resolve(run))
    pixels, tokens = torch.randn(3, 3, 48, 48), torch.randint(1, 999, (3, 32))
    for name in (tower, "mine"):
        theirs = open_clip.create_model(name, pretrained=str(out)).eval()
        with torch.no_grad():
            torch.testing.assert_close(theirs.encode_image(pixels, normalize=True), ours.eval().encode_image(pixels))
            torch.testing.assert_close(theirs.encode_text(tokens, normalize=True), ours.encode_text(tokens))
        assert float(theirs.logit_scale.detach().exp()) == pytest.approx(1 / config.temperature.tau, rel=1e-5)


def test_the_activation_of_the_published_weights_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag may stand for QuickGELU where the configuration of that name does not say so."""
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda model, tag: {"quick_gelu": True})
    config = with_tower(tmp_path, "open_clip:mini-vit-48", pretrained="published")
    export([str(run_with(tmp_path, config)), f"out={tmp_path}/quick.safetensors"])
    assert json.loads((tmp_path / "quick.json").read_text())["quick_gelu"] is True
    loaded = open_clip.create_model("quick", pretrained=str(tmp_path / "quick.safetensors"))
    assert "QuickGELU" in repr(loaded)


@pytest.mark.parametrize(
    ("image", "text", "part"),
    [
        ("open_clip:mini-48", "open_clip:mini-vit-48", "towers of two models"),
        ("timm:resnet50", "open_clip:mini-48", "model.image.name=timm:resnet50 cannot be exported"),
    ],
)
def test_towers_that_no_configuration_has_are_refused(tmp_path: Path, image: str, text: str, part: str) -> None:
    run = run_with(tmp_path, with_tower(tmp_path, "open_clip:mini-48"))
    written = (run / "config.yaml").read_text()
    before, _, after = written.partition("text:")
    after = after.replace("open_clip:mini-48", text)
    write_text(run / "config.yaml", before.replace("open_clip:mini-48", image) + "text:" + after)
    with pytest.raises(UserError, match=part):
        export([str(run), f"out={tmp_path}/x.pt"])
    assert not (tmp_path / "x.pt").exists()


def test_other_pixels_than_open_clip_would_load_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path, with_tower(tmp_path, "open_clip:mini-48"))
    monkeypatch.setattr("open_clip.get_model_preprocess_cfg", _other_after_the_first())
    with pytest.raises(UserError, match=r"images have mean .*open_clip would load the file with \(0.5"):
        export([str(run), f"out={tmp_path}/x.pt"])


def _other_after_the_first() -> Callable[[object], dict[str, object]]:
    real, calls = open_clip.get_model_preprocess_cfg, [0]

    def preprocess(model: object) -> dict[str, object]:
        calls[0] += 1
        return dict(real(model)) | ({"mean": (0.5, 0.5, 0.5)} if calls[0] > 1 else {})

    return preprocess


def test_a_model_that_does_not_normalise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path, with_tower(tmp_path, "open_clip:mini-48"))
    monkeypatch.setattr(clip.ClipModel, "encode_image", lambda model, image: model.image(image))
    with pytest.raises(UserError, match="which are of unit length, would differ"):
        export([str(run), f"out={tmp_path}/x.pt"])


def test_a_model_of_point_sets_is_refused(tmp_path: Path) -> None:
    config = with_tower(tmp_path, "open_clip:mini-vit-48")
    config.model.points.kernel = "linear"
    with pytest.raises(UserError, match=r"model\.points\.kernel=linear cannot be exported"):
        export([str(run_with(tmp_path, config)), f"out={tmp_path}/x.pt"])


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "out=x.bin"], ["a", "b", "out=x.pt"]])
def test_an_incomplete_command_shows_the_whole_one(arguments: list[str]) -> None:
    with pytest.raises(UserError, match=r"clipx export RUN_OR_CHECKPOINT out=FILE\.safetensors"):
        export(arguments)
