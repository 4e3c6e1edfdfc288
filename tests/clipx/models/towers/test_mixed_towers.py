"""Towers of different libraries in one model: widths, sizes, frozen towers, errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import build
from clipx.models.towers.base import ImageTower, TextTower
from clipx.types import Pixels, Tokens
from tests.helpers.hub import settings, write_bert, write_distilbert
from tests.helpers.pairs import START


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
    towers = ImageTowerConfig(name=image), TextTowerConfig(name=text)
    model = clip.build_model(RunConfig(model=ModelConfig(image=towers[0], text=towers[1], embed_dim=128)))
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


@pytest.mark.parametrize(
    ("name", "size", "settings", "message"),
    [
        ("timm:resnet18", None, {}, "model.text.name=timm:resnet18: unknown kind 'timm'; allowed: open_clip:NAME"),
        ("open_clip:mini-vit-48", 4, {}, "model.image.size=4 does not suit open_clip:mini-vit-48: "),
        ("open_clip:mini-48", None, {"projection_lr_factor": 10}, "model.projection_lr_factor=10 has no effect"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(
    name: str, size: int | None, settings: dict[str, Any], message: str
) -> None:
    model = ModelConfig(image=ImageTowerConfig(name=name, size=size), text=TextTowerConfig(name=name), **settings)
    with pytest.raises(UserError, match=message):
        clip.build_model(RunConfig(model=model))


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
