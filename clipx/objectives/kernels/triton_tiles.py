"""Triton kernels for `clipx.objectives.similarity`: log-sum-exps and their gradients without logits in memory.

The logits are z_ij = <x_i, y_j>, with x = scale * image and y = text, or the reverse. A program computes one block of
them at a time, in registers.

    forward    writes the log-sum-exp of each row or column of the block; torch combines those of all blocks. They are
               B^2 / 128 numbers for each reduction (B^2 / 64 in fp32).
    backward   recomputes the block, turns it into W_ij = sum_k u_ki v_kj exp(z_ij + r_ki + c_kj) and sums W_ij y_j over
               j for a block of rows i. If the log-sum-exp k sums over columns j, u_ki is its weight for row i, r_ki is
               minus its value, v_kj is 1 and c_kj is minus the offset; if it sums over rows, i and j swap roles. One
               call gives the gradient of the images, a second with x and y exchanged that of the texts.

A backward program keeps 256 of the E numbers of its sums in registers, so z is recomputed for every 256 of them. A step
takes 1 matrix product forward and 2 (1 + E / 256) backward, that is 7 for E = 512; torch's tiles need 4, but read and
write each logit about 30 times. Exact float32 products (fp32) do not use tensor cores, so torch's tiles should be
faster. No sum depends on the order in which programs run: a step is reproducible.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from clipx.types import Part
from clipx.utils.matmul import current_precision

# (dim, (ids [B] or None, equal) or None, offset [B] or None), see `clipx.objectives.similarity.Reduction`
Reduction = tuple[int, tuple[Tensor | None, bool] | None, Tensor | None]
ALL, EQUAL, DIFFERENT = 0, 1, 2  # pairs that a reduction excludes: none, those with equal ids, with different ids
# Sizes of the blocks for each loss_precision. With these no register is spilled for sm_80 and sm_90, and the shared
# memory is below 99 KB, the smallest limit of all GPUs since sm_80 (CUDA C++ programming guide, compute capabilities).
FORWARD: dict[str, dict[str, Any]] = {
    "fp32": {"DOT": "ieee", "ROWS": 64, "COLUMNS": 64, "DEPTH": 16, "num_warps": 4, "num_stages": 2},
    "tf32": {"DOT": "tf32", "ROWS": 128, "COLUMNS": 128, "DEPTH": 32, "num_warps": 8, "num_stages": 3},
    "bf16": {"DOT": "tf32", "ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "num_warps": 8, "num_stages": 3},
}
BACKWARD: dict[str, dict[str, Any]] = {
    "fp32": {"DOT": "ieee", "ROWS": 64, "COLUMNS": 32, "DEPTH": 16, "WIDTH": 256, "num_warps": 8, "num_stages": 2},
    "tf32": {"DOT": "tf32", "ROWS": 64, "COLUMNS": 32, "DEPTH": 32, "WIDTH": 256, "num_warps": 8, "num_stages": 2},
    "bf16": {"DOT": "tf32", "ROWS": 64, "COLUMNS": 64, "DEPTH": 64, "WIDTH": 256, "num_warps": 8, "num_stages": 2},
}
SIZES = ["n", "m", "size", "per_split"]  # they differ between batches; a new value compiles no new kernel
PROGRAMS = 256  # number of programs that splitting the columns aims at, about two for each multiprocessor


class Side(NamedTuple):
    """One side of the logits, images or texts, with its numbers for K reductions."""

    points: Tensor  # [n, E], contiguous, in the dtype of the products
    shift: Tensor  # [K, n], added to the logits
    weight: Tensor  # [K, n]
    ids: Tensor  # int64 [K, n]


def log_sums(
    image: Tensor, text: Tensor, scale: Tensor, reductions: Sequence[Reduction], part: Part, results: Tensor
) -> None:
    """Write the log-sum-exps of this process's logits to `results` [K, B]; sums over texts only for its own images."""
    x, y = _sides(image, text, scale, reductions, part.rows)
    n, B = len(x.points), len(y.points)
    if n == 0:
        return
    blocks = FORWARD[current_precision()]
    grid = triton.cdiv(n, blocks["ROWS"]), triton.cdiv(B, blocks["COLUMNS"])
    # [blocks of columns, n] for sums over columns, or [blocks of rows, B]
    shapes = [(grid[1], n) if dim == 1 else (grid[0], B) for dim, _, _ in reductions]
    size = max(a * b for a, b in shapes)
    partial = image.new_empty(len(shapes), size)
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        _block_log_sums[grid](
            x.points, y.points, x.shift, y.shift, x.ids, y.ids, partial, n, B, image.shape[1], size,
            tuple(dim for dim, _, _ in reductions), _excluded(reductions), **blocks,
        )  # fmt: skip
    for result, found, shape, (dim, _, _) in zip(results, partial, shapes, reductions, strict=True):
        result[part.rows if dim == 1 else slice(None)] = found[: shape[0] * shape[1]].view(shape).logsumexp(dim=0)


def gradients(
    image: Tensor,
    text: Tensor,
    scale: Tensor,
    reductions: Sequence[Reduction],
    sums: Tensor,
    weights: Sequence[Tensor],
    part: Part,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of sum_k sum_i weights_ki sums_ki through the logits of this process.

    Args:
        sums: [K, B], finite.
        weights: [B] for each reduction.

    Returns the gradients of this process's images [rows, E], of text [B, E] and of scale [].
    """
    x, y = _sides(image, text, scale, reductions, part.rows, sums, weights)
    if len(x.points) == 0:
        return image[part.rows], torch.zeros_like(text), torch.zeros_like(scale)
    excluded = _excluded(reductions)
    of_rows = _weighted_sums(x, y, excluded)
    return of_rows * scale, _weighted_sums(y, x, excluded), (of_rows * image[part.rows]).sum()


def _sides(
    image: Tensor,
    text: Tensor,
    scale: Tensor,
    reductions: Sequence[Reduction],
    rows: slice,
    sums: Tensor | None = None,
    weights: Sequence[Tensor] = (),
) -> tuple[Side, Side]:
    """Return the images of these rows, and all texts."""
    K, B = len(reductions), len(text)
    shift, weight = text.new_zeros(2, K, B), text.new_ones(2, K, B)
    ids = torch.arange(B, device=text.device).repeat(K, 1)
    for k, (dim, exclude, offset) in enumerate(reductions):
        anchor, summed = (0, 1) if dim == 1 else (1, 0)
        if offset is not None:
            shift[summed, k] -= offset
        if sums is not None:
            shift[anchor, k] -= sums[k]
            weight[anchor, k] = weights[k]
        if exclude is not None and exclude[0] is not None:
            ids[k] = exclude[0]
    dtype = torch.bfloat16 if current_precision() == "bf16" else text.dtype
    x, y = (image[rows] * scale).to(dtype).contiguous(), text.to(dtype).contiguous()
    of_rows = (t[:, rows].contiguous() for t in (shift[0], weight[0], ids))
    return Side(x, *of_rows), Side(y, shift[1], weight[1], ids)


def _excluded(reductions: Sequence[Reduction]) -> tuple[int, ...]:
    return tuple(ALL if exclude is None else EQUAL if exclude[1] else DIFFERENT for _, exclude, _ in reductions)


def _weighted_sums(x: Side, y: Side, excluded: tuple[int, ...]) -> Tensor:
    """Return sum_j W_ij y_j for every row i, float32 [rows, E]."""
    (rows, E), columns, blocks = x.points.shape, len(y.points), BACKWARD[current_precision()]
    programs = triton.cdiv(rows, blocks["ROWS"]), triton.cdiv(E, blocks["WIDTH"])
    column_blocks = triton.cdiv(columns, blocks["COLUMNS"])
    # a process with few rows divides the columns among programs
    splits = max(1, min(column_blocks, PROGRAMS // (programs[0] * programs[1])))
    per_split = triton.cdiv(column_blocks, splits) * blocks["COLUMNS"]
    out = x.shift.new_empty(splits, rows, E)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _block_weighted_sums[(*programs, splits)](
            x.points, y.points, x.shift, y.shift, x.weight, y.weight, x.ids, y.ids, out, rows, columns, E, per_split,
            excluded, **blocks,
        )  # fmt: skip
    return out.sum(dim=0)


@triton.jit
def _logits(x, y, i, j, n, m, E, DOT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """Return the block [ROWS, COLUMNS] of z for the rows i < n and the columns j < m, -inf elsewhere."""
    row, column = tl.minimum(i, n - 1), tl.minimum(j, m - 1)
    z = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, E, DEPTH):
        e = start + tl.arange(0, DEPTH)
        a = tl.load(x + row[:, None] * E + e[None, :], mask=e[None, :] < E, other=0.0)
        b = tl.load(y + column[None, :] * E + e[:, None], mask=e[:, None] < E, other=0.0)
        z = tl.dot(a, b, z, input_precision=DOT)
    return tl.where((i < n)[:, None] & (j < m)[None, :], z, -float("inf"))


@triton.jit
def _exponents(z, k, i, j, n, m, x_shift, y_shift, x_ids, y_ids, EXCLUDED: tl.constexpr):
    """Return z with the shifts of reduction k, and -inf for the pairs that it excludes."""
    r = tl.load(x_shift + k * n + i, mask=i < n, other=0.0)
    c = tl.load(y_shift + k * m + j, mask=j < m, other=0.0)
    z = z + r[:, None] + c[None, :]
    if EXCLUDED != 0:
        a = tl.load(x_ids + k * n + i, mask=i < n, other=0)[:, None]
        b = tl.load(y_ids + k * m + j, mask=j < m, other=0)[None, :]
        z = tl.where((a == b) == (EXCLUDED == 1), -float("inf"), z)
    return z


@triton.jit(do_not_specialize=SIZES)
def _block_log_sums(
    x, y, x_shift, y_shift, x_ids, y_ids, out, n, m, E, size,
    DIMS: tl.constexpr, EXCLUDED: tl.constexpr,
    DOT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write the log-sum-exps of one block of logits, for each reduction over its columns or its rows."""
    block, other = tl.program_id(0), tl.program_id(1)
    i, j = block * ROWS + tl.arange(0, ROWS), other * COLUMNS + tl.arange(0, COLUMNS)
    z = _logits(x, y, i, j, n, m, E, DOT, ROWS, COLUMNS, DEPTH)
    for k in tl.static_range(len(DIMS)):
        t = _exponents(z, k, i, j, n, m, x_shift, y_shift, x_ids, y_ids, EXCLUDED[k])
        # at least the lowest float32, because -inf - (-inf) would be NaN
        largest = tl.maximum(tl.max(t, DIMS[k], keep_dims=True), -3.4028234e38)
        total = tl.log(tl.sum(tl.exp(t - largest), DIMS[k], keep_dims=True)) + largest
        if DIMS[k] == 1:
            tl.store(out + k * size + other * n + i[:, None], total, mask=(i < n)[:, None])
        else:
            tl.store(out + k * size + block * m + j[None, :], total, mask=(j < m)[None, :])


@triton.jit(do_not_specialize=SIZES)
def _block_weighted_sums(
    x, y, x_shift, y_shift, x_weight, y_weight, x_ids, y_ids, out, n, m, E, per_split,
    EXCLUDED: tl.constexpr,
    DOT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write sum_j W_ij y_j for a block of rows i, a split of the columns j, and WIDTH of the E numbers."""
    i, split = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2)
    e = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(split * per_split, tl.minimum((split + 1) * per_split, m), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        z = _logits(x, y, i, j, n, m, E, DOT, ROWS, COLUMNS, DEPTH)
        W = tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in tl.static_range(len(EXCLUDED)):
            t = _exponents(z, k, i, j, n, m, x_shift, y_shift, x_ids, y_ids, EXCLUDED[k])
            u = tl.load(x_weight + k * n + i, mask=i < n, other=0.0)
            v = tl.load(y_weight + k * m + j, mask=j < m, other=0.0)
            W += u[:, None] * v[None, :] * tl.exp(t)
        points = tl.load(y + j[:, None] * E + e[None, :], mask=(j < m)[:, None] & (e < E)[None, :], other=0.0)
        total = tl.dot(W.to(points.dtype), points, total, input_precision=DOT)
    tl.store(out + (split * n + i[:, None]) * E + e[None, :], total, mask=(i < n)[:, None] & (e < E)[None, :])
