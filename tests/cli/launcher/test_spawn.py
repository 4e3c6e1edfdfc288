"""No worker starts if GPUs or the rendezvous are missing; too little GPU memory is a user error."""

from contextlib import nullcontext

import pytest
import torch

from cli.launcher.spawn import check_gpus, explain_out_of_memory, run_workers
from clipx.config.schema import LaunchConfig
from clipx.errors import UserError


@pytest.mark.parametrize("rendezvous", [None, "node0", "node0:", "node0:http"])
def test_several_machines_need_a_rendezvous(rendezvous: str | None) -> None:
    with pytest.raises(UserError, match=f"launch.rendezvous={rendezvous} must be HOST:PORT, one of the 2 machines"):
        run_workers(1, "x", [], "x", LaunchConfig(nodes=2, rendezvous=rendezvous))


@pytest.mark.parametrize(("device", "processes", "refused"), [("auto", 3, True), ("auto", 2, False), ("cpu", 3, False)])
def test_more_processes_than_gpus_are_refused(
    device: str, processes: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    message = r"train.processes=3, but this machine has 2 GPUs; allowed: 1..2, or set the device to cpu"
    with pytest.raises(UserError, match=message) if refused else nullcontext():
        check_gpus("train.processes", processes, device)


def test_an_out_of_memory_error_becomes_a_user_error_that_names_smaller_settings() -> None:
    message = "batch_size=8 does not fit into the memory of the GPU; try bf16"
    with pytest.raises(UserError, match=message), explain_out_of_memory("batch_size=8", "bf16"):
        raise torch.OutOfMemoryError("out of memory")
