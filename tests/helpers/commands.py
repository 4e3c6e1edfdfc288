"""Run `clipx` commands in tests."""

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main


def clipx(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def clipx_here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in this process. This is faster, because torch is already imported."""
    out, err, code, handler = io.StringIO(), io.StringIO(), 0, signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr("sys.argv", ["clipx", *arguments])
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, handler)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def tiny(root: Path, samples: int = 16) -> list[str]:
    """Return the overrides of a run of samples / 8 steps on the shards in root/train."""
    data = ["data=shards", f"data.root={root}", "data.split=train", "data.workers=0"]
    return ["recipe=demo", *data, "train.batch_size=8", f"train.samples={samples}", "schedule.warmup_steps=1"]
