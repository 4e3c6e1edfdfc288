"""Tiled log-sum-exps against stored logits, for any tile size, and properties of every pairwise term."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clipx import objectives
from clipx.objectives import similarity
from tests.helpers.pairs import START, Terms, embed, random_pairs, value_and_gradients

PAIRWISE: dict[str, Terms] = {
    "clip": {"clip": {}},
    "clip summed": {"clip": {"average": False}},
    "negative": {"negative": {}},
    "cyclic_inmodal": {"cyclic_inmodal": {}},
    "cyclic_crossmodal": {"cyclic_crossmodal": {}},
    "siglip": {"siglip": {}},
    "dcl": {"dcl": {}},
    "keyword": {"keyword": {}},
    "keyword ratio": {"keyword": {"g": "ratio", "denominator": "same_label"}},
    "multi_positive": {"multi_positive": {}},
    "siglip group": {"siglip": {"positives": "group"}},
    "distill": {"distill": {}},
    "align_clip": {"align_clip": {}},
    "rank": {"rank": {}},
}


def labels(B: int) -> list[int]:
    return [i * i % 4 for i in range(B)]


@settings(max_examples=40, deadline=None)
@given(B=st.integers(1, 13), rows=st.integers(1, 14), seed=st.integers(0, 99), name=st.sampled_from(sorted(PAIRWISE)))
def test_the_tile_size_changes_neither_loss_nor_gradients(B: int, rows: int, seed: int, name: str) -> None:
    embeddings = embed(*random_pairs(B, 3, seed), 20.0, labels(B), bias=-10.0)
    whole, gradients = value_and_gradients(PAIRWISE[name], embeddings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(similarity.TILE_BYTES, "cpu", rows * B * 8)
        tiled, tiled_gradients = value_and_gradients(PAIRWISE[name], embeddings)
    assert torch.allclose(whole, tiled, rtol=1e-12, atol=1e-13)
    for key, gradient in gradients.items():
        assert torch.allclose(gradient, tiled_gradients[key], rtol=1e-11, atol=1e-12), key


@pytest.mark.parametrize("name", PAIRWISE)
def test_gradients_in_tiles_match_finite_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    B = 3
    monkeypatch.setitem(similarity.TILE_BYTES, "cpu", 2 * B * 8)
    batch = embed(*random_pairs(B, 3), 3.0, labels(B), bias=-2.0)

    def total(image: Tensor, text: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        leaf = replace(batch, image=image, text=text, scale=scale, bias=bias)
        return objectives.build(PAIRWISE[name], num_samples=B)(leaf, {}, START).total

    assert batch.bias is not None
    leaves = [t.clone().requires_grad_() for t in (batch.image, batch.text, batch.scale, batch.bias)]
    assert torch.autograd.gradcheck(total, leaves)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 200.0), (torch.bfloat16, 100.0)])
@pytest.mark.parametrize("case", ["random", "equal", "opposite", "one pair"])
@pytest.mark.parametrize("name", PAIRWISE)
def test_low_precision_stays_close_to_float64_at_a_small_tau(
    name: str, case: str, scale: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(similarity.TILE_BYTES, "cpu", 1)  # one row
    image, text = (t.to(dtype) for t in random_pairs(8, 4))
    text = {"random": text, "equal": image, "opposite": -image, "one pair": text}[case]
    B = 1 if case == "one pair" else 8
    low_precision = embed(image[:B], text[:B], scale, labels(B), bias=-10.0)
    exact = embed(image[:B].double(), text[:B].double(), scale, labels(B), bias=-10.0)
    loss, gradients = value_and_gradients(PAIRWISE[name], low_precision)
    expected, expected_gradients = value_and_gradients(PAIRWISE[name], exact)
    assert loss.dtype == torch.float32
    assert torch.allclose(loss.double(), expected, rtol=1e-4, atol=1e-4)
    # gradients have the dtype of their input
    rtol = 1e-2 if dtype == torch.bfloat16 else 1e-3
    for key, gradient in gradients.items():
        largest = expected_gradients[key].abs().max().item()
        assert torch.allclose(gradient.double(), expected_gradients[key], rtol=rtol, atol=rtol * largest + 1e-3), key
