"""What ranks tell each other beside embeddings: little, once a step, and never through a GPU."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from clipx import distributed
from clipx.training.step import train_step
from clipx.types import Progress
from tests.helpers import tiny
from tests.helpers.gloo import Gloo


def gathers_of_a_step() -> list[int]:
    """Numbers of elements that a rank gives to each all_gather of a training step."""
    parts = tiny.parts_of(tiny.settings({"clip": {}}))
    given: list[int] = []
    plain = dist.all_gather

    def counted(found: list[torch.Tensor], local: torch.Tensor) -> Any:
        given.append(local.numel())
        return plain(found, local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather", counted)
        train_step(parts, next(tiny.batches(parts.config, 1)), Progress(0, 1, 0, 1))
    return given


def test_ranks_tell_their_sizes_once_a_step(gloo: Gloo) -> None:
    rows, width = 4, tiny.E
    expected = [1, rows, rows, rows * width, rows * width]  # then ids, labels, images, texts
    assert gloo.run(2, gathers_of_a_step) == [expected, expected]


def with_gpus() -> tuple[float, list[int]]:
    """Control data of a rank whose tensors would live on a GPU, if there were one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_backend", lambda: "nccl")
        parts = distributed.gather_to_rank0(torch.arange(3))
        return distributed.all_reduce_max(float(dist.get_rank())), [len(part) for part in parts]


def test_control_data_stay_on_the_cpu(gloo: Gloo) -> None:
    assert gloo.run(2, with_gpus) == [(1.0, [3, 3]), (1.0, [])]


def test_a_group_on_gpus_has_a_way_for_cpu_tensors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: list[str] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: backends.append(backend))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    for device in ("cuda", "cpu"):
        with distributed.group(torch.device(device)):
            pass
    assert backends == ["cpu:gloo,cuda:nccl", "gloo"]


def uneven() -> list[float]:
    """A gather of unequal parts, with and without knowing how many rows each rank has."""
    rank = dist.get_rank()
    local = torch.full((1 + rank, 1), float(rank))
    rows = distributed.all_gather_sizes(len(local))
    assert rows == [1, 2]
    assert torch.equal(distributed.gather(local, rows), distributed.gather(local))
    return [float(x) for x in distributed.gather(local, rows).flatten()]


def test_ranks_may_have_different_numbers_of_rows(gloo: Gloo) -> None:
    assert gloo.run(2, uneven) == [[0.0, 1.0, 1.0]] * 2
