"""Training gives the same result for every split of a global batch into processes and micro-batches."""

from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch

from clipx.objectives.base import Objective
from clipx.training import optimizer
from clipx.training.setup import TrainComponents
from clipx.training.step import train_step
from clipx.types import Progress
from tests.helpers import tiny
from tests.helpers.gloo import Gloo
from tests.helpers.term_runs import OPTIMIZERS, TERMS, Result, assert_same, settings

MIXED = ("none", "hard", "soft")
Case = tuple[str, str]  # mixing, optimizer
ALL: list[Case] = [(mixing, kind) for mixing in MIXED for kind in OPTIMIZERS]
SOME: list[Case] = [("none", "adamw"), ("soft", "sgd")]
IN_ALL_CASES = ("clip", "siglip", "nuclr")  # the others are in all cases in the tests marked long


def cases_of(term: str) -> list[Case]:
    return ALL if term in IN_ALL_CASES else SOME


def trained(term: str, accumulation: int = 1, cases: list[Case] | None = None) -> dict[Case, Result]:
    """Train five steps per case on this rank; the default cases are `cases_of(term)`."""
    found = {}
    for mixing, kind in cases or cases_of(term):
        config = settings(term, mixing, kind)
        config.train.accumulation = accumulation
        found[mixing, kind] = tiny.train(tiny.components(config))
    return found


@cache
def alone(term: str, mixing: str, kind: str) -> Result:
    """Train on one process."""
    return trained(term, cases=[(mixing, kind)])[mixing, kind]


def trained_resnet(kind: str, synchronised: bool = True) -> Result:
    """Train a tower with batch norms."""
    config = settings("clip", "none", kind)
    config.train.sync_batchnorm = synchronised
    return tiny.train(tiny.components(config, "resnet"))


def assert_same_as_alone(term: str, found: dict[Case, Result], cases: list[Case]) -> None:
    assert list(found) == cases
    for (mixing, kind), result in found.items():
        start = tiny.components(settings(term, mixing, kind)).state.model.state_dict()
        assert_same(result, alone(term, mixing, kind), start)


# tests/clipx/objectives/test_parts.py has all terms on four processes and with unequal parts
MOST = [pytest.param(term, marks=() if term in IN_ALL_CASES else pytest.mark.long) for term in TERMS]


@pytest.mark.parametrize("term", TERMS)
def test_two_processes_end_in_the_weights_and_sample_table_of_one(term: str, gloo: Gloo) -> None:
    assert_same_as_alone(term, gloo.run(2, trained, term)[0], cases_of(term))


@pytest.mark.parametrize("term", MOST)
def test_four_processes_end_in_the_weights_and_sample_table_of_one(term: str, gloo: Gloo) -> None:
    assert_same_as_alone(term, gloo.run(4, trained, term, 1, SOME)[0], SOME)


@pytest.mark.long
@pytest.mark.parametrize("term", [term for term in TERMS if term not in IN_ALL_CASES])
def test_two_processes_end_in_the_weights_of_one_with_every_mixing_and_optimizer(term: str, gloo: Gloo) -> None:
    assert_same_as_alone(term, gloo.run(2, trained, term, 1, ALL)[0], ALL)


@pytest.mark.parametrize("term", TERMS)
def test_micro_batches_end_in_the_weights_and_sample_table_of_the_whole_batch(term: str) -> None:
    assert_same_as_alone(term, trained(term, accumulation=4), cases_of(term))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_sync_batchnorm_gives_the_statistics_of_the_whole_batch(kind: str, gloo: Gloo) -> None:
    start = tiny.components(settings("clip", "none", kind), "resnet").state.model.state_dict()
    weights = {k: v.clone() for k, v in start.items() if v.is_floating_point()}
    expected = trained_resnet(kind)
    for world in (2, 4):
        for found in gloo.run(world, trained_resnet, kind):
            assert_same(found, expected, weights)
    with pytest.raises(AssertionError):  # without the setting the statistics differ
        assert_same(gloo.run(2, trained_resnet, kind, False)[0], expected, {})


class Noisy(torch.optim.SGD):
    """Adds noise to the weights. timm's kron, too, draws random numbers in a step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter), alpha=0.01)


def trained_with_noise() -> Result:
    config = settings("clip", "none", "sgd")
    config.optimizer.kind = "noisy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(optimizer.OPTIMIZERS, "noisy", lambda groups, config: Noisy(groups, lr=config.lr))
        return tiny.train(tiny.components(config, "dropout"))


def test_an_optimizer_draws_the_same_random_numbers_on_every_rank(gloo: Gloo) -> None:
    first, second = gloo.run(2, trained_with_noise)
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


def one_bad_sample(term: str, accumulation: int = 1) -> TrainComponents:
    """Return a run on batches of 7 pairs instead of 8: two ranks have 3 and 4 of them, four ranks 1, 2, 2 and 2."""
    config = settings(term, "soft", "sgd")
    config.train.accumulation = accumulation
    run = tiny.components(config)
    run.config.train.batch_size = 7
    return run


def trained_with_bad_sample(term: str, accumulation: int = 1) -> Result:
    return tiny.train(one_bad_sample(term, accumulation))


@pytest.mark.parametrize("term", MOST)
def test_ranks_with_unequal_numbers_of_pairs_end_in_the_weights_and_sample_table_of_one(term: str, gloo: Gloo) -> None:
    expected = trained_with_bad_sample(term)
    start = tiny.components(settings(term, "soft", "sgd")).state.model.state_dict()
    for world, accumulation in ((2, 2), (4, 1)):
        assert_same(gloo.run(world, trained_with_bad_sample, term, accumulation)[0], expected, start)


def rows_of_a_step() -> list[slice]:
    """Return the rows of the global batch that the objective of a training step gets as its part."""
    run = one_bad_sample("clip")
    with patch.object(Objective, "__call__", autospec=True, side_effect=Objective.__call__) as called:
        train_step(run, next(tiny.batches(run.config, 1)), Progress(0, 1, 0, 1))
    return [call.args[1].part.rows for call in called.call_args_list]


def test_a_training_step_gives_each_rank_its_own_rows(gloo: Gloo) -> None:
    assert gloo.run(2, rows_of_a_step) == [[slice(0, 3)], [slice(3, 7)]]
    assert rows_of_a_step() == [slice(None)]
