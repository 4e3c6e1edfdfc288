"""Helpers for tests of loss terms: small batches, losses and gradients, steps with a sample table."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import objectives
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Loss, Progress, TeacherEmbeddings

START = Progress(step=0, total_steps=1, epoch=0, total_epochs=1)
Terms = dict[str, dict[str, object]]


def random_pairs(B: int, E: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random unit vectors, image and text [B, E] in float64."""
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, B, E, generator=generator, dtype=torch.float64)
    return F.normalize(image, dim=-1), F.normalize(text, dim=-1)


def embed(
    image: Tensor, text: Tensor, scale: float | Tensor, label: list[int] | None = None, bias: float | None = None
) -> Embeddings:
    """Return Embeddings in the dtype of `image`, with a teacher and negative texts.

    Pairs with the same label form a group; without `label`, pairs 2i and 2i + 1 form group i.
    """
    B, dtype = len(image), image.dtype
    group = torch.tensor(label or [i // 2 for i in range(B)])
    return Embeddings(
        image=image,
        text=text,
        scale=torch.as_tensor(scale, dtype=dtype),
        sample_id=torch.arange(B),
        label=torch.tensor(label or [0] * B),
        bias=None if bias is None else torch.tensor(bias, dtype=dtype),
        group=group,
        teacher=teacher_of(image, text),
        negative_text=negatives_of(text),
    )


def negatives_of(text: Tensor) -> Tensor:
    """Return a negative for each text [B, E]: the text with its entries shifted by one place."""
    return text.detach().roll(1, dims=1)


def teacher_of(image: Tensor, text: Tensor, width: int = 5) -> TeacherEmbeddings:
    """Return a teacher's embeddings [B, width] in float64: a fixed random projection of each vector."""
    generator = torch.Generator().manual_seed(7)
    matrix = torch.randn(image.shape[1], width, generator=generator, dtype=torch.float64)
    of_image, of_text = (F.normalize(side.detach().double() @ matrix, dim=1) for side in (image, text))
    return TeacherEmbeddings(of_image, of_text, torch.tensor(4.0, dtype=torch.float64))


def loss_of(terms: Terms, embeddings: Embeddings) -> Loss:
    return objectives.build(terms, num_samples=len(embeddings.image))(embeddings, {}, START)


def value_and_gradients(terms: Terms, embeddings: Embeddings) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and its gradients for image, text, scale and, if present, bias."""
    given = {"image": embeddings.image, "text": embeddings.text, "scale": embeddings.scale, "bias": embeddings.bias}
    leaves = {name: t.detach().clone().requires_grad_() for name, t in given.items() if t is not None}
    image, text, scale = leaves["image"], leaves["text"], leaves["scale"]
    leaf = replace(embeddings, image=image, text=text, scale=scale, bias=leaves.get("bias"))
    total = loss_of(terms, leaf).total
    total.backward()  # type: ignore[no-untyped-call]
    zeros = {name: torch.zeros_like(t) for name, t in leaves.items()}
    return total.detach(), {name: zeros[name] if t.grad is None else t.grad for name, t in leaves.items()}


def progress(step: int = 0, epoch: int = 0, epochs: int = 10) -> Progress:
    return Progress(step=step, total_steps=10 * epochs, epoch=epoch, total_epochs=epochs)


def pairs(B: int, E: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    image, text = (side.to(dtype) for side in random_pairs(B, E, seed))
    return image.requires_grad_(), text.requires_grad_()


def embeddings(image: Tensor, text: Tensor, ids: Tensor, tau: float) -> Embeddings:
    return Embeddings(image, text, torch.tensor(1 / tau, dtype=image.dtype), ids, torch.zeros_like(ids))


def step(objective: Objective, table: SampleTable, batch: Embeddings, at: Progress) -> Loss:
    """Compute loss and gradients of a batch, and write its new rows into the table."""
    assert batch.sample_id is not None
    loss = objective(batch, table.read(batch.sample_id), at)
    loss.total.backward()  # type: ignore[no-untyped-call]
    table.write(batch.sample_id, {name: row.detach() for name, row in loss.rows.items()})
    objective.end_step(table)
    return loss


def fresh(terms: dict[str, Any], n: int, dtype: torch.dtype = torch.float64) -> tuple[Objective, SampleTable]:
    """Return a new objective for n training pairs, and the table of its numbers for each pair."""
    objective = objectives.build(terms, n)
    return objective, SampleTable(objective.columns, n, dtype=dtype)
