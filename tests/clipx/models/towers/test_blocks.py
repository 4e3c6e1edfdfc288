"""The last n blocks of a tower: with stored inputs they compute what the tower computes; all before them is frozen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.layers.norm_act import convert_sync_batchnorm
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.frozen import frozen_towers
from clipx.models.towers.blocks import Before, after, freeze
from clipx.models.towers.build import build_tower
from clipx.training.optimizer import build_optimizer
from tests.helpers.hub import write_bert, write_distilbert

SETTING = "model.image.trainable_blocks"
IMAGE = ("timm:test_efficientnet", "timm:test_vit", "timm:test_resnet", "small:vit", "small:conv", "open_clip:mini-48")
TEXT: dict[str, Callable[[Path], Any]] = {
    "bert": write_bert,
    "distilbert": write_distilbert,
    "small:transformer": lambda folder: None,
}


def image_body(name: str) -> nn.Module:
    torch.manual_seed(1)
    embed_dim = None if name.startswith("open_clip:") else 8
    model = ModelConfig(image=ImageTowerConfig(name=name), text=TextTowerConfig(name="small:bag"), embed_dim=embed_dim)
    return build_tower(model, "image", load=False).body.eval()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", IMAGE)
def test_blocks_of_an_image_tower_compute_its_outputs_from_their_stored_input(name: str, n: int) -> None:
    whole, rest = image_body(name), after(image_body(name), n, SETTING)
    size = 48 if name == "open_clip:mini-48" else 32 if name.startswith("small:") else 160
    image = torch.randn(2, 3, size, size)
    hidden = Before(image_body(name), n, SETTING).eval()(image)
    torch.testing.assert_close(rest(hidden), whole(image))
    assert set(rest.state_dict()) < set(whole.state_dict())


@pytest.mark.parametrize("pooling", ["class", "mean", "last"])
@pytest.mark.parametrize("name", TEXT)
def test_blocks_of_a_text_tower_know_the_padding_by_its_zeros(tmp_path: Path, name: str, pooling: str) -> None:
    folder = TEXT[name](tmp_path)
    text = TextTowerConfig(name=f"hf:{folder}" if folder else name, context_length=8)
    text.pooling = pooling if folder else None
    model = ModelConfig(image=ImageTowerConfig(name="small:conv"), text=text, embed_dim=8)

    def body() -> nn.Module:
        torch.manual_seed(1)
        return build_tower(model, "text", load=False).body.eval()

    tokens = torch.tensor([[5, 6, 7, 8, 9, 0, 0, 0], [5, 9, 0, 0, 0, 0, 0, 0]])
    hidden = Before(body(), 1, SETTING).eval()(tokens)
    assert torch.equal(hidden.any(dim=2), tokens != 0)
    torch.testing.assert_close(after(body(), 1, SETTING)(hidden), body()(tokens))


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_efficientnet", "small:vit"])
def test_only_the_last_blocks_and_what_follows_get_a_gradient(name: str) -> None:
    body = image_body(name)
    modules = freeze(body, 1, SETTING)
    body(torch.randn(2, 3, 32, 32) if name == "small:vit" else torch.randn(2, 3, 160, 160)).sum().backward()
    with_gradient = {name for name, parameter in body.named_parameters() if parameter.grad is not None}
    assert with_gradient == {name for name, _ in after(image_body(name), 1, SETTING).named_parameters()}
    assert modules
    assert all(not parameter.requires_grad for module in modules for parameter in module.parameters())


def run(image: str, features: bool = True) -> RunConfig:
    config = RunConfig(
        model=ModelConfig(
            image=ImageTowerConfig(name=image, frozen=True, trainable_blocks=1),
            text=TextTowerConfig(name="small:transformer", frozen=True, trainable_blocks=1),
            embed_dim=16,
        )
    )
    config.data.features = features
    return config


@pytest.mark.parametrize("synchronised", [True, False])
def test_frozen_modules_stay_in_evaluation_mode(synchronised: bool) -> None:
    model: Any = clip.build_model(run("timm:test_efficientnet", features=False))
    if synchronised:
        convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        assert isinstance(model.image.body.bn1, nn.SyncBatchNorm)
    body = (model.train() if synchronised else model).image.body
    assert not body.bn1.training
    assert not body.blocks[0].training
    assert body.blocks[-1].training
    assert body.bn2.training


def test_learning_rates_by_layer_are_those_of_a_run_without_features() -> None:
    found = []
    for features in (True, False):
        config = run("small:vit", features)
        config.model.image.layer_decay = 0.5
        groups = build_optimizer(clip.build_model(config), config).param_groups
        found.append({group["name"].partition(" layer")[0] + str(group["lr_factor"]) for group in groups})
    assert found[0] == found[1]
    assert any("0.5" in name for name in found[0])


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("image", "n", "message"),
    [
        ("small:vit", 3, "model.image.trainable_blocks=3: the tower has 2 numbered blocks; allowed: 0..2"),
        ("timm:eva02_tiny_patch14_224", 1, "this tower cannot be divided before a block"),
    ],
)
def test_a_tower_without_such_blocks_is_refused(image: str, n: int, message: str) -> None:
    config = run(image)
    config.model.image.trainable_blocks = n
    with pytest.raises(UserError, match=message):
        frozen_towers(config)
