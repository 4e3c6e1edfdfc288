"""The tests that run for every term also pass for a new term with a bias and per-sample columns."""

import pytest
import torch
from torch.nn.functional import logsigmoid

from clipx import objectives
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.types import Embeddings, Progress
from tests.clipx.objectives import test_objective
from tests.clipx.training import test_step_distributed as step
from tests.helpers.gloo import Gloo
from tests.helpers.term_runs import TERMS, Result

NAME = "counted"


class CountedTerm(Term):
    """A sigmoid loss in which a pair counts less with each visit."""

    needs = ("bias",)

    def __init__(self) -> None:
        self.columns = {"counted_visits": 0.0}

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        assert embeddings.bias is not None
        z = embeddings.scale * embeddings.image @ embeddings.text.T + embeddings.bias
        losses = -logsigmoid((2 * torch.eye(len(z), dtype=z.dtype) - 1) * z).mean(dim=1)
        visits = rows["counted_visits"] + 1
        return (losses / visits).sum(), {"counted_visits": visits}


def with_term(term: str) -> dict[step.Case, Result]:
    """Train in a worker process, after adding the term to the tables of this process."""
    objectives.TERMS[NAME] = CountedTerm
    TERMS[NAME] = {}
    try:
        return step.trained(term, cases=step.ALL)
    finally:
        del objectives.TERMS[NAME], TERMS[NAME]


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives.TERMS, NAME, CountedTerm)
    monkeypatch.setitem(TERMS, NAME, {})


def test_the_tests_of_all_terms_pass_for_a_new_term() -> None:
    test_objective.test_temperature_and_bias_always_get_a_gradient_as_ddp_requires(NAME)
    step.assert_same_as_alone(NAME, step.trained(NAME, 4, step.ALL), step.ALL)


@pytest.mark.parametrize("world", [2, 4])
def test_several_processes_end_with_the_weights_and_rows_of_one_process(world: int, gloo: Gloo) -> None:
    step.assert_same_as_alone(NAME, gloo.run(world, with_term, NAME)[0], step.ALL)
