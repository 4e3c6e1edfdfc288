"""Parameter groups with the learning rate and weight decay of their component; learning-rate schedules."""

from pathlib import Path

import open_clip
import pytest
import timm
import torch
from torch import nn

from clipx.config.schema import (
    ImageTowerConfig,
    ModelConfig,
    RunConfig,
    ScheduleConfig,
    TemperatureConfig,
    TextTowerConfig,
)
from clipx.errors import UserError
from clipx.models import clip
from clipx.training import optimizer as optim
from clipx.training.optimizer import build_lr_schedule, layer_depths, notes
from clipx.types import Progress
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
    config.model.text.weight_decay, config.optimizer.betas, config.optimizer.eps = 0.0, [0.8, 0.95], 1e-5
    model = clip.build_model(config)
    optimizer = optim.build_optimizer(model, config)
    assert {(*group["betas"], group["eps"]) for group in optimizer.param_groups} == {(0.8, 0.95, 1e-5)}
    optim.set_lr(optimizer, config.optimizer.lr)
    found = settings_by_name(model, optimizer)
    assert found.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        component = "projection" if ".projection." in name else name.partition(".")[0]
        lr = {"image": 1e-4, "text": 1e-5, "projection": 1e-3, "temperature": 5e-5}[component]
        decay = 1e-3 if parameter.ndim > 1 and component != "text" else 0.0
        assert found[name] == pytest.approx((lr, decay)), name


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
        ("timm:vit_base_patch32_clip_224", {"norm_pre.weight": 0, "norm.weight": 13}),
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


def test_cosine_after_warmup() -> None:
    rate = build_lr_schedule(ScheduleConfig(warmup_steps=10, min_lr=0.5), lr=2.0, steps_per_epoch=110)
    # 60 is half way between 2 and 0.5
    assert [rate(Progress(step, 110, 0, 1)) for step in (0, 9, 10, 60)] == pytest.approx([0.2, 2.0, 2.0, 1.25])
    assert 0.5 < rate(Progress(109, 110, 0, 1)) < 0.501
    rate = build_lr_schedule(ScheduleConfig(warmup_steps=10, warmup_lr=1.0), lr=2.0, steps_per_epoch=110)
    assert rate(Progress(4, 110, 0, 1)) == pytest.approx(1.5)


def test_a_warm_up_in_epochs_counts_full_epochs_even_if_the_last_one_is_shorter() -> None:
    """A run of 110 steps has epochs of 100 and 10 steps: half an epoch is 50 steps, not 110 / 2 / 2."""
    rate = build_lr_schedule(ScheduleConfig(warmup_epochs=0.5), lr=2.0, steps_per_epoch=100)
    assert [rate(Progress(step, 110, step // 100, 2)) for step in (24, 49)] == pytest.approx([1.0, 2.0])


def test_a_warm_up_of_more_than_half_of_the_run_is_shortened_to_a_fifth() -> None:
    config = ScheduleConfig(kind="constant", warmup_steps=100)
    rate = build_lr_schedule(config, 2.0, steps_per_epoch=10)
    assert [rate(Progress(step, 200, 0, 1)) for step in (49, 99)] == pytest.approx([1.0, 2.0])
    assert [rate(Progress(step, 50, 0, 1)) for step in (4, 9, 10, 49)] == pytest.approx([1.0, 2.0, 2.0, 2.0])
    assert "of 100 steps is shortened to 10, a fifth of this run of 50 steps" in notes(config, 10, 50)[0]
    assert not notes(config, 10, 200) and not notes(config, 10, 0)


def test_cooldown_is_constant_and_then_linear() -> None:
    config = ScheduleConfig(kind="cooldown", cooldown=0.25, warmup_steps=20, min_lr=0.1)
    rate = build_lr_schedule(config, 1.1, steps_per_epoch=10)
    rates = [rate(Progress(step, 100, 0, 1)) for step in range(101)]
    assert rates[20:80] == [1.1] * 60  # 60 of the 80 steps after the warm-up
    assert rates[90] == pytest.approx(0.6) and rates[100] == pytest.approx(0.1)
