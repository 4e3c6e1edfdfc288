"""Training gives the same result for every split of a global batch into processes and micro-batches."""

from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from clipx import distributed
from clipx.errors import UserError
from clipx.objectives.base import Objective
from clipx.training import optimizer, setup
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from tests.helpers import tiny
from tests.helpers.folder import settings as mini_settings
from tests.helpers.gloo import Gloo
from tests.helpers.tiny import FIRST, OPTIMIZERS, SUMS, TERMS, Result, assert_same, settings_of

STEPS = 3  # NUCLR's freeze ends after the first, neuclip restarts in the third
Case = tuple[str, str]  # mixing, optimizer
ALL: list[Case] = [(mixing, kind) for mixing in ("none", "hard", "soft") for kind in OPTIMIZERS]
SOME: list[Case] = [("none", "adamw"), ("soft", "sgd")]
EACH: list[Case] = [*SOME, ("hard", "adamw")]
MOST = [FIRST, *(pytest.param(terms, marks=pytest.mark.long) for terms in SUMS[1:])]


def trained(terms: str, accumulation: int = 1, cases: list[Case] = SOME) -> dict[Case, Result]:
    """Train three steps per case on this rank; return also the value of each term in each step."""
    found = {}
    for mixing, kind in cases:
        config = settings_of(terms, mixing, kind)
        config.train.accumulation = accumulation
        run = tiny.components(config)
        found[mixing, kind] = tiny.train_steps(run, STEPS) | tiny.state(run)
    return found


@cache
def alone(terms: str, mixing: str, kind: str) -> tuple[Result, Result]:
    """Train on one process; return the result, and the weights at the start."""
    start = tiny.components(settings_of(terms, mixing, kind)).state.model.state_dict()
    return trained(terms, cases=[(mixing, kind)])[mixing, kind], start


def assert_same_as_alone(terms: str, found: dict[Case, Result], cases: list[Case]) -> None:
    assert list(found) == cases
    for case, result in found.items():
        assert_same(result, *alone(terms, *case))


@pytest.mark.parametrize("terms", SUMS)
def test_two_processes_and_micro_batches_end_in_the_weights_and_sample_table_of_one(terms: str, gloo: Gloo) -> None:
    cases = EACH if terms == FIRST else SOME
    assert_same_as_alone(terms, trained(terms, 4, cases), cases)
    assert_same_as_alone(terms, gloo.run(2, trained, terms, 1, cases)[0], cases)


# tests/clipx/objectives/test_parts.py has all terms on four processes and with unequal parts
@pytest.mark.parametrize("terms", MOST)
def test_four_processes_end_in_the_weights_and_sample_table_of_one(terms: str, gloo: Gloo) -> None:
    assert_same_as_alone(terms, gloo.run(4, trained, terms)[0], SOME)


@pytest.mark.long
@pytest.mark.parametrize("term", TERMS)
def test_each_term_alone_is_the_same_with_every_mixing_and_optimizer(term: str, gloo: Gloo) -> None:
    assert_same_as_alone(term, trained(term, 4, ALL), ALL)
    assert_same_as_alone(term, gloo.run(2, trained, term, 1, ALL)[0], ALL)


def test_batch_norms_are_synchronised_on_gpus_and_refused_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings_of("clip", "none", "sgd")
    model = tiny.components(config, "resnet").state.model
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(setup, "DistributedDataParallel", lambda model, **_: model)
    for synchronised in (False, True):
        config.train.sync_batchnorm = synchronised
        setup._parallelise(model, config, torch.device("cuda"))
        norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
        assert norms and all(isinstance(norm, torch.nn.SyncBatchNorm) is synchronised for norm in norms)
    with pytest.raises(UserError, match=r"train\.sync_batchnorm=true needs GPUs"):
        setup._parallelise(model, config, torch.device("cpu"))


TOWERS: dict[str, dict[str, Any]] = {  # case -> changed settings
    "frozen": {"image.frozen": True, "grad_checkpointing": True, "accumulation": 2},
    "points and adapters": {"points.kernel": "imq", "image.lora": 4, "text.lora": 4, "ema": 0.5},
}


def trained_towers() -> dict[str, Result]:
    """Train real towers for two steps in each case."""
    found = {}
    for case, changes in TOWERS.items():
        config = mini_settings(Path())
        model, train = config.model, config.train
        model.image.name, model.text.name = "open_clip:mini-vit-48", "small:transformer"
        nodes = {"image": model.image, "text": model.text, "points": model.points}
        for key, value in changes.items():
            node, _, name = key.rpartition(".")
            setattr(nodes.get(node, train), name, value)
        train.batch_size, train.device = 4, "cpu"
        config.optimizer.kind, config.optimizer.lr = "sgd", 0.1
        run = build_components(config, torch.device("cpu"), 8, "x")
        generator, size = torch.Generator().manual_seed(0), 4 // distributed.world_size()
        own = slice(distributed.rank() * size, (distributed.rank() + 1) * size)
        for step in range(2):
            image = torch.randn(4, 3, 48, 48, generator=generator)[own]
            text = torch.randint(1, 50, (4, run.state.model.inputs.context_length), generator=generator)[own]
            train_step(run, Batch(torch.arange(4)[own], image, text, torch.zeros(size).long()), Progress(step, 2, 0, 1))
        averages = {} if run.state.ema is None else run.state.ema.module.state_dict()
        found[case] = run.state.model.state_dict() | {f"ema.{name}": value for name, value in averages.items()}
    return found


def test_two_processes_train_real_towers_as_one_does(gloo: Gloo) -> None:
    expected = trained_towers()
    for case, found in gloo.run(2, trained_towers)[0].items():
        assert found.keys() == expected[case].keys()
        for name, value in expected[case].items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=tiny.about(f"{case} {name}"))


class Noisy(torch.optim.SGD):
    """Adds noise to the weights. timm's kron, too, draws random numbers in a step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(torch.randn_like(parameter), alpha=0.01)


def trained_with_noise() -> Result:
    config = settings_of("clip", "none", "sgd")
    config.optimizer.kind = "noisy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(optimizer.OPTIMIZERS, "noisy", lambda groups, config: Noisy(groups, lr=config.lr))
        return tiny.train(tiny.components(config, "dropout"))


def test_an_optimizer_draws_the_same_random_numbers_on_every_rank(gloo: Gloo) -> None:
    first, second = gloo.run(2, trained_with_noise)
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


def one_bad_sample(terms: str, accumulation: int = 1) -> TrainComponents:
    """Return a run on batches of 7 pairs instead of 8: two ranks have 3 and 4 of them, four ranks 1, 2, 2 and 2."""
    config = settings_of(terms, "soft", "sgd")
    config.train.accumulation = accumulation
    run = tiny.components(config)
    run.config.train.batch_size = 7
    return run


def trained_with_bad_sample(terms: str, accumulation: int = 1) -> Result:
    return tiny.train(one_bad_sample(terms, accumulation), STEPS)


@pytest.mark.parametrize("terms", MOST)
def test_ranks_with_unequal_numbers_of_pairs_end_in_the_weights_and_sample_table_of_one(terms: str, gloo: Gloo) -> None:
    expected = trained_with_bad_sample(terms)
    start = tiny.components(settings_of(terms, "soft", "sgd")).state.model.state_dict()
    for world, accumulation in ((2, 2), (4, 1)):
        assert_same(gloo.run(world, trained_with_bad_sample, terms, accumulation)[0], expected, start)


def rows_of_a_step() -> list[slice]:
    """Return the rows of the global batch that the objective of a training step gets as its part."""
    run = one_bad_sample("clip")
    with patch.object(Objective, "__call__", autospec=True, side_effect=Objective.__call__) as called:
        train_step(run, next(tiny.batches(run.config, 1)), Progress(0, 1, 0, 1))
    return [call.args[1].part.rows for call in called.call_args_list]


def test_a_training_step_gives_each_rank_its_own_rows(gloo: Gloo) -> None:
    assert gloo.run(2, rows_of_a_step) == [[slice(0, 3)], [slice(3, 7)]]
    assert rows_of_a_step() == [slice(None)]
