"""Towers by name: clipx's open_clip configurations at their sizes, and combinations that do not fit."""

import json
from pathlib import Path

import open_clip
import pytest
import torch

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import build, open_clip_towers
from tests.helpers.pairs import START


def config(image: str, text: str, image_pretrained: str | None = None) -> RunConfig:
    image_tower = ImageTowerConfig(name=f"open_clip:{image}", pretrained=image_pretrained)
    return RunConfig(model=ModelConfig(image=image_tower, text=TextTowerConfig(name=f"open_clip:{text}")))


@pytest.mark.parametrize("name", ["micro-48", "mini-64", "mini-vit-48"])
def test_clipx_configurations_embed_as_unit_vectors_in_float32_although_their_towers_run_in_bf16(name: str) -> None:
    model = clip.build_model(config(name, name))
    size = int(name.rpartition("-")[2])
    assert model.inputs.image_size == size
    with torch.autocast("cpu", dtype=torch.bfloat16):
        image, text, scale, _ = model(torch.randn(3, 3, size, size), torch.randint(1, 100, (3, 32)), START)
    assert scale.item() == pytest.approx(1 / 0.07, rel=1e-5)
    for embedding in (image, text):
        assert embedding.shape == (3, 128) and embedding.dtype == torch.float32
        assert torch.allclose(embedding.norm(dim=-1), torch.ones(3), atol=1e-6)


def test_models_without_two_towers_are_neither_listed_nor_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From version 4 on, open_clip also lists models for audio and for generating texts; earlier versions do not."""
    shape = {"embed_dim": 8, "audio_cfg": {}, "text_cfg": {}}
    (tmp_path / "sound.json").write_text(json.dumps(shape))
    open_clip.add_model_config(tmp_path / "sound.json")
    open_clip_towers.tower_names()  # adds clipx's configurations
    listed, known = [*open_clip.list_models(), "sound"], open_clip.get_model_config
    monkeypatch.setattr(open_clip, "list_models", lambda: listed)
    monkeypatch.setattr(open_clip, "get_model_config", lambda name: shape if name == "sound" else known(name))
    names = build.describe_towers()
    assert "open_clip:mini-48" in names and "open_clip:sound" not in names
    with pytest.raises(UserError, match=r"model\.image\.name=open_clip:sound is not known"):
        clip.build_model(config("sound", "mini-48"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (config("mini-48", "light-48"), "embeds in 128 dimensions"),
        (config("coca_ViT-B-32", "mini-48"), "captioning model"),
        (config("mini-48", "mini-48", image_pretrained="nowhere.pt"), "none is published for mini-48"),
    ],
)
def test_models_that_cannot_be_built_are_refused(settings: RunConfig, message: str, light_tower: None) -> None:
    with pytest.raises(UserError) as error:
        clip.build_model(settings)
    assert message in str(error.value)
