"""Towers `small:NAME`: sizes, word order, padding, and groups of parameters."""

import pytest
import torch

from clipx.config.scene_words import PADDING
from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.data.preprocess.tokenizer import build_tokenizer
from clipx.models import clip
from clipx.training.optimizer import build_optimizer

CAPTIONS = ["a red circle and a blue ring", "a blue circle and a red ring", "two stars"]


def config(text: str = "bag") -> RunConfig:
    towers = ImageTowerConfig(name="small:conv"), TextTowerConfig(name=f"small:{text}")
    return RunConfig(model=ModelConfig(image=towers[0], text=towers[1]))


def tokens(model: clip.ClipModel) -> torch.Tensor:
    return build_tokenizer(model.inputs)(CAPTIONS)


def test_width_and_size_follow_the_settings() -> None:
    run = config()
    run.model.embed_dim, run.model.image.size, run.model.text.context_length = 24, 48, 9
    model = clip.build_model(run)
    assert model.inputs.image_size == 48 and model.inputs.context_length == 9
    assert model.encode_image(torch.randn(2, 3, 48, 48)).shape == (2, 24)
    assert model.encode_text(tokens(model)).shape == (3, 24)


@pytest.mark.parametrize(
    ("name", "differ"), [("bag", False), ("transformer", True), ("clip_bag", False), ("clip_transformer", True)]
)
def test_only_transformers_depend_on_word_order(name: str, differ: bool) -> None:
    model = clip.build_model(config(text=name)).eval()
    first, second, _ = model.encode_text(tokens(model))
    assert torch.allclose(first, second, atol=1e-6) is not differ


def test_padding_has_no_effect_on_a_bag() -> None:
    model = clip.build_model(config()).eval()
    short = build_tokenizer(model.inputs)(["two stars"])[:, :4]
    longer = torch.cat([short, torch.full((1, 3), PADDING)], dim=1)
    assert torch.allclose(model.encode_text(short), model.encode_text(longer), atol=1e-6)


def test_the_projections_have_their_own_groups() -> None:
    run = config()
    run.model.projection_lr_factor, run.model.image.layer_decay = 3.0, 0.5
    names = {group["name"] for group in build_optimizer(clip.build_model(run), run).param_groups}
    assert {"image.projection decay", "text.projection decay", "image layer 1 decay"} <= names
