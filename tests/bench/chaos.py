"""Random kills of a run on two processes: `make chaos`. Its weights must be those of an undisturbed run, bit for bit.

    python -m tests.bench.chaos [kills] [seed]      default 20 and a random seed, which is printed

Each kill is SIGKILL, of one worker (the launcher starts the group again from the last checkpoint) or of all processes
of the run (the same command is given again), at a random moment: after a random step, or a random time after a start,
which may be before the first step. Linux only (/proc). The exit code is 0 if all weights are equal, else 1.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file

from clipx.config.schema import RunConfig
from clipx.run import directory
from clipx.run.checkpoint import checkpoints
from tests.helpers.folder import settings, write_shards

LAUNCH = "import sys; from pathlib import Path; from clipx.run import directory; from cli.train import train; "
LAUNCH += "train(directory.load_config(Path(sys.argv[1])))"
LIMIT = 600.0  # seconds


@dataclass
class Chaos:
    """A run that is being disturbed."""

    run: Path
    steps: int
    generator: random.Random
    said: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The command, again."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.run.parent / "output.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(self.run)], stdout=output, stderr=output, env=environment
            )

    def step(self) -> int:
        """The last step in the log."""
        lines = (self.run / "log.jsonl").read_text().splitlines() if (self.run / "log.jsonl").exists() else []
        try:
            return int(json.loads(lines[-1])["step"]) if lines else 0
        except ValueError:  # it is being written
            return 0

    def workers(self) -> list[int]:
        """Process ids of the ranks."""
        assert self.process is not None
        launchers = [pid for pid in below(self.process.pid) if "--nproc-per-node" in arguments(pid)]
        return [pid for launcher in launchers for pid in children(launcher)]

    def kill(self, victim: str) -> None:
        """One worker, or all processes of the run."""
        assert self.process is not None
        at = self.step()
        ranks = self.workers()
        if victim == "one" and ranks:
            chosen = [self.generator.choice(ranks)]
        else:
            victim, chosen = "all", [self.process.pid, *below(self.process.pid)]
        for pid in chosen:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.said.append(f"{victim} at step {at}")
        print(f"kill {len(self.said)}: {victim}, pid {chosen}, last logged step {at}", flush=True)
        if victim == "all":
            self.process.wait()
            self.start()
        else:
            deadline = time.monotonic() + 120
            while (set(self.workers()) & set(ranks) or not self.workers()) and time.monotonic() < deadline:
                time.sleep(0.05)

    def disturb(self, kills: int) -> None:
        """All kills, then the end of the run.

        Half of them come at random steps, in ascending order, the others a random time after the one before, so that
        starts are hit as well.
        """
        at = sorted(self.generator.randrange(1, self.steps * 9 // 10) for _ in range(kills))
        self.start()
        for step in at:
            assert self.process is not None
            if self.generator.random() < 0.5:
                while self.step() < step and self.process.poll() is None:
                    time.sleep(0.02)
                time.sleep(self.generator.uniform(0, 0.3))
            else:
                time.sleep(self.generator.uniform(0, 10))
            if self.process.poll() is not None:
                print(f"the run had ended, exit code {self.process.returncode}", flush=True)
                return
            self.kill(self.generator.choice(["one", "one", "all"]))
        assert self.process is not None
        self.process.wait()


def children(pid: int) -> list[int]:
    """Processes that a process has started; none if it has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    return [found for child in children(pid) for found in (child, *below(child))]


def arguments(pid: int) -> str:
    """The command line of a process, "" where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def config(folder: Path, name: str, steps: int, kills: int) -> RunConfig:
    """A run of the small towers on two processes, which saves often and may be started again often enough."""
    made = settings(folder, save_every=20, processes=2)
    made.name, made.log.every, made.data.workers = name, 1, 1
    made.data.captions, made.data.flip = "random", True
    made.train.epochs, made.train.samples = None, steps * made.train.batch_size
    made.objective, made.temperature.kind = {"sogclr": {"gamma": 0.8}}, "fixed"  # per-sample state, sharded over ranks
    made.launch.max_restarts = kills
    return made


def differing(first: Path, second: Path) -> list[str]:
    """Tensors of the last checkpoints that are not equal bit for bit, and whether log lines are missing."""
    found = []
    for name in ("model.safetensors", "table.safetensors"):
        a, b = (load_file(checkpoints(run)[-1] / name) for run in (first, second))
        found += [key for key in a.keys() | b.keys() if key not in a or key not in b or not torch.equal(a[key], b[key])]
    losses = [
        [(r["step"], r["loss"]) for r in map(json.loads, (run / "log.jsonl").read_text().splitlines())]
        for run in (first, second)
    ]
    return [*found, *(["log.jsonl"] if losses[0] != losses[1] else [])]


def chaos(folder: Path, kills: int, seed: int, steps: int) -> list[str]:
    """Both runs; what differs at the end."""
    write_shards(folder / "train", samples=256)
    whole, disturbed = (directory.claim(config(folder, name, steps, kills)) for name in ("whole", "disturbed"))
    undisturbed = Chaos(whole, steps, random.Random(seed))
    undisturbed.disturb(0)
    hit = Chaos(disturbed, steps, random.Random(seed))
    hit.disturb(kills)
    assert hit.process is not None
    assert hit.process.returncode == 0, f"exit code {hit.process.returncode}: {folder / 'runs/disturbed/output.log'}"
    assert len(hit.said) == kills, f"{len(hit.said)} kills of {kills}: the run was over before"
    return differing(whole, disturbed)


def main(kills: int = 20, seed: int | None = None) -> int:
    """Prints kills and verdict."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    print(f"seed {seed}: {kills} kills", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        different = chaos(Path(folder), kills, seed, steps=60 * kills)
    seconds = time.monotonic() - started
    print(f"{'DIFFERENT: ' + ', '.join(different) if different else 'equal bit for bit'}, {seconds:.0f} s")
    if seconds > LIMIT:
        print(f"longer than {LIMIT:.0f} s")
    return 1 if different or seconds > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
