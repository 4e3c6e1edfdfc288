"""Products of the objective in lower precision round inputs; gradients have the errors given in docs/training.md."""

import re
from functools import lru_cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import objectives
from clipx.sample_table import SampleTable
from clipx.training.step import train_step
from clipx.types import Embeddings, Progress
from clipx.utils import matmul
from clipx.utils.matmul import add_product_, dot_products, loss_precision, product
from tests.helpers import tiny


def ten_bits(x: Tensor) -> Tensor:
    """Round float32 to the 10-bit mantissa of TF32, as a GPU does."""
    return (
        x if x.dtype == torch.float64 else ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    )


PAGE = Path(__file__).parents[3] / "docs" / "training.md"
ROWS = re.findall(r"^\| `(\w+)`, (\w+) pairs \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
TAUS = (0.07, 0.01)
COLUMNS = [(precision, tau) for precision in ("fp32", "tf32", "bf16") for tau in TAUS]


def pairs(kind: str) -> tuple[Tensor, Tensor]:
    """Return 1,024 pairs of 512 dimensions: random, or clustered around 64 concepts with 16 pairs each."""
    generator = torch.Generator().manual_seed(0)
    image, text = torch.randn(2, 1024, 512, generator=generator)
    if kind == "clustered":
        concepts = torch.randn(64, 512, generator=generator).repeat(16, 1)
        own = torch.randn(1024, 512, generator=generator)
        image, text = (2 * concepts + 0.5 * own + 0.5 * noise for noise in (image, text))
    return F.normalize(image, dim=1), F.normalize(text, dim=1)


def gradient(term: str, kind: str, tau: float, dtype: torch.dtype) -> Tensor:
    """Return the gradients of both modalities as one vector in float64."""
    image, text = (side.to(dtype).requires_grad_() for side in pairs(kind))
    scale, bias = torch.tensor(1 / tau, dtype=dtype), torch.tensor(-10.0, dtype=dtype)
    objective, ids = objectives.build({term: {}}, 1024), torch.arange(1024)
    rows = SampleTable(objective.columns, 1024, dtype=dtype).read(ids)
    batch = Embeddings(image, text, scale, ids, ids % 64 % 19 + 1, bias)
    objective(batch, rows, Progress(0, 1, 0, 1)).total.backward()  # type: ignore[no-untyped-call]
    assert image.grad is not None and text.grad is not None
    return torch.cat([image.grad.flatten(), text.grad.flatten()]).double()


@lru_cache(maxsize=len(TAUS))  # a column for each precision uses it
def exact(term: str, kind: str, tau: float) -> Tensor:
    return gradient(term, kind, tau, torch.float64)


def error(term: str, kind: str, precision: str, tau: float) -> float:
    """Return the relative error of the gradient against float64, in the Euclidean norm."""
    expected = exact(term, kind, tau)  # outside loss_precision
    with pytest.MonkeyPatch.context() as patch, loss_precision(precision):
        if precision == "tf32":
            patch.setattr(matmul, "rounded", ten_bits)
        return float((gradient(term, kind, tau, torch.float32) - expected).norm() / expected.norm())


@pytest.mark.long
@pytest.mark.parametrize(("term", "kind", "cells"), ROWS, ids=[f"{term} {kind}" for term, kind, _ in ROWS])
def test_the_errors_in_the_docs_agree_with_measured_ones(term: str, kind: str, cells: str) -> None:
    given = [float(cell) for cell in cells.split("|")]
    found = [error(term, kind, *column) for column in COLUMNS]
    # processors sum in different orders, so errors may be smaller elsewhere
    assert all(1 / 10 < a / b < 3 for a, b in zip(found, given, strict=True)), found


def test_the_docs_have_every_tiled_term_and_the_default_is_the_fastest_accurate_precision() -> None:
    tiled = {"clip", "siglip", "dcl", "keyword", "sogclr", "nuclr"}
    # in clustered pairs dcl removes all negatives at tau = 0.01: its gradient is zero
    expected = {(t, k) for t in tiled for k in ("random", "clustered")} - {("dcl", "clustered")}
    assert {(term, kind) for term, kind, _ in ROWS} == expected
    small_tau = {name: k for k, (name, tau) in enumerate(COLUMNS) if tau == 0.01}
    worst = {name: max(float(cells.split("|")[k]) for *_, cells in ROWS) for name, k in small_tau.items()}
    below = [name for name, value in worst.items() if value < 1e-3]
    assert below[-1] == tiny.settings({"clip": {}}).train.loss_precision  # the last one is the fastest


def test_bf16_rounds_the_inputs_and_sums_in_float32() -> None:
    a, b = torch.randn(2, 64, 64)
    exact = a.bfloat16().double() @ b.bfloat16().double()
    found, total = torch.empty(64, 64), torch.ones(64, 64)
    with loss_precision("bf16"):
        product(a, b, out=found)
        add_product_(total, a, b)
    assert torch.allclose(found.double(), exact, atol=1e-4)
    assert torch.allclose(total.double(), exact + 1, atol=1e-4)
    product(a, b, out=found)
    assert torch.equal(found, a @ b)


def test_differentiable_products_round_values_and_gradients_alike() -> None:
    a, b = (t.requires_grad_() for t in torch.randn(2, 6, 4, dtype=torch.float64))
    assert torch.autograd.gradcheck(dot_products, [a, b[:3]])
    low_a, low_b = (t.detach().float().requires_grad_() for t in (a, b))
    weights = torch.randn(6, 6).bfloat16().float()
    with loss_precision("bf16"):
        found = dot_products(low_a, low_b)
        (found * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(found, low_a.bfloat16().float() @ low_b.bfloat16().float().T, atol=1e-5)
    assert low_a.grad is not None and low_b.grad is not None
    assert torch.allclose(low_a.grad, weights @ low_b.bfloat16().float(), atol=1e-5)
    assert torch.allclose(low_b.grad, weights.T @ low_a.bfloat16().float(), atol=1e-5)


def test_float64_is_never_rounded_and_an_error_restores_the_precision() -> None:
    a, b = torch.randn(2, 8, 8, dtype=torch.float64)
    found, tf32 = torch.empty_like(a), torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(ZeroDivisionError), loss_precision("bf16"):
        product(a, b, out=found)
        raise ZeroDivisionError
    assert torch.equal(found, a @ b)
    with loss_precision("tf32"):
        assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.allow_tf32 == tf32
    assert torch.equal(matmul.rounded(a.float()), a.float())


def test_the_setting_reaches_the_objective_of_a_step() -> None:
    weights = {}
    for precision in ("fp32", "bf16"):
        config = tiny.settings({"clip": {}})
        config.train.loss_precision = precision
        run = tiny.components(config)
        train_step(run, next(tiny.batches(config, 1)), Progress(0, 1, 0, 1))
        weights[precision] = torch.cat([p.flatten() for p in run.state.model.parameters()])
    difference = (weights["fp32"] - weights["bf16"]).abs().max()
    assert 0 < difference < 1e-2
