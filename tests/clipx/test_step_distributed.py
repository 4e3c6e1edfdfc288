"""What training must not depend on: into how many processes or micro-batches a global batch is split."""

from functools import cache

import pytest
import torch
from torch import Tensor

from clipx import objectives
from clipx.config import RunConfig
from tests.clipx import tiny
from tests.gloo import Gloo

TERMS: dict[str, dict[str, object]] = {
    "keyword": {"weight": 2.0},
    "nuclr": {"eta": 0.3, "freeze_steps": 1},
    **{name: {} for name in objectives.TERMS if name not in ("keyword", "nuclr")},
}
MIXED = ("none", "hard", "soft")
OPTIMIZERS = {"adamw": 0.01, "sgd": 0.1}  # learning rates
CASES = [(term, mixing, kind) for term in TERMS for mixing in MIXED for kind in OPTIMIZERS]
Case = tuple[str, str, str]
Result = dict[str, Tensor]


def settings(term: str, mixing: str, kind: str) -> RunConfig:
    config = tiny.settings({term: TERMS[term]})
    config.mixing.kind, config.mixing.probability = mixing, 0.0 if mixing == "none" else 0.7
    config.optimizer.kind, config.optimizer.lr = kind, OPTIMIZERS[kind]
    config.temperature.tau = 0.2
    config.temperature.bias = -2.0 if term == "siglip" else None
    return config


def all_cases(accumulation: int = 1) -> dict[Case, Result]:
    """Every case after five steps, as one rank of however many there are."""
    found = {}
    for case in CASES:
        config = settings(*case)
        config.train.accumulation = accumulation
        found[case] = tiny.train(tiny.parts_of(config))
    return found


def resnet(kind: str, synchronised: bool = True) -> Result:
    """A tower with batch statistics."""
    config = settings("clip", "none", kind)
    config.train.sync_batchnorm = synchronised
    return tiny.train(tiny.parts_of(config, "resnet"))


@cache
def alone() -> dict[Case, Result]:
    return all_cases()


@pytest.fixture(scope="module")
def split(gloo: Gloo) -> dict[str, dict[Case, Result]]:
    """By how the batch is split: rank 0's results."""
    return {
        "2 processes": gloo.run(2, all_cases)[0],
        "4 processes": gloo.run(4, all_cases)[0],
        "2 micro-batches": all_cases(2),
        "4 micro-batches": all_cases(4),
        "2 processes of 2 micro-batches": gloo.run(2, all_cases, 2)[0],
    }


def check(found: Result, expected: Result, moved_from: Result) -> None:
    """Equal up to the rounding of float32, and far from where training started."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")
        if name in moved_from and name != "temperature.nu":
            assert (value - moved_from[name]).abs().max() > 1e-4, f"{name} has hardly been trained"


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(
    "way", ["2 processes", "4 processes", "2 micro-batches", "4 micro-batches", "2 processes of 2 micro-batches"]
)
def test_a_split_batch_gives_the_weights_of_the_whole_one(
    term: str, way: str, split: dict[str, dict[Case, Result]]
) -> None:
    for case in CASES:
        if case[0] == term:
            start = tiny.train(tiny.parts_of(settings(*case)), steps=0)
            check(split[way][case], alone()[case], {k: v for k, v in start.items() if "." in k})


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_synchronised_batch_statistics_are_those_of_the_whole_batch(kind: str, gloo: Gloo) -> None:
    start = tiny.parts_of(settings("clip", "none", kind), "resnet").model.state_dict()
    weights = {k: v.clone() for k, v in start.items() if v.is_floating_point() and "0.bias" not in k}
    expected = resnet(kind)
    for world in (2, 4):
        for found in gloo.run(world, resnet, kind):
            check(found, expected, weights)
    with pytest.raises(AssertionError):  # the switch is what does it
        check(gloo.run(2, resnet, kind, False)[0], expected, {})
