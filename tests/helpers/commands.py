"""Run `clipx` commands in tests."""

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import main
from tests.helpers.folder import write_shards

Done = subprocess.CompletedProcess[str]
# for `write_recipe`: two arms, two seeds, two steps a run
RECIPE = """
data: {{name: test, source: shards, root: "{root}", workers: 0, evaluation: ["captions:train"]}}
model: {{image: {{name: "open_clip:mini-48"}}, text: {{name: "small:bag"}}}}
train: {{samples: 16, batch_size: 8}}
schedule: {{warmup_steps: 1}}
seeds: 2
evaluations: [["pools=[4]", "workers=1"]]
arms:
  plain: []
  hot: [temperature.tau=0.5]
"""


def clipx(*arguments: str, cwd: Path, code: int | None = 0) -> Done:
    """Run a command in a separate process; it must end with the exit code `code`, if given."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    return _checked(subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False), code)


def clipx_here(*arguments: str, cwd: Path, code: int | None = 0) -> Done:
    """Run a command as `clipx` does, but in this process. This is faster, because torch is already imported."""
    out, err, found, handler = io.StringIO(), io.StringIO(), 0, signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr("sys.argv", ["clipx", *arguments])
        try:
            main()
        except SystemExit as end:
            found = int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, handler)
    return _checked(subprocess.CompletedProcess(arguments, found, out.getvalue(), err.getvalue()), code)


def _checked(done: Done, code: int | None) -> Done:
    assert code in (None, done.returncode), f"exit code {done.returncode}\n{done.stderr}"
    return done


def write_recipe(root: Path, name: str, text: str, samples: int = 32) -> None:
    """Write shards to root/shards/train and `text` to root/recipes/NAME.yaml, with root/shards in place of `{root}`."""
    write_shards(root / "shards" / "train", samples)
    (root / "recipes").mkdir()
    (root / "recipes" / f"{name}.yaml").write_text(text.format(root=root / "shards"))


def tiny(root: Path, samples: int = 16) -> list[str]:
    """Return the overrides of a run of samples / 8 steps on the shards in root/train."""
    data = ["data=shards", f"data.root={root}", "data.split=train", "data.workers=0"]
    return ["recipe=demo", *data, "train.batch_size=8", f"train.samples={samples}", "schedule.warmup_steps=1"]
