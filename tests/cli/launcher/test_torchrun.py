"""Exit codes, restarts and signals of worker processes: a user error is printed once and ends all of them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

import cli.eval.one
import cli.train
from cli.launcher import torchrun
from cli.launcher import worker as worker_process
from cli.launcher.torchrun import run_workers
from cli.launcher.worker import HANDLED, PARENT, WORKERS
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import LaunchConfig
from clipx.errors import REQUEUE, Fault, UserError
from tests.helpers.folder import settings, write_shards
from tests.helpers.ports import free_ports

# A worker without torch: records its start, then ends as its second argument says. `wait`: exit code 75 at SIGUSR1 or
# SIGHUP; `ignore`: SIGTERM does not end it, like a worker that is saving; `save`: rank 0 saves for 33 s after SIGTERM;
# `refused0`, `refused1`: this machine has a user error, for which the other one waits.
WORKER = """
import os, pathlib, signal, sys, time

def work(arguments):
    folder, how = pathlib.Path(arguments[0]), arguments[1]
    started = folder / f"{os.environ['RANK']}.{os.environ['WORLD_SIZE']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    received = []
    if how == "wait":
        for number in (signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, lambda number, frame: received.append(number))
    if how == "save":
        signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    if how == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started.touch()
    if how in ("wait", "ignore", "save"):
        end = time.monotonic() + 60
        while not received and time.monotonic() < end:
            time.sleep(0.05)
        if how == "save" and os.environ["RANK"] == "0":
            end = time.monotonic() + 33
            while time.monotonic() < end:
                time.sleep(0.1)
            (folder.parent / "saved").touch()
        return 75
    if how == "killed":  # rank 1 is killed once, while rank 0 sleeps
        started.rename(f"{started}.{os.getpid()}")
        killed = folder.parent / "killed"
        if not killed.exists() and os.environ["RANK"] == "1":
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not killed.exists() or len(list(folder.iterdir())) < 3:
            time.sleep(60)
    if how.startswith("refused"):
        if how.endswith(os.environ["MACHINE"]):
            return 2
        time.sleep(90)
    if how[0].isdigit():  # the exit codes of the first start, of the second, ...
        code = how.split(",")[int(os.environ["TORCHELASTIC_RESTART_COUNT"])]
        # wait for both workers: after the first exit torchrun ends the other
        group = f"*.{os.environ['WORLD_SIZE']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
        while len(list(folder.glob(group))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.02)
        print("error of the worker", file=sys.stderr)
        return int(code)
    time.sleep(0.3)
"""


def test_a_process_ends_if_its_parent_ended_before_it_started() -> None:
    code = "import os, time; from clipx.utils.interrupts import end_with_parent; "
    code += "end_with_parent(os.getppid() + 1); time.sleep(600)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 1


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tiny_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "starts").mkdir()
    return "tiny_worker"


def starts(folder: Path) -> list[str]:
    """Return `rank.world.restart` of all starts."""
    return sorted(path.name for path in (folder / "starts").iterdir())


def test_a_fault_is_restarted_but_a_user_error_ends_the_command_without_torchruns_report(
    worker: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first start has a fault, the second a user error; a third start is allowed."""
    with pytest.raises(UserError, match="eval: one of the processes failed"):
        run_workers(2, worker, [str(tmp_path / "starts"), "1,2"], "eval", LaunchConfig(max_restarts=2))
    assert starts(tmp_path) == [f"{rank}.2.{restart}" for rank in (0, 1) for restart in (0, 1)]
    printed = capfd.readouterr().err
    assert "error of the worker" in printed and "exitcode" not in printed and "Traceback" not in printed


def test_a_fault_that_stays_gets_torchruns_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, because torch is imported. With the code of a user error in their folder, there is no report."""
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file="none")
    monkeypatch.setattr("torch.distributed.run.main", MagicMock(side_effect=ChildFailedError("w", {0: failure})))
    monkeypatch.setattr(torchrun, "end_with_parent", lambda parent: None)
    monkeypatch.setattr("logging.disable", lambda level: None)
    monkeypatch.setattr("sys.argv", ["torchrun", "--standalone"])
    for name in (PARENT, torchrun.CPP_LEVEL, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv(WORKERS, str(tmp_path))
    assert torchrun.main() == 1
    assert "exitcode" in capsys.readouterr().err
    (tmp_path / "exit-2").touch()
    assert torchrun.main() == 1
    assert capsys.readouterr().err == ""


def test_an_early_stop_is_a_normal_end_for_torchrun_but_not_for_the_command(
    worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So torchrun, whose place the test takes here, neither restarts nor kills a worker."""
    processes = list["subprocess.Popen[bytes]"]()

    def start(command: list[str], workers: Path) -> "subprocess.Popen[bytes]":
        of_worker = [sys.executable, *command[command.index("cli.launcher.worker") - 1 :]]
        given = {PARENT: str(os.getpid()), WORKERS: str(workers), HANDLED: "", "RANK": "0", "WORLD_SIZE": "1"}
        own = {**os.environ, **given, "TORCHELASTIC_RESTART_COUNT": "0"}
        processes.append(subprocess.Popen(of_worker, env=own))
        return processes[0]

    monkeypatch.setattr(torchrun, "_start", start)
    for code, of_worker, raised in ((REQUEUE, 0, SystemExit), (1, 1, Fault)):
        processes.clear()
        with pytest.raises(raised) as ended:
            run_workers(1, worker, [str(tmp_path / "starts"), str(code)], "x")
        assert processes[0].returncode == of_worker
        assert raised is Fault or str(ended.value) == str(REQUEUE)


@pytest.mark.guards_data
@pytest.mark.long
def test_a_killed_worker_is_replaced_on_two_machines(worker: str, tmp_path: Path) -> None:
    with two_machines("killed", tmp_path) as nodes:
        assert [node.wait(timeout=120) for node in nodes] == [0, 0]
    assert [name[:4] for name in starts(tmp_path)] == ["0.2.", "0.2.", "1.2.", "1.2."]


@pytest.mark.long
@pytest.mark.parametrize("failing", [0, 1], ids=["the machine of the rendezvous", "the other machine"])
def test_a_user_error_on_one_machine_ends_the_other_which_says_that_it_was_elsewhere(
    failing: int, worker: str, tmp_path: Path
) -> None:
    with two_machines(f"refused{failing}", tmp_path) as nodes:
        assert [node.wait(timeout=120) for node in nodes] == ([2, 1] if failing == 0 else [1, 2])
    here, elsewhere = ((tmp_path / f"stderr{k}").read_text().splitlines() for k in (failing, 1 - failing))
    assert "message is above" in here[-1] and "another machine" in elsewhere[0]
    assert len(elsewhere) == 1


@contextmanager
def two_machines(how: str, folder: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Start two launchers on this machine, each with one worker. The first one opens the port that connects them.

    Their error output goes to the files stderr0 and stderr1. What still runs in the end is killed.
    """
    (port,) = free_ports(1)
    code = "import sys; from cli.exit_codes import exit_code_of; from cli.launcher.torchrun import run_workers; "
    code += "from clipx.config.schema import LaunchConfig; "
    code += f"l = LaunchConfig(nodes=2, rendezvous='localhost:{port}', max_restarts=1); "
    code += f"sys.exit(exit_code_of(lambda: run_workers(1, 'tiny_worker', [sys.argv[1], {how!r}], 'runs/two/s0', l)))"
    command = [sys.executable, "-c", code, str(folder / "starts")]
    nodes = list["subprocess.Popen[bytes]"]()
    try:
        for number in ("0", "1"):
            with (folder / f"stderr{number}").open("w") as stderr:
                nodes.append(subprocess.Popen(command, stderr=stderr, env={**os.environ, "MACHINE": number}))
            while nodes[0].poll() is None:
                with suppress(ConnectionRefusedError), socket.create_connection(("localhost", port)):
                    break
                time.sleep(0.1)
        yield nodes
    finally:
        for node in nodes:
            node.kill()  # its workers end with it
            node.wait()


def begin(call: str, folder: Path, workers: int = 2) -> "subprocess.Popen[str]":
    """Start `run_workers(call)` in another process and wait until its workers run."""
    (folder / "starts").mkdir(parents=True, exist_ok=True)
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from cli.launcher.torchrun import run_workers\n"
    code += f"try: run_workers({call})\nexcept KeyboardInterrupt: sys.exit(130)"
    command = [sys.executable, "-c", code, str(folder / "starts")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 200
    while len(starts(folder)) < workers and time.monotonic() < deadline:
        time.sleep(0.1)
    return process


@pytest.mark.guards_data
@pytest.mark.long
def test_two_launches_at_once_use_different_ports_and_a_signal_reaches_the_workers(worker: str, tmp_path: Path) -> None:
    both = [begin("2, 'tiny_worker', [sys.argv[1], 'wait'], 'x'", tmp_path / name) for name in ("a", "b")]
    for process, number in zip(both, (signal.SIGUSR1, signal.SIGHUP), strict=True):
        process.send_signal(number)
    assert [process.wait(timeout=100) for process in both] == [REQUEUE, REQUEUE]
    assert [process.communicate()[1] for process in both] == ["", ""]


@pytest.mark.guards_data
@pytest.mark.long
@pytest.mark.parametrize("whole_group", [False, True], ids=["the command", "all its processes, as SLURM does"])
def test_a_save_that_takes_longer_than_torchruns_30_seconds_survives_sigterm(
    whole_group: bool, worker: str, tmp_path: Path
) -> None:
    process = begin("2, 'tiny_worker', [sys.argv[1], 'save'], 'x'", tmp_path)
    if whole_group:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    assert process.wait(timeout=100) == REQUEUE
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_the_second_ctrl_c_kills_workers_that_save(worker: str, tmp_path: Path) -> None:
    process = begin("2, 'tiny_worker', [sys.argv[1], 'ignore'], 'x'", tmp_path)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        time.sleep(0.5)
    printed = process.communicate(timeout=30)[1]  # a worker that still lives would hold stderr open
    assert process.returncode == 130, printed
    assert printed.splitlines()[-1] == "clipx: stopped" and "saving and ending" in printed


def test_the_first_ctrl_c_kills_workers_that_save_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    started = []

    def start(command: list[str], workers: Path) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(["sleep", "60"])
        started.append(process)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # blocked until `run_workers` handles it
        return process

    monkeypatch.setattr(torchrun, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        run_workers(1, "tiny_worker", [], "x", saves=False)
    assert capfd.readouterr().err == "\nclipx: stopped\n"
    assert [process.wait() for process in started] == [-signal.SIGKILL]


@pytest.mark.parametrize(
    ("rank", "error", "waits"),
    [("0", UserError("t"), False), ("0", Fault("disk"), False), ("1", UserError("t"), True), ("0", OSError(), True)],
)
def test_errors_wait_so_that_a_user_error_or_fault_of_rank_0_is_printed_first(
    rank: str, error: Exception, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("cli.launcher.worker.time.sleep", slept.append)
    with pytest.raises(type(error)):
        worker_process._rank0_fails_first(MagicMock(side_effect=error))
    assert slept == [worker_process.GRACE] * waits


def test_the_process_that_starts_the_workers_takes_no_memory_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.cuda.set_device makes a context, half a gigabyte; GPUs in exclusive mode then refuse the worker."""
    config, workers = settings(tmp_path), MagicMock()
    evaluation = EvalConfig(model="open_clip:RN50/openai", datasets=["wds:x"], processes=2)
    config.train.processes, config.train.device, config.data.evaluation = 2, "auto", []
    write_shards(tmp_path / "train", samples=32)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("a context is made"))
    for module in (cli.train, cli.eval.one):
        monkeypatch.setattr(module, "run_workers", workers)
    cli.train.train(config)
    monkeypatch.setattr("evaluation.runner.check", MagicMock())
    cli.eval.one.evaluate(evaluation)
    assert [call.args[1] for call in workers.call_args_list] == ["cli.train", "cli.eval.one"]


def test_other_ranks_wait_for_a_day_while_rank_0_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    group = MagicMock()
    monkeypatch.setattr("clipx.distributed.group", group)
    monkeypatch.setattr(cli.eval.one, "_evaluate", lambda *arguments: [])
    cli.eval.one.work([json.dumps(asdict(EvalConfig(device="cpu")))])
    assert group.call_args.kwargs == {"timeout": 86400.0}
