"""Collectives of small values on the CPU; groups that cannot start."""

import re
import socket

import pytest
import torch
import torch.distributed as dist

from clipx import distributed
from clipx.errors import Fault, UserError
from tests.helpers.gloo import Gloo
from tests.helpers.ports import free_ports


def exchange_small_values_with_nccl() -> tuple[float, list[int]]:
    """Return the highest rank and the lengths of the gathered tensors, while torch reports the NCCL backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "get_backend", lambda: "nccl")
        gathered = distributed.gather_to_rank0(torch.arange(3))
        return distributed.max_over_ranks(float(dist.get_rank()))[0], [len(tensor) for tensor in gathered]


def test_small_values_stay_on_the_cpu_with_the_nccl_backend(gloo: Gloo) -> None:
    assert gloo.run(2, exchange_small_values_with_nccl) == [(1.0, [3, 3]), (1.0, [])]


def launched(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Set the variables of a launcher of two processes, with these values."""
    usual = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    for name, value in {**usual, **variables}.items():
        monkeypatch.setenv(name, value)


def group_error(kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught, distributed.group(torch.device("cpu")):
        pass
    return str(caught.value)


def test_a_group_that_cannot_start_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        launched(monkeypatch, MASTER_PORT=port)
        assert f"MASTER_PORT={port}): " in group_error(Fault)
    launched(monkeypatch, MASTER_ADDR="no.such.host.invalid")
    monkeypatch.setattr(distributed, "NAME_SECONDS", 0.1)
    assert "MASTER_ADDR=no.such.host.invalid" in group_error(Fault)
    launched(monkeypatch, RANK="first")
    assert "RANK=first" in group_error(UserError)
    monkeypatch.delenv("RANK")
    assert re.search("WORLD_SIZE=2 RANK=None .*environment variable RANK expected", group_error(UserError))


def test_a_group_on_gpus_also_has_a_backend_for_cpu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: list[str] = []
    launched(monkeypatch)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: backends.append(backend))
    monkeypatch.setattr(dist, "barrier", lambda: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    for device in ("cuda", "cpu"):
        with distributed.group(torch.device(device)):
            pass
    assert backends == ["cpu:gloo,cuda:nccl", "gloo"]
