"""Towers by name and their combinations in one model: sizes, widths, gradients, frozen towers, errors."""

import json
from operator import attrgetter
from pathlib import Path

import open_clip
import pytest
import torch
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import build, open_clip_towers
from clipx.models.towers.base import ImageTower, TextTower
from clipx.types import Pixels, Tokens
from tests.helpers.hub import settings, write_bert, write_distilbert
from tests.helpers.pairs import START


def model_of(image: str, text: str, key: str = "embed_dim", value: object = None) -> clip.ClipModel:
    """Build a model of the towers with these names, and with a value of the setting model.KEY."""
    config = RunConfig(model=ModelConfig(image=ImageTowerConfig(name=image), text=TextTowerConfig(name=text)))
    group, _, name = f"model.{key}".rpartition(".")
    setattr(attrgetter(group)(config), name, value)
    return clip.build_model(config)


def loss(model: clip.ClipModel) -> torch.Tensor:
    inputs = model.inputs
    image = torch.randn(4, 3, inputs.image_size, inputs.image_size)
    image_embedding, text_embedding, scale, _ = model(image, torch.randint(1, 100, (4, inputs.context_length)), START)
    total: torch.Tensor = (scale * image_embedding @ text_embedding.T).diagonal().sum()
    return total


@pytest.mark.parametrize(
    ("image", "text"),
    [
        *[(f"open_clip:{name}", f"open_clip:{name}") for name in ("micro-48", "mini-64", "mini-vit-48")],
        *[("timm:test_resnet", kind) for kind in ("distilbert", "bert", "roberta")],
        ("small:conv", "small:bag"),
    ],
)
def test_every_parameter_gets_a_gradient_as_ddp_requires(tmp_path: Path, image: str, text: str) -> None:
    if ":" not in text:
        text = f"hf:{write_bert(tmp_path, text)}"
    model = model_of(image, text, "embed_dim", 128)
    loss(model).backward()  # type: ignore[no-untyped-call]
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_the_inputs_of_a_model_are_those_of_its_towers(tmp_path: Path) -> None:
    config = settings(write_distilbert(tmp_path))
    config.data.clean = "lower_no_punctuation"
    inputs = clip.build_model(config).inputs
    assert (inputs.image_size, inputs.context_length, inputs.clean) == (32, 12, "lower_no_punctuation")
    assert inputs.tokenizer == f"hf:{tmp_path}"


def test_a_timm_tower_is_projected_to_the_width_of_an_open_clip_text_tower() -> None:
    config = settings("", embed_dim=128)
    config.model.text = TextTowerConfig(name="open_clip:mini-48")
    model = clip.build_model(config)
    assert model.encode_image(torch.randn(2, 3, 32, 32)).shape == (2, 128)
    assert model.inputs.tokenizer == "mini-48"
    config.model.embed_dim = 64
    with pytest.raises(UserError, match=r"embed_dim=64 does not fit model.text.name=open_clip:mini-48, .* width 128"):
        clip.build_model(config)


@pytest.mark.parametrize("frozen", ["image", "text"])
def test_a_frozen_tower_gets_no_gradient_and_keeps_its_batch_statistics(tmp_path: Path, frozen: str) -> None:
    config = settings(write_distilbert(tmp_path))
    getattr(config.model, frozen).frozen = True
    model = clip.build_model(config).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    loss(model).backward()  # type: ignore[no-untyped-call]
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None}
    assert not any(name.startswith(f"{frozen}.body.") for name in with_gradient)
    assert f"{frozen}.projection.weight" in with_gradient  # the projection is new and trained
    other = "text" if frozen == "image" else "image"
    assert any(name.startswith(f"{other}.body.") for name in with_gradient)
    assert {name.split(".")[0] for name, m in model.named_modules() if ".body." in name and m.training} == {other}
    changed = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
    assert bool(changed) is (frozen == "text"), "running statistics change unless their tower is frozen"


MINI = "open_clip:mini-48"


@pytest.mark.parametrize(
    ("image", "text", "key", "value", "message"),
    [
        (MINI, "timm:resnet18", "embed_dim", None, "text.name=timm:resnet18: unknown kind 'timm'; allowed: open_clip:"),
        (MINI, "open_clip:light-48", "embed_dim", None, "embeds in 128 dimensions"),
        ("open_clip:coca_ViT-B-32", MINI, "embed_dim", None, "captioning model"),
        (MINI, MINI, "image.pretrained", "nowhere.pt", "none is published for mini-48"),
        ("open_clip:mini-vit-48", MINI, "image.size", 4, "model.image.size=4 does not suit open_clip:mini-vit-48: "),
        (MINI, MINI, "projection_lr_factor", 10, "model.projection_lr_factor=10 has no effect"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(
    image: str, text: str, key: str, value: object, message: str, light_tower: None
) -> None:
    with pytest.raises(UserError, match=message):
        model_of(image, text, key, value)


def test_a_plugin_kind_may_have_both_towers_under_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module, pixels = nn.Identity(), Pixels(8, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest")
    kind = build.TowerKind(
        lambda config, width, load: ImageTower(module, module, width or 0, pixels),
        lambda config, width, load: TextTower(module, module, width or 0, Tokens("none", 4)),
    )
    monkeypatch.setitem(build.TOWERS, "mine", kind)
    model = ModelConfig(image=ImageTowerConfig(name="mine:a"), text=TextTowerConfig(name="mine:a"), embed_dim=8)
    image, text = build.build_towers(model, load=True)
    assert image.embed_dim == text.embed_dim == 8


@pytest.mark.parametrize("name", ["micro-48", "mini-64", "mini-vit-48"])
def test_clipx_configurations_embed_as_unit_vectors_in_float32_although_their_towers_run_in_bf16(name: str) -> None:
    model = model_of(f"open_clip:{name}", f"open_clip:{name}")
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
        model_of("open_clip:sound", "open_clip:mini-48")
