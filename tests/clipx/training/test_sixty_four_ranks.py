"""Ranks 0, 1 and 63 of 64, simulated in this process for arms of the papers' recipes, with small towers.

An arm is left out if its ranks do the same as those of a tested arm, e.g. if only tau or a weight differs.

The papers' towers do not fit into the memory of a test. The small ones are convolutions with batch norms,
transformers, and a bag of words.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cli.settings.compose import compose_run
from clipx import distributed
from clipx.config.schema import RunConfig
from clipx.models.clip import build_model
from clipx.run.saving import CheckpointManager
from clipx.training import setup
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Part, Progress

Call = tuple[str, tuple[tuple[int, ...], ...], str]  # name, shapes of the tensors, set of their dtypes


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the collectives of this process in order, including those of DDP."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function.namespace == "c10d":
            # record only the inputs of a gather: only rank 0 has outputs, and the records of all ranks must be equal
            tensors = [t for t in tree_leaves(args[1] if "gather_" in str(function) else args) if isinstance(t, Tensor)]
            self.add(str(function), tensors)
        return function(*args, **kwargs or {})

    def add(self, name: str, tensors: list[Tensor]) -> None:
        self.calls.append((name, tuple(tuple(t.shape) for t in tensors), str({t.dtype for t in tensors})))


@contextmanager
def fake_rank(world: int, rank: int, sample_id: Tensor) -> Iterator[Recorder]:
    """Make this process rank `rank` of a fake group of `world` ranks inside the `with` block.

    Args:
        sample_id: int64 [B], ids of the global batch. The pairs of the ranks must differ only in their ids.
    """
    B = len(sample_id)
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        with pytest.MonkeyPatch.context() as patch, Recorder() as recorder:
            _complete(patch, world, rank, B, sample_id)
            patch.setattr(setup, "DistributedDataParallel", partial(_data_parallel, recorder))
            yield recorder
    finally:
        dist.destroy_process_group()


def _complete(patch: pytest.MonkeyPatch, world: int, rank: int, B: int, sample_id: Tensor) -> None:
    """Patch the collectives to return what a group of ranks with the same pairs would return."""
    all_reduce, all_gather, reduce_scatter = dist.all_reduce, dist.all_gather, dist.reduce_scatter
    plain = distributed._OwnPart.reduce_scatter_
    size, parts = B // world, torch.split(sample_id, B // world)
    totals: list[Tensor] = []  # that follow the rows in the next reduce-scatter

    def of_ranks(values: Tensor) -> Tensor:
        over_batch = values.dim() > 0 and values.shape[-1] == B
        return torch.stack([values.roll((k - rank) * size, -1) if over_batch else values for k in range(world)])

    def complete_all_reduce(values: Tensor, op: Any = dist.ReduceOp.SUM, group: None = None) -> None:
        all_reduce(values, op)
        values.copy_(of_ranks(values).amax(0) if op == dist.ReduceOp.MAX else of_ranks(values).sum(0))

    def complete_all_gather(outputs: list[Tensor], values: Tensor) -> None:
        all_gather(outputs, values)
        has_ids = values.dim() == 2 and len(values) > 1 and torch.equal(values[1], parts[rank])
        for output, found, part in zip(outputs, of_ranks(values), parts, strict=True):
            output.copy_(found)
            if has_ids:
                output[1].copy_(part)

    def complete_reduce_scatter(output: Tensor, shards: list[Tensor]) -> None:
        reduce_scatter(output, shards)
        output.copy_(torch.stack(shards).sum(0))
        if totals:
            sums = torch.cat([of_ranks(total).sum(0).flatten() for total in totals])
            output[-len(sums) :] = sums

    def with_totals(part: Part, values: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        totals[:] = given
        return plain(part, values, *given)  # type: ignore[arg-type]

    patch.setattr(distributed._OwnPart, "reduce_scatter_", with_totals)
    for function in (complete_all_reduce, complete_all_gather, complete_reduce_scatter):
        patch.setattr(dist, function.__name__.removeprefix("complete_"), function)


def _data_parallel(recorder: Recorder, model: nn.Module, gradient_as_bucket_view: bool) -> DistributedDataParallel:
    """Wrap in DDP with a hook that keeps this rank's gradient. All ranks have the same gradient, so it is the average.

    The hook is needed because DDP's own all-reduce does not accept the results of the fake group.
    """

    def keep(state: object, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        recorder.add("bucket", [bucket.buffer()])
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future

    replica = DistributedDataParallel(model, gradient_as_bucket_view=gradient_as_bucket_view)
    hook: Callable[..., Any] = keep
    replica.register_comm_hook(None, hook)
    return replica


WORLD, RANKS = 64, (0, 1, 63)
SIZE = 2  # pairs of each rank
SAMPLES = 20_011  # no multiple of 64: unequal shards of the table
RECIPES = {
    "clip_reg_cc3m": ["clip", "cyclip_reg", "reg_only", "clip_neg", "clip_reg_tau_min_07"],
    "margin_mscoco": ["untrained", "tau_01_reg"],
    "counting_datacomp": ["own_log1p_100", "same_label_ratio_1000"],
    "gap_mscoco": ["base", "ts_s3", "ts_a1", "softplus", "scale_2", "slrt", "hs_1e-3", "hs_rows", "ss_1e-2", "no_norm"],
    "gap_init_mscoco": [""],
    "nuclr_cc3m": ["siglip", "dcl", "sogclr", "gcl", "nuclr"],
    "nuclr_cc12m": ["nuclr"],
    "wpse_cc3m": ["gaussian", "imq", "positive_weights", "linear", "nonlinear"],
    "wpse_cc12m": ["imq"],
}
# `make test` has the last arm of each recipe but those on CC12M, whose terms are those on CC3M; `make test-long` all
ALL = [
    pytest.param(name, arm, marks=() if arm == arms[-1] and "cc12m" not in name else pytest.mark.long)
    for name, arms in RECIPES.items()
    for arm in arms
]
SMALL = {"ViT": "small:vit", "timm": "small:conv", "RN50": "small:conv"}
SMALL_TEXT = {"ViT": "small:transformer", "hf": "small:bag", "RN50": "small:transformer"}
# Rank p // SIZE has the pair at position p of the batch. Rank i % 64 stores the columns of sample i. With these ids,
# they are always two different ranks.
POSITIONS = torch.arange(SIZE * WORLD)
SAMPLE_ID = (POSITIONS // SIZE + 5) % WORLD + WORLD * (POSITIONS % SIZE)


@cache
def settings(name: str, arm: str) -> RunConfig:
    """Return the settings of an arm with small towers, in float32, and two pairs per rank."""
    config = compose_run([f"recipe={name}", *([f"arm={arm}"] if arm else []), "data.root=x"])
    image, text = config.model.image, config.model.text
    image.name = next(small for kind, small in SMALL.items() if kind in image.name or image.name.startswith(kind))
    text.name = next(small for kind, small in SMALL_TEXT.items() if kind in text.name)
    image.pretrained = text.pretrained = image.size = text.context_length = None
    config.train.batch_size, config.train.precision, config.train.device = SIZE * WORLD, "fp32", "cpu"
    config.train.grad_checkpointing = False  # not the subject here
    return config


def pairs(config: RunConfig, run: TrainComponents) -> Batch:
    """Return this rank's pairs: the same images and texts on every rank, with this rank's sample ids."""
    inputs, generator = run.state.model.inputs, torch.Generator().manual_seed(7)
    rank = distributed.rank()
    return Batch(
        sample_id=SAMPLE_ID[rank * SIZE : (rank + 1) * SIZE],
        image=torch.randn(SIZE, 3, inputs.image_size, inputs.image_size, generator=generator),
        text=torch.randint(1, 50, (SIZE, inputs.context_length), generator=generator),
        label=torch.arange(SIZE) + 1,
    )


def built(config: RunConfig) -> TrainComponents:
    return build_components(config, torch.device("cpu"), SAMPLES, "generated", lambda c: build_model(c, False))


def stepped(config: RunConfig, rank: int, run: Path) -> tuple[list[Call], dict[str, float], list[str]]:
    """Build, do a step and save as one of 64 ranks; return collectives, numbers of the step and written files."""
    with fake_rank(WORLD, rank, SAMPLE_ID) as recorder:
        components = built(config)
        own = len(range(rank, SAMPLES, WORLD))
        assert components.state.table.values.shape == (len(components.state.objective.columns), own)
        before = components.state.table.values.clone()
        numbers = train_step(components, pairs(config, components), Progress(0, 1, 0, 1))
        assert not components.bad_steps
        changed = (components.state.table.values != before).any(0).nonzero().flatten().tolist()
        # of the samples whose columns this rank stores, the batch has the first two: `rank` and `rank` + 64
        assert changed == ([0, 1] if components.state.objective.columns else [])
        components.state.step = 1
        CheckpointManager(config, run).save(components.state, {"loss": 0.0}, finished=True)
        files = [str(path.relative_to(run)) for path in sorted(run.rglob("*.*"))]
    return recorder.calls, {key: float(numbers[key]) for key in ("loss", "scale", "grad_norm")}, files


def alone(config: RunConfig) -> dict[str, float]:
    """Do the same step in a single process, with the pairs of all ranks."""
    components = built(config)
    own = pairs(config, components)
    repeated = [t.repeat(WORLD, *[1] * (t.dim() - 1)) for t in (own.image, own.text, own.label)]
    numbers = train_step(components, Batch(SAMPLE_ID, *repeated), Progress(0, 1, 0, 1))
    return {key: float(numbers[key]) for key in ("loss", "scale", "grad_norm")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arm"), ALL)
def test_sixty_four_ranks_call_the_same_collectives_and_find_the_loss_of_one_process(
    name: str, arm: str, tmp_path: Path
) -> None:
    config = settings(name, arm)
    found = {rank: stepped(config, rank, tmp_path / str(rank)) for rank in RANKS}
    first, _, files = found[0]
    assert len(first) >= 6 and any("bucket" in call[0] for call in first)
    assert len([file for file in files if "step_00000001" in file]) >= 3
    for rank in RANKS[1:]:
        assert found[rank][0] == first, f"rank {rank} calls other collectives than rank 0"
        assert found[rank][2] == [], f"rank {rank} writes a checkpoint"
    if config.mixing.kind == "none":  # `fake_rank` needs equal embeddings on all ranks
        expected = alone(config)
        for rank in RANKS:
            assert found[rank][1] == pytest.approx(expected, rel=2e-4, abs=1e-6), f"rank {rank}"


def test_a_collective_that_one_rank_leaves_out_is_found() -> None:
    calls = {}
    for rank in RANKS:
        with fake_rank(WORLD, rank, SAMPLE_ID) as recorder:
            if rank != 63:
                distributed.all_reduce_sum(torch.zeros(3))
            distributed.barrier()
        calls[rank] = recorder.calls
    assert calls[0] == calls[1] != calls[63]
    assert [call[0] for call in calls[63]] == ["c10d.barrier.default"]
