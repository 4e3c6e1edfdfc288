"""Batches and steps of an objective with its sample table, for tests of terms with per-sample state."""

from typing import Any

import torch
from torch import Tensor

from clipx import objectives
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Loss, Progress
from tests.helpers.pairs import random_pairs


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
    """Return a new objective for n samples, and its table."""
    objective = objectives.build(terms, n)
    return objective, SampleTable(objective.columns, n, dtype=dtype)
