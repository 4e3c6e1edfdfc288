"""A user error is printed once and ends all workers; a killed worker is replaced; signals reach the workers."""

import inspect
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.launcher import api

from cli.launcher import agent
from cli.launcher.spawn import run_workers
from clipx.config.schema import LaunchConfig
from clipx.errors import REQUEUE, Fault, UserError
from tests.helpers.ports import free_ports

# a worker without torch: records its start, then ends as its second argument says
# (`wait`: exit code 75 at SIGUSR1; `ignore`: SIGTERM does not end it, like a worker that is saving)
WORKER = """
import os, pathlib, signal, sys, time
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]
started = folder / f"{os.environ['RANK']}.{os.environ['WORLD_SIZE']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
if how == "wait":
    signal.signal(signal.SIGUSR1, lambda n, frame: sys.exit(75))
if how == "ignore":
    from clipx.utils.interrupts import PARENT, end_with_parent
    end_with_parent(int(os.environ[PARENT]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
started.touch()
if how in ("wait", "ignore"):
    time.sleep(60)
if how == "killed":  # rank 1 is killed once, while rank 0 sleeps
    started.rename(f"{started}.{os.getpid()}")
    killed = folder.parent / "killed"
    if not killed.exists() and os.environ["RANK"] == "1":
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if not killed.exists() or len(list(folder.iterdir())) < 3:
        time.sleep(60)
if how.isdigit():
    # wait for both workers: after the first exit the launcher ends the other
    group = f"*.{os.environ['WORLD_SIZE']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    while len(list(folder.glob(group))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)
    print("error of the worker", file=sys.stderr)
    sys.exit(int(how))
time.sleep(0.3)
"""


def test_torch_has_the_private_names_that_the_agent_uses_and_an_upper_bound() -> None:
    """If this fails, torch has changed: adapt cli/launcher/agent.py before the bound in pyproject.toml is raised."""
    spec = WorkerSpec("x", local_world_size=1, rdzv_handler=None, entrypoint=print)  # type: ignore[arg-type]
    agent = LocalElasticAgent(spec, DefaultLogsSpecs())
    for name in ("_start_workers", "_monitor_workers"):
        assert list(inspect.signature(getattr(LocalElasticAgent, name)).parameters) == ["self", "worker_group"]
    assert {"_pcontext", "_remaining_restarts"} <= vars(agent).keys()
    assert "pids" in vars(PContext)
    assert vars(api)["LocalElasticAgent"] is LocalElasticAgent
    assert "LocalElasticAgent" in api.launch_agent.__code__.co_names
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert [d for d in project["dependencies"] if d.startswith("torch>=") and ",<" in d]


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


@pytest.mark.parametrize(
    ("code", "raised", "report", "expected"),
    [
        (2, UserError, False, ["0.2.0", "1.2.0"]),  # a user error
        (REQUEUE, SystemExit, False, ["0.2.0", "1.2.0"]),
        (1, Fault, True, ["0.2.0", "0.2.1", "1.2.0", "1.2.1"]),
    ],
)
def test_only_a_fault_is_restarted_and_gets_the_launchers_report(
    code: int,
    raised: type[BaseException],
    report: bool,
    expected: list[str],
    worker: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(raised) as ended:
        run_workers(2, worker, [str(tmp_path / "starts"), str(code)], "eval", LaunchConfig(max_restarts=1))
    assert str(ended.value) == ("75" if code == REQUEUE else "eval: one of the processes failed; its message is above")
    printed = capfd.readouterr().err
    assert "error of the worker" in printed
    assert ("exitcode" in printed) == report and "Traceback" not in printed
    assert starts(tmp_path) == expected


@pytest.mark.long
def test_a_killed_worker_is_replaced_on_two_machines(worker: str, tmp_path: Path) -> None:
    """Two launchers on this machine, connected at a port."""
    (port,) = free_ports(1)
    code = "import sys; from cli.launcher.spawn import run_workers; from clipx.config.schema import LaunchConfig; "
    code += f"l = LaunchConfig(nodes=2, rendezvous='localhost:{port}', max_restarts=1); "
    code += "run_workers(1, 'tiny_worker', [sys.argv[1], 'killed'], 'runs/two/s0', l)"
    nodes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "starts")]) for _ in range(2)]
    assert [node.wait(timeout=120) for node in nodes] == [0, 0]
    assert [name[:4] for name in starts(tmp_path)] == ["0.2.", "0.2.", "1.2.", "1.2."]


@pytest.mark.long
def test_two_launches_at_once_use_different_ports_and_a_signal_reaches_the_workers(worker: str, tmp_path: Path) -> None:
    code = "import sys; from cli.launcher.spawn import run_workers; "
    code += "run_workers(2, 'tiny_worker', [sys.argv[1], 'wait'], 'x')"
    both = []
    for name in ("a", "b"):
        (tmp_path / name / "starts").mkdir(parents=True)
        both.append(subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name / "starts")]))
    deadline = time.monotonic() + 200
    while any(len(starts(tmp_path / name)) < 2 for name in ("a", "b")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in both:
        process.send_signal(signal.SIGUSR1)
    assert [process.wait(timeout=100) for process in both] == [REQUEUE, REQUEUE]


@pytest.mark.slow
@pytest.mark.parametrize(("saves", "presses"), [(False, 1), (True, 2)])
def test_ctrl_c_kills_workers_at_once_unless_they_save(saves: bool, presses: int, worker: str, tmp_path: Path) -> None:
    (tmp_path / "starts").mkdir(exist_ok=True)
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from cli.launcher.spawn import run_workers\n"
    code += f"try: run_workers(2, 'tiny_worker', [sys.argv[1], 'ignore'], 'x', saves={saves})\n"
    code += "except KeyboardInterrupt: sys.exit(130)"
    command = [sys.executable, "-c", code, str(tmp_path / "starts")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 200
    while len(starts(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    printed = process.communicate(timeout=30)[1]  # a worker that still lives would hold stderr open
    assert process.returncode == 130, printed
    assert printed.splitlines()[-1] == "clipx: stopped" and ("saving and ending" in printed) == saves


@pytest.mark.parametrize(
    ("rank", "error", "waits"),
    [
        ("0", UserError("tau"), False),
        ("0", Fault("disk"), False),
        ("1", UserError("tau"), True),
        ("0", OSError(), True),
    ],
)
def test_errors_wait_so_that_a_user_error_or_fault_of_rank_0_is_printed_first(
    rank: str, error: Exception, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("cli.launcher.agent.time.sleep", slept.append)

    def job() -> int:
        raise error

    with pytest.raises(type(error)):
        agent._rank0_fails_first(job)
    assert slept == [agent.GRACE] * waits
