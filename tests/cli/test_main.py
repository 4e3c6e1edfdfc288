"""Exit codes and error messages of the command, Ctrl-C while it starts, and folders with the names of our packages."""

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cli import exit_codes
from clipx import entry_point
from clipx.utils import plugins
from tests.helpers.commands import clipx, clipx_here, tiny


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "claims"]])
def test_a_closed_stdout_is_no_error(arguments: list[str]) -> None:
    """As in `clipx ... | head`."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (141, 1)  # 141: 128 + SIGPIPE; rich, which prints tables, exits with 1


def test_a_broken_pipe_to_a_worker_is_not_hidden() -> None:
    with pytest.raises(BrokenPipeError):
        exit_codes.exit_code_of(MagicMock(side_effect=BrokenPipeError(32, "to a worker")))


def test_a_killed_process_of_a_pool_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.exit_code_of(MagicMock(side_effect=BrokenProcessPool("terminated abruptly"))) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_error_in_a_plugin_is_shown_from_its_code_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own_error.py"
    file.write_text("TOWERS = {}\n\ndef outer(call):\n    call(inner)\n\ndef inner():\n    return 1 / 0\n")
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins(["own_error"])
    outer = sys.modules["own_error"].outer
    assert exit_codes.exit_code_of(lambda: outer(lambda inner: inner())) == 1
    *shown, error, last = capsys.readouterr().err.splitlines()
    files = [line.split('"')[1] for line in shown if line.startswith("  File ")]
    assert files == [str(file), __file__, str(file)]  # what the plug-in calls may be at fault
    assert error == "ZeroDivisionError: division by zero" and f"in your code, {file}:4" in last
    with pytest.raises(ZeroDivisionError):
        exit_codes.exit_code_of(lambda: print(1 / 0))


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EIO, 1), (errno.ESTALE, 1), (errno.ETIMEDOUT, 1), (errno.ENOTCONN, 1), (errno.EREMOTEIO, 1),
     (errno.ENOENT, 2), (errno.EACCES, 2), (errno.ENOSPC, 2)],
)  # fmt: skip
def test_a_failed_drive_is_a_fault_and_a_missing_file_a_user_error(
    number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = os.strerror(number)

    def read(*name: str) -> None:
        raise OSError(number, reason, *name)

    assert exit_codes.exit_code_of(lambda: read("data/00000.tar")) == code
    assert capsys.readouterr().err == f"clipx: cannot use data/00000.tar: {reason}\n"
    if code == 1:  # read() of an open file knows no name
        assert exit_codes.exit_code_of(read) == code
        assert capsys.readouterr().err == f"clipx: {reason}\n"


def test_a_path_that_begins_with_a_tilde_is_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/h")
    given = ["runs=~/r", "data.root=~", "model.init=~/a b/s0", "data.evaluation=[~/x,csv:~/y]"]
    shown = clipx_here("train", "recipe=demo", *given, "--cfg", "job", cwd=tmp_path).stdout
    for line in ("runs: /h/r", "root: /h", "init: /h/a b/s0", "- /h/x", "- csv:~/y"):
        assert line in shown
    refused = clipx_here("report", "claims", "~/runs", cwd=tmp_path, code=2).stderr
    assert "/h/runs" in refused
    assert [*tmp_path.iterdir()] == []


def test_a_package_of_the_user_with_the_name_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "__init__.py").write_text("print('mine')")
    command = [sys.executable, "-c", "from clipx.entry_point import main; main()", "--version"]
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"clipx: Python finds the package evaluation in {tmp_path / 'evaluation'}, not in ")


def test_the_entry_point_runs_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["clipx", "--version"])
    entry_point.main()
    assert capsys.readouterr().out.startswith("clipx ")


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "eval"])
def test_ctrl_c_at_start_up_prints_one_line(command: str, shards: Path, tmp_path: Path) -> None:
    given = {
        "train": ["train", *tiny(shards, samples=1600), "name=a"],
        "eval": ["eval", "model=open_clip:mini-48/random", f"datasets=[captions:{shards}/train]"],
    }
    start = [sys.executable, "-m", "cli.main", *given[command]]
    stopped = 0
    for seconds, presses in ((1.0, 1), (2.0, 5), (4.0, 1)):
        process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
        time.sleep(seconds)
        for _ in range(presses):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        lines = [line for line in process.communicate()[1].splitlines() if line]
        if process.returncode in (130, -signal.SIGINT):  # otherwise it ended before the signal, or training saved (75)
            assert lines[-1] == "clipx: stopped" and not [line for line in lines if "Traceback" in line]
            stopped += 1
    assert stopped, "no process was still starting when the signal came"


@pytest.mark.long
def test_folders_of_the_user_with_our_names_do_not_replace_our_code(shards: Path, tmp_path: Path) -> None:
    for name in ("cli", "evaluation", "clipx"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the file of the user')\n")
    command = [sys.executable, "-P", "-m", "cli.main"]  # does not search the working directory
    given = ["train", *tiny(shards), "train.processes=2", "train.device=cpu", "name=two"]
    done = subprocess.run([*command, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert clipx("ls", "terms", cwd=tmp_path, code=None).returncode != 0, (
        "without -P, the folders of the user must be imported, or this test checks nothing"
    )
