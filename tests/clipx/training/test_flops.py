"""FLOPs of a step against the arithmetic of a transformer, whatever torch's own table counts."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import flop_registry

from clipx.config.schema import ImageTowerConfig, ModelConfig, PointsConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.training.flops import flop_counter, step_flops


def config(tower: str, batch_size: int, kernel: str = "none") -> RunConfig:
    model = ModelConfig(image=ImageTowerConfig(name=tower), text=TextTowerConfig(name=tower))
    model.points = PointsConfig(kernel=kernel)
    return RunConfig(name="x", recipe="x", model=model, train=TrainConfig(batch_size=batch_size, epochs=1))


def transformer(layers: int, width: int, tokens: int) -> float:
    """Return forward FLOPs: 12 d^2 multiply-adds per token and layer, and two products of T^2 d in attention."""
    return layers * (24 * width**2 * tokens + 4 * tokens**2 * width)


@pytest.fixture
def no_attention_in_torchs_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for operation in [key for key in flop_registry if "attention" in str(key)]:
        monkeypatch.delitem(flop_registry, operation)


@pytest.mark.usefixtures("no_attention_in_torchs_table")
def test_attention_is_counted_by_its_formula() -> None:
    batch, heads, queries, keys, width = 2, 3, 5, 7, 8
    q, k, v = (torch.randn(batch, heads, n, width, requires_grad=True) for n in (queries, keys, keys))
    product = 2 * batch * heads * queries * keys * width
    with flop_counter() as counter:
        result = scaled_dot_product_attention(q, k, v)
        assert counter.get_total_flops() == 2 * product
        result.sum().backward()  # type: ignore[no-untyped-call]
        assert counter.get_total_flops() == (2 + 5) * product


@pytest.mark.usefixtures("no_attention_in_torchs_table")
def test_flops_of_vit_b_16_match_its_shapes() -> None:
    patches = 2 * 196 * (3 * 16 * 16) * 768
    forward = transformer(12, 768, 197) + patches + transformer(12, 512, 77)
    assert step_flops(config("open_clip:ViT-B-16", 64)) == pytest.approx(3 * 64 * forward, rel=0.01)


def test_flops_are_proportional_to_the_batch_and_include_point_sets() -> None:
    small, large = (step_flops(config("open_clip:mini-vit-48", size)) for size in (8, 4096))
    assert large == 512 * small
    assert step_flops(config("open_clip:mini-vit-48", 8, kernel="imq")) > small
