"""Sharded weights (train.parallel=fsdp) train the same model as one process and write the same checkpoints."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from clipx.config.combinations import check_combinations
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.models.parallel import blocks
from clipx.run.checkpoint import AVERAGED, TRAINING, WEIGHTS, TrainState
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from tests.clipx.training.test_step_distributed import OPTIMIZERS, Result, assert_same, settings
from tests.helpers import tiny
from tests.helpers.folder import settings as mini_settings
from tests.helpers.gloo import Gloo

TERMS = ("clip", "siglip", "nuclr")  # without bias and table; with a bias; with a table and a learned temperature
FIRST, LAST = 3, 6  # steps before the checkpoint and in total


def run_of(term: str, kind: str, accumulation: int = 1, parallel: str = "fsdp", batch_size: int = 8) -> TrainComponents:
    config = settings(term, "soft", kind)
    config.train.accumulation, config.train.parallel = accumulation, parallel
    config.train.grad_clip = 0.05  # below the norm of the gradient
    config.optimizer.lr = {"adamw": 0.01, "sgd": 1.0}[kind]
    run = tiny.components(config, "blocks")
    run.config.train.batch_size = batch_size  # after the check of the batch size, as if samples were bad
    return run


def trained(*arguments: object) -> Result:
    return tiny.train(run_of(*arguments))  # type: ignore[arg-type]


@cache
def alone(term: str, kind: str, batch_size: int = 8) -> Result:
    return trained(term, kind, 1, "ddp", batch_size)


def start(term: str, kind: str) -> Result:
    return dict(run_of(term, kind).state.model.state_dict())


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(("world", "accumulation"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_shards_end_in_the_weights_and_rows_of_one_process(
    world: int, accumulation: int, term: str, kind: str, gloo: Gloo
) -> None:
    found = gloo.run(world, trained, term, kind, accumulation)[0]
    assert_same(found, alone(term, kind), start(term, kind))


@pytest.mark.parametrize("term", TERMS)
def test_shards_and_unequal_parts_end_in_the_weights_and_rows_of_one_process(term: str, gloo: Gloo) -> None:
    """Two ranks have 3 and 4 of 7 pairs, four ranks 1, 2, 2 and 2."""
    for world, accumulation in ((2, 2), (4, 1)):
        found = gloo.run(world, trained, term, "sgd", accumulation, "fsdp", 7)[0]
        assert_same(found, alone(term, "sgd", 7), start(term, "sgd"))
