"""Properties that DDP and the log need of every term."""

import pytest
import torch

from clipx import objectives
from clipx.errors import UserError
from clipx.objectives.base import Term, build_objective
from clipx.sample_table import SampleTable
from tests.helpers.pairs import START, embed, random_pairs


@pytest.mark.parametrize("term", objectives.TERMS)
def test_temperature_and_bias_always_get_a_gradient_as_ddp_requires(term: str) -> None:
    scale = torch.tensor(10.0, dtype=torch.float64, requires_grad=True)
    embeddings = embed(*random_pairs(6, 4), scale, [1, 1, 2, 0, 3, 2])
    bias = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)
    embeddings.bias = bias
    objective = objectives.build({term: {}}, num_samples=6)
    table = SampleTable(objective.columns, 6, dtype=torch.float64)
    objective(embeddings, table.read(torch.arange(6)), START).total.backward()  # type: ignore[no-untyped-call]
    assert scale.grad is not None and bias.grad is not None
    assert (bias.grad != 0) == ("bias" in objectives.TERMS[term].needs)
    assert (scale.grad != 0) == objective.learns_temperature


def test_notes_name_settings_without_effect_in_a_short_run() -> None:
    objective = objectives.build({"clip": {}, "nuclr": {"freeze_epochs": 5}}, num_samples=6)
    assert objective.learns_temperature  # because of clip
    assert objective.notes(total_epochs=6) == []
    (frozen,) = objective.notes(total_epochs=5)
    assert "freeze_epochs=5 of 5: zeta is never updated" in frozen
    assert len(objective.notes(total_epochs=1)) == 2


class Listed(Term):
    """A term with a parameter, `sizes`, of a type that only the term itself can check."""

    def __init__(self, sizes: list[float] | None = None, t: "int | float | None" = None) -> None:
        self.sizes = sizes


def test_parameters_of_the_wrong_type_are_refused() -> None:
    table = {"listed": Listed}
    build_objective(table, {"listed": {"sizes": [1, 2], "t": None}}, 6)
    build_objective(table, {"listed": {"t": 1.5}}, 6)
    with pytest.raises(UserError, match=r"objective.listed.t='1' must be a whole number or a number or null"):
        build_objective(table, {"listed": {"t": "1"}}, 6)
