"""The memory of a step is estimated before anything is allocated, and compared with what is free."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.training import memory as step_memory
from clipx.utils import memory
from tests.helpers.folder import settings

CPU = torch.device("cpu")
MEASURE = """
import sys, resource, torch
from functools import partial
from pathlib import Path
from clipx.models.clip import build_model
from clipx.training.memory import step_bytes
from clipx.training.setup import build_components
from clipx.training.trial import generated_batch, timed_step
from clipx.types import Progress
from tests.helpers.folder import settings
config = settings(Path(sys.argv[1]))
config.train.batch_size, config.train.accumulation, config.train.device = 1024, int(sys.argv[2]), "cpu"
def kib(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
estimated = step_bytes(config)
before = kib("VmRSS")
components = build_components(config, torch.device("cpu"), 1024, "x", partial(build_model, pretrained=False))
for step in range(2):
    timed_step(components, generated_batch(components), Progress(step, 2, 0, 1))
print(estimated / 1024 / (kib("VmHWM") - before))
"""


def large(folder: Path) -> RunConfig:
    config = settings(folder)
    config.model.image.name = config.model.text.name = "open_clip:ViT-B-32"
    config.train.batch_size = 4096
    return config


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_estimate_is_near_the_measured_peak(accumulation: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURE, str(tmp_path), str(accumulation)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.7 < float(done.stdout) < 1.3


def test_a_batch_that_does_not_fit_is_refused_before_it_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_memory, "free_memory", lambda device: 24 * 10**9)
    message = r"^train.batch_size=4096 needs about 2\d\d\.\d GB for a step, but 24\.0 GB are free; try"
    with pytest.raises(UserError, match=message):
        step_memory.check_memory(large(tmp_path), CPU)


def test_micro_batches_checkpointing_and_more_processes_need_less(tmp_path: Path) -> None:
    config = large(tmp_path)
    whole = step_memory.step_bytes(config)
    assert step_memory.step_bytes(config, processes=4) < whole / 3
    config.train.accumulation = 8
    assert step_memory.step_bytes(config) < whole / 4
    config.train.accumulation, config.train.grad_checkpointing = 1, True
    assert step_memory.step_bytes(config) < whole / 3


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_counts(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    monkeypatch.setattr(memory, "PROC", proc)
    monkeypatch.setattr(memory, "CGROUPS", groups)
    assert memory.free_memory(CPU) == 8000 * 1024
    root, names = (
        (groups, ("memory.max", "memory.current"))
        if version == 2
        else (groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    )
    (proc / "self/cgroup").write_text("0::/job/step\n" if version == 2 else "3:cpu:/x\n7:memory:/job/step\n")
    for folder, numbers in {root / "job/step": ("max", "900000"), root / "job": ("1000000", "900000")}.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.stat").write_text("anon 5\ninactive_file 300000\n")
        for name, number in zip(names, numbers, strict=True):
            (folder / name).write_text(f"{number}\n")
    assert memory.free_memory(CPU) == 400_000
