"""What a term is, and how terms add up to an objective."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from clipx.types import Embeddings, Loss, Progress


class Columns(Protocol):
    """What `end_step` and `end_epoch` may ask of the table of per-sample values."""

    def max(self, column: str) -> float:
        """The largest value of a column over all samples."""
        ...


class Term:
    """A loss over the global batch. A subclass has one `__init__` parameter for each setting.

    `columns` are the per-sample values that it needs, with their initial values; `state` are numbers that
    `end_step` and `end_epoch` change, for the checkpoint.
    """

    columns: Mapping[str, float] = {}
    state: Mapping[str, float] = {}
    learns_temperature = True  # whether it has a gradient for the scale 1/tau

    def __call__(
        self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The term [] before its weight, and column -> [B] new per-sample values; inputs stay as they are."""
        raise NotImplementedError

    def end_step(self, table: Columns) -> None:
        """After the new rows were written."""

    def end_epoch(self, table: Columns) -> None:
        """After an epoch's last step."""

    def notes(self, total_epochs: int) -> list[str]:
        """What a person should know before a run of so many epochs, a line each."""
        return []


def at_least_float32(embeddings: Embeddings) -> Embeddings:
    """All floats in the dtype of the image, or in float32 where that is a half precision."""
    dtype = torch.promote_types(embeddings.image.dtype, torch.float32)
    bias = embeddings.bias if embeddings.bias is None else embeddings.bias.to(dtype)
    image, text, scale = (t.to(dtype) for t in (embeddings.image, embeddings.text, embeddings.scale))
    return replace(embeddings, image=image, text=text, scale=scale, bias=bias)


class Objective:
    """The weighted sum of terms."""

    def __init__(self, terms: Mapping[str, Term], weights: Mapping[str, float]) -> None:
        self.terms = dict(terms)
        self.weights = dict(weights)
        self.columns: dict[str, float] = {}
        for term in terms.values():
            assert not self.columns.keys() & term.columns.keys(), "two terms write one column"
            self.columns.update(term.columns)
        self.learns_temperature = any(term.learns_temperature for term in terms.values())

    def __call__(self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress) -> Loss:
        """Loss over the global batch: total = sum of weight * term."""
        embeddings = at_least_float32(embeddings)
        total = 0 * embeddings.scale  # terms without a temperature give it zeros, so that DDP finds every parameter
        if embeddings.bias is not None:
            total = total + 0 * embeddings.bias
        values: dict[str, Tensor] = {}
        new_rows: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            value, written = term(embeddings, rows, progress)
            total = total + self.weights[name] * value
            values[name] = value.detach()
            new_rows.update(written)
        return Loss(total=total, terms=values, rows=new_rows)

    def state(self) -> dict[str, dict[str, float]]:
        """term -> its numbers that a checkpoint must hold."""
        return {name: dict(term.state) for name, term in self.terms.items() if term.state}

    def load_state(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Takes over what `state` gave; KeyError where a term's is missing."""
        for name, term in self.terms.items():
            if term.state:
                term.state = {key: float(state[name][key]) for key in term.state}

    def end_step(self, table: Columns) -> None:
        """After the new rows were written: terms may refresh what they derive from the table."""
        for term in self.terms.values():
            term.end_step(table)

    def end_epoch(self, table: Columns) -> None:
        """After an epoch's last step."""
        for term in self.terms.values():
            term.end_epoch(table)

    def notes(self, total_epochs: int) -> list[str]:
        """Those of all terms."""
        return [note for term in self.terms.values() for note in term.notes(total_epochs)]
