"""FLOPs of a step: against the arithmetic of a transformer, and independent of what lies in memory."""

import pytest

from clipx.config.schema import ImageTowerConfig, ModelConfig, PointsConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.training.flops import step_flops


def config(tower: str, batch_size: int, kernel: str = "none") -> RunConfig:
    model = ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower))
    model.points = PointsConfig(kernel=kernel)
    return RunConfig(name="x", recipe="x", model=model, train=TrainConfig(batch_size=batch_size, epochs=1))


def transformer(layers: int, width: int, tokens: int) -> float:
    """FLOPs of a forward pass: 12 d^2 multiplications a token and layer, and two products of T^2 d in attention."""
    return layers * (24 * width**2 * tokens + 4 * tokens**2 * width)


def test_vit_b_16_needs_what_its_shapes_say() -> None:
    patches = 2 * 196 * (3 * 16 * 16) * 768
    forward = transformer(12, 768, 197) + patches + transformer(12, 512, 77)
    assert step_flops(config("open_clip:ViT-B-16", 64)) == pytest.approx(3 * 64 * forward, rel=0.01)


def test_it_is_proportional_to_the_batch_and_counts_the_points() -> None:
    small, large = (step_flops(config("open_clip:mini-vit-48", size)) for size in (8, 4096))
    assert large == 512 * small
    assert step_flops(config("open_clip:mini-vit-48", 8, kernel="imq")) > small
