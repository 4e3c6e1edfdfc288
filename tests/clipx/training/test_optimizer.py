"""Parameter groups: each parameter is in one group, with the learning rate and weight decay of its component."""

from pathlib import Path

import open_clip
import pytest
import timm
import torch
from torch import nn

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TemperatureConfig, TextTowerConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.training import optimizer as optim
from clipx.training.optimizer import layer_depths
from tests.helpers.hub import settings, write_distilbert


def settings_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, tuple[float, float]]:
    """Return parameter name -> (learning rate, weight decay); fail if a parameter is in two groups."""
    names = {id(p): name for name, p in model.named_parameters()}
    members = [(names[id(p)], g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]]
    assert len({name for name, _, _ in members}) == len(members)
    return {name: (lr, decay) for name, lr, decay in members}


def test_learning_rates_and_decay_of_paper_1_reach_their_parameters(tmp_path: Path) -> None:
    config = settings(write_distilbert(tmp_path))
    config.optimizer.lr, config.optimizer.weight_decay = 1e-4, 1e-3
    config.model.text.lr_factor, config.model.projection_lr_factor, config.temperature.lr_factor = 0.1, 10, 0.5
    config.model.text.weight_decay = 0.0
    model = clip.build_model(config)
    optimizer = optim.build_optimizer(model, config)
    optim.set_lr(optimizer, config.optimizer.lr)
    found = settings_by_name(model, optimizer)
    assert found.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        component = "projection" if ".projection." in name else name.partition(".")[0]
        lr = {"image": 1e-4, "text": 1e-5, "projection": 1e-3, "temperature": 5e-5}[component]
        decay = 1e-3 if parameter.ndim > 1 and component != "text" else 0.0
        assert found[name] == pytest.approx((lr, decay)), name


def test_frozen_parameters_are_in_no_group(tmp_path: Path) -> None:
    config = settings(write_distilbert(tmp_path))
    config.model.image.frozen = True
    model = clip.build_model(config)
    found = settings_by_name(model, optim.build_optimizer(model, config))
    assert not any(name.startswith("image.body.") for name in found)
    assert "image.projection.weight" in found and any(name.startswith("text.body.") for name in found)


def test_a_step_changes_each_component_by_its_learning_rate(tmp_path: Path) -> None:
    config = settings(write_distilbert(tmp_path))
    config.optimizer.weight_decay = 0.0
    config.model.text.lr_factor, config.model.projection_lr_factor = 0.1, 10
    model = clip.build_model(config)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = optim.build_optimizer(model, config)
    optim.set_lr(optimizer, 1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, lr in (("image.body.conv1.0.weight", 1e-3), ("text.projection.bias", 1e-2), ("temperature.nu", 1e-3)):
        moved = (before[name] - dict(model.named_parameters())[name]).abs().mean().item()
        assert moved == pytest.approx(lr, rel=1e-2), name  # AdamW's first step has the size of the learning rate


def test_a_model_without_trainable_parameters_is_refused() -> None:
    tower = "open_clip:mini-48"
    image, text = ImageTowerConfig(name=tower, frozen=True), TextTowerConfig(name=tower, frozen=True)
    config = RunConfig(model=ModelConfig(image=image, text=text), temperature=TemperatureConfig(kind="fixed"))
    with pytest.raises(UserError, match="nothing is trained: both towers are frozen"):
        optim.build_optimizer(clip.build_model(config), config)


@pytest.mark.parametrize(
    ("tower", "layers"),
    [
        ("open_clip:ViT-B-32", {"class_embedding": 0, "conv1.weight": 0, "resblocks.0.ln_1.bias": 1, "proj": 13}),
        ("open_clip:RN50", {"conv1.weight": 0, "bn2.bias": 0, "layer1.0.conv1.weight": 1, "attnpool.c_proj.bias": 5}),
        ("open_clip:RN50", {"attnpool.positional_embedding": 5}),
        ("timm:efficientnet_b0", {"conv_stem.weight": 0, "bn1.bias": 0, "bn2.bias": 8}),
        ("timm:vit_tiny_patch16_224", {"cls_token": 0, "blocks.11.norm1.bias": 12, "norm.weight": 13}),
        ("timm:convnext_atto", {"stem.0.weight": 0, "stages.3.blocks.1.gamma": 4, "head.norm.bias": 5}),
    ],
)
def test_layer_depths_of_image_towers(tower: str, layers: dict[str, int]) -> None:
    kind, _, name = tower.partition(":")
    with torch.device("meta"):
        body = timm.create_model(name) if kind == "timm" else open_clip.CLIP(**open_clip.get_model_config(name)).visual
    found = layer_depths([name for name, _ in body.named_parameters()])
    assert set(found.values()) == set(range(max(found.values()) + 1))
    for end, depth in layers.items():
        assert {d for name, d in found.items() if name.endswith(end) and name.startswith(end[:3])} <= {depth}, end
        assert any(name.endswith(end) for name in found), end


def test_layer_decay_lowers_learning_rates_by_layer_but_not_of_projections(tmp_path: Path) -> None:
    config = settings(write_distilbert(tmp_path))
    config.model.text.layer_decay, config.model.text.lr_factor = 0.5, 0.1
    model = clip.build_model(config)
    optimizer = optim.build_optimizer(model, config)
    optim.set_lr(optimizer, 1.0)
    found = settings_by_name(model, optimizer)
    assert found.keys() == dict(model.named_parameters()).keys()
    blocks = [name for name in found if "transformer.layer." in name]
    top = max(int(name.split("layer.")[1][0]) for name in blocks)
    for name, (lr, _) in found.items():
        if name in blocks:
            assert lr == pytest.approx(0.1 * 0.5 ** (top - int(name.split("layer.")[1][0]))), name
        elif "embeddings" in name:
            assert lr == pytest.approx(0.1 * 0.5 ** (top + 1)), name
    assert found["text.projection.weight"][0] == 1.0 and found["image.body.conv1.0.weight"][0] == 1.0
