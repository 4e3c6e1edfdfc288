"""Stateless terms against reference losses and gradients computed outside clipx, in float64."""

import pytest
import torch

from tests.golden import GOLDEN
from tests.helpers.pairs import Terms, embed, value_and_gradients

TERMS: dict[str, Terms] = {
    "clip": {"clip": {}},
    "positive": {"positive": {}},
    "negative": {"negative": {}},
    "cyclic_inmodal": {"cyclic_inmodal": {}},
    "cyclic_crossmodal": {"cyclic_crossmodal": {}},
    "clip+0.1positive": {"clip": {}, "positive": {"weight": 0.1}},
    "cyclip": {"clip": {}, "cyclic_inmodal": {"weight": 0.25}, "cyclic_crossmodal": {"weight": 0.25}},
    "siglip": {"siglip": {}},
    "dcl": {"dcl": {"tau_plus": 0.1}},
    "keyword_log1p_own": {"keyword": {"g": "log1p", "denominator": "own"}},
    "keyword_log1p_same_label": {"keyword": {"g": "log1p", "denominator": "same_label"}},
    "keyword_ratio_own": {"keyword": {"g": "ratio", "denominator": "own"}},
    "keyword_ratio_same_label": {"keyword": {"g": "ratio", "denominator": "same_label"}},
}


def test_every_golden_objective_is_compared() -> None:
    assert TERMS.keys() == GOLDEN["objectives"].keys()


@pytest.mark.parametrize("name", TERMS)
def test_loss_and_gradients_match_the_golden_values(name: str) -> None:
    golden = GOLDEN["objectives"][name]
    image, text = (torch.tensor(GOLDEN[side], dtype=torch.float64) for side in ("image", "text"))
    scale = golden["t"] if "t" in golden else 1 / golden.get("tau", 1.0)
    embeddings = embed(image, text, scale, golden.get("labels"), golden.get("bias"))
    loss, gradients = value_and_gradients(TERMS[name], embeddings)
    assert abs(loss.item() - golden["loss"]) < 1e-9
    for side in ("image", "text"):
        expected = torch.tensor(golden[f"grad_{side}"], dtype=torch.float64)
        assert torch.allclose(gradients[side], expected, atol=1e-9, rtol=0)
