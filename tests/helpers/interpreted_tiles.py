"""Checks of the Triton kernels on a CPU; test_triton_tiles.py runs them in a process with TRITON_INTERPRET=1.

Triton's interpreter runs each program of a grid with NumPy. It multiplies the bits of bfloat16 numbers instead of their
values, truncates where a GPU rounds, and ignores TF32; `round_like_a_gpu` corrects these three.
"""

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from clipx import objectives
from clipx.objectives import similarity
from clipx.objectives.kernels import triton_tiles
from clipx.objectives.similarity import EXCLUDE_POSITIVES, Exclude, Reduction, log_sums, logsumexp, softmax_gradients
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Part, Progress
from clipx.utils import matmul
from clipx.utils.matmul import LOSS_PRECISIONS, loss_precision
from tests.helpers.pairs import Terms, random_pairs
from tests.helpers.tf32 import ten_bits

assert os.environ.get("TRITON_INTERPRET") == "1"
SMALL = {"ROWS": 16, "COLUMNS": 32, "DEPTH": 16}


def float_of_bits(x: np.ndarray) -> np.ndarray:
    """Return the values of bfloat16 numbers stored as uint16."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def round_like_a_gpu(patch: pytest.MonkeyPatch) -> None:
    cast = InterpreterBuilder.cast_impl

    def create_dot(self, a, b, d, precision, limit):  # type: ignore[no-untyped-def]
        values = [float_of_bits(x.data) if x.dtype == tl.bfloat16 else x.data for x in (a, b)]
        if "TF32" in str(precision) and a.dtype == tl.float32:
            values = [ten_bits(torch.from_numpy(np.ascontiguousarray(x))).numpy() for x in values]
        return TensorHandle(values[0] @ values[1] + d.data, d.dtype.scalar)

    def cast_impl(self, source, target):  # type: ignore[no-untyped-def]
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            rounded = torch.from_numpy(source.data).bfloat16().view(torch.int16).numpy().view(np.uint16)
            return TensorHandle(rounded, tl.bfloat16)
        return cast(self, source, target)

    patch.setattr(InterpreterBuilder, "create_dot", create_dot)
    patch.setattr(InterpreterBuilder, "cast_impl", cast_impl)


@pytest.fixture(autouse=True)
def kernels() -> Iterator[pytest.MonkeyPatch]:
    """Use the kernels for float32 on a CPU, in small blocks; float64 keeps torch's tiles."""
    with pytest.MonkeyPatch.context() as patch:
        for name in LOSS_PRECISIONS:
            patch.setitem(triton_tiles.FORWARD, name, triton_tiles.FORWARD[name] | SMALL)
            patch.setitem(triton_tiles.BACKWARD, name, triton_tiles.BACKWARD[name] | SMALL | {"WIDTH": 32})
        patch.setattr(similarity, "triton_tiles", lambda x: triton_tiles if x.dtype == torch.float32 else None)
        round_like_a_gpu(patch)
        yield patch


def reductions(B: int) -> list[Reduction]:
    """Return a reduction for each mask, along rows and along columns, with and without offsets."""
    label = (torch.arange(B) + 2) // 3 % 4
    offset = torch.linspace(-1, 1, B)
    return [
        Reduction(1),
        Reduction(0),
        Reduction(1, EXCLUDE_POSITIVES),
        Reduction(0, EXCLUDE_POSITIVES, offset),
        Reduction(1, Exclude(label), offset),
        Reduction(0, Exclude(label, equal=False)),
    ]


def stored(z: Tensor, given: list[Reduction]) -> Tensor:
    """Compute the log-sum-exps from stored logits."""
    found = []
    for dim, exclude, offset in given:
        shift = z.new_zeros(len(z)) if offset is None else offset
        adjusted = z - (shift[None, :] if dim == 1 else shift[:, None])
        if exclude is not None:
            ids = torch.arange(len(z)) if exclude.ids is None else exclude.ids
            adjusted = adjusted.masked_fill((ids[:, None] == ids[None, :]) == exclude.equal, -torch.inf)
        found.append(adjusted.logsumexp(dim))
    return torch.stack(found)


def leaves(B: int, E: int, dtype: torch.dtype, scale: float = 9.0) -> list[Tensor]:
    image, text = random_pairs(B, E)
    return [t.to(dtype).requires_grad_() for t in (image, text, torch.tensor(scale))]


@pytest.mark.parametrize(
    ("B", "E", "programs"),  # with few programs, each sums over several blocks of columns
    [(1, 1, 256), (16, 32, 256), (20, 37, 256), (35, 20, 1), (66, 5, 10)],
)
def test_sums_and_gradients_match_stored_logits(B: int, E: int, programs: int, kernels: pytest.MonkeyPatch) -> None:
    kernels.setattr(triton_tiles, "PROGRAMS", programs)
    given = reductions(B)
    inputs, exact = leaves(B, E, torch.float32), leaves(B, E, torch.float64)
    found = torch.stack(logsumexp(inputs[0], inputs[1], inputs[2], given))
    expected = stored(exact[2] * exact[0] @ exact[1].T, given)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    finite = expected.isfinite()
    (found * weights)[finite].sum().backward()  # type: ignore[no-untyped-call]
    (expected * weights)[finite].sum().backward()  # type: ignore[no-untyped-call]
    for a, b in zip(inputs, exact, strict=True):
        assert a.grad is not None and b.grad is not None
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=2e-5)


class Rows(Part):
    """The rows of one of several processes, whose results are not combined."""

    def __init__(self, rows: slice) -> None:
        self.rows = rows


def test_the_results_of_parts_add_up_to_the_whole() -> None:
    B, given = 20, reductions(20)
    image, text, scale = (t.detach() for t in leaves(B, 8, torch.float32))
    weights = torch.randn(len(given), B, generator=torch.Generator().manual_seed(1)).unbind()
    sums = log_sums(image, text, scale, given)
    whole, _ = softmax_gradients((image, text, scale), given, sums, weights)
    parts = [Rows(slice(*ends)) for ends in ((0, 18), (18, 18), (18, 20))]
    found = torch.stack([log_sums(image, text, scale, given, part) for part in parts])
    torch.testing.assert_close(found.logsumexp(dim=0), sums)
    shares = [softmax_gradients((image, text, scale), given, sums, weights, part)[0] for part in parts]
    for name, total in vars(whole).items():
        if name != "inputs":
            torch.testing.assert_close(sum(vars(share)[name] for share in shares), total, rtol=1e-4, atol=1e-5)


def loss_and_gradients(terms: Terms, dtype: torch.dtype, scale: float) -> list[Tensor]:
    """Return the loss, the new values of the columns and the gradients of image, text and scale, in float64."""
    B = 24
    image, text, tau_inverse = leaves(B, 12, dtype, scale)
    objective, ids = objectives.build(terms, B), torch.arange(B)
    rows = SampleTable(objective.columns, B, dtype=dtype).read(ids)
    loss = objective(Embeddings(image, text, tau_inverse, ids, ids * ids % 4), rows, Progress(0, 1, 0, 1))
    loss.total.backward()  # type: ignore[no-untyped-call]
    found = [loss.total, *loss.rows.values(), *(t.grad for t in (image, text, tau_inverse) if t.grad is not None)]
    return [t.detach().double() for t in found]


@pytest.mark.parametrize("name", ["dcl", "keyword", "nuclr", "fastclip_v2"])
def test_terms_match_tiles_in_float64(name: str) -> None:
    terms: Terms = {name: {"denominator": "same_label"} if name == "keyword" else {}}
    exact = loss_and_gradients(terms, torch.float64, 100.0)
    for a, b in zip(loss_and_gradients(terms, torch.float32, 100.0), exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().max()))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_inputs_are_rounded_like_those_of_tiles(precision: str, kernels: pytest.MonkeyPatch) -> None:
    if precision == "tf32":
        kernels.setattr(matmul, "rounded", ten_bits)
    exact = loss_and_gradients({"clip": {}}, torch.float64, 50.0)
    with loss_precision(precision):
        found = loss_and_gradients({"clip": {}}, torch.float32, 50.0)
        kernels.setattr(similarity, "triton_tiles", lambda x: None)
        tiles = loss_and_gradients({"clip": {}}, torch.float32, 50.0)
    for a, b, c in zip(found, tiles, exact, strict=True):
        assert (a - b).norm() < 1e-2 * (b - c).norm()
