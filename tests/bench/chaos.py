"""Kill a training run on two processes at random moments and compare it with an undisturbed run: `make chaos`.

    python -m tests.bench.chaos [kills] [seed]      default: 20 kills and a random seed, which is printed

Each kill sends SIGKILL to one worker (the launcher restarts all workers from the last checkpoint) or to all processes
of the run (this script runs the same command again). A kill comes soon after a random step, or up to 10 s after the
previous kill, when the run may not have reached its first step. Linux only (/proc).

Prints `equal bit for bit`, or the names of the tensors that differ. Exit code 0 if all weights, per-sample values and
logged losses are equal, else 1.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from clipx.config.schema import RunConfig
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder
from tests.helpers.folder import settings, write_shards
from tests.helpers.runs import log

LAUNCH = "import sys; from pathlib import Path; from clipx.run.folder import RunFolder; from cli.train import train; "
LAUNCH += "train(RunFolder(Path(sys.argv[1])).load_config())"


@dataclass
class ChaosRun:
    """A run that gets killed."""

    run: Path  # run directory
    steps: int  # length of the run
    generator: random.Random
    kills: int = 0  # so far
    process: subprocess.Popen[bytes] | None = None  # the command

    def start(self) -> None:
        """Run the command in a new process."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.run.parent / "output.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(self.run)], stdout=output, stderr=output, env=environment
            )

    def last_step(self) -> int:
        """Return the last step in log.jsonl; 0 if there is none, or if its line is incomplete."""
        with suppress(OSError, IndexError, ValueError):
            return int(json.loads((self.run / "log.jsonl").read_text().splitlines()[-1])["step"])
        return 0

    def workers(self) -> list[int]:
        """Return the process ids of the ranks."""
        assert self.process is not None
        launchers = [pid for pid in descendants(self.process.pid) if "--nproc-per-node" in command_line(pid)]
        return [pid for launcher in launchers for pid in children(launcher)]

    def kill(self, victims: str) -> None:
        """Kill one worker (victims="one") or all processes of the run ("all"); return when the run has restarted.

        Before the workers have started, "one" also kills all processes.
        """
        assert self.process is not None
        step = self.last_step()
        ranks = self.workers()
        if victims == "one" and ranks:
            chosen = [self.generator.choice(ranks)]
        else:
            victims, chosen = "all", [self.process.pid, *descendants(self.process.pid)]
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills += 1
        print(f"kill {self.kills}: {victims}, pid {chosen}, last logged step {step}", flush=True)
        if victims == "all":
            self.process.wait()
            self.start()
        else:
            deadline = time.monotonic() + 120
            while (set(self.workers()) & set(ranks) or not self.workers()) and time.monotonic() < deadline:
                time.sleep(0.05)

    def disturb(self, kills: int) -> None:
        """Start the run, kill it `kills` times and wait for its end.

        About half of the kills come at random steps in ascending order. The others come at a random time after the
        previous kill, so that some hit the start-up.
        """
        steps = sorted(self.generator.randrange(1, self.steps * 9 // 10) for _ in range(kills))
        self.start()
        for step in steps:
            assert self.process is not None
            if self.generator.random() < 0.5:
                while self.last_step() < step and self.process.poll() is None:
                    time.sleep(0.02)
                time.sleep(self.generator.uniform(0, 0.3))
            else:
                time.sleep(self.generator.uniform(0, 10))
            if self.process.poll() is not None:
                print(f"the run ended early, exit code {self.process.returncode}", flush=True)
                return
            self.kill(self.generator.choice(["one", "one", "all"]))
        assert self.process is not None
        self.process.wait()


def children(pid: int) -> list[int]:
    """Return the child processes of a process; empty if it has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    return [found for child in children(pid) for found in (child, *descendants(child))]


def command_line(pid: int) -> str:
    """Return the command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def config(folder: Path, name: str, steps: int, kills: int) -> RunConfig:
    """Return the config of a run on two processes, with frequent checkpoints and as many restarts as kills."""
    made = settings(folder, save_every=20, processes=2)
    made.name, made.log.every, made.data.workers = name, 1, 1
    made.data.captions, made.data.flip = "random", True
    made.train.epochs, made.train.samples = None, steps * made.train.batch_size
    made.objective, made.temperature.kind = {"sogclr": {"gamma": 0.8}}, "fixed"  # per-sample state, sharded over ranks
    made.launch.max_restarts = kills
    return made


def differing(first: Path, second: Path) -> list[str]:
    """Compare the last checkpoints and the logs of two runs.

    Returns the names of the tensors that are not equal bit for bit, and "log.jsonl" if logged losses differ.
    """
    found = []
    for name in ("model.safetensors", "table.safetensors"):
        a, b = (load_file(checkpoints(run)[-1] / name) for run in (first, second))
        found += [key for key in a.keys() | b.keys() if key not in a or key not in b or not torch.equal(a[key], b[key])]
    losses = [[(row["step"], row["loss"]) for row in log(run)] for run in (first, second)]
    return [*found, *(["log.jsonl"] if losses[0] != losses[1] else [])]


def chaos(folder: Path, kills: int, seed: int, steps: int) -> list[str]:
    """Train one run undisturbed and one with kills; return what `differing` finds."""
    write_shards(folder / "train", samples=256)
    undisturbed, disturbed = (
        RunFolder.create(config(folder, name, steps, kills)).path for name in ("undisturbed", "disturbed")
    )
    ChaosRun(undisturbed, steps, random.Random(seed)).disturb(0)
    run = ChaosRun(disturbed, steps, random.Random(seed))
    run.disturb(kills)
    assert run.process is not None
    assert run.process.returncode == 0, f"exit code {run.process.returncode}: {folder / 'runs/disturbed/output.log'}"
    assert run.kills == kills, f"the run ended after {run.kills} of {kills} kills"
    return differing(undisturbed, disturbed)


def main(kills: int = 20, seed: int | None = None) -> int:
    """Print the kills and the result; return the exit code."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    print(f"seed {seed}: {kills} kills", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        different = chaos(Path(folder), kills, seed, steps=60 * kills)  # three checkpoints per kill
    print(f"DIFFERENT: {', '.join(different)}" if different else "equal bit for bit")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
