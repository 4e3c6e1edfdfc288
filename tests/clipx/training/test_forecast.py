"""The forecast agrees with measured memory and names changes with which a step fits; wrong inputs are refused."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.settings.compose import compose_run
from clipx.errors import UserError
from clipx.training import cost
from clipx.training.devices import DEVICES
from clipx.training.forecast import Forecast, changes_that_fit, forecast
from clipx.utils.device import free_memory
from tests.helpers.commands import clipx_here
from tests.helpers.folder import settings

CPU = torch.device("cpu")
MEASURED = {  # recipe -> arm and a batch that fits into 3 GB
    "wpse_cc3m": ["arm=imq", "train.batch_size=8"],
    "gap_mscoco": ["arm=base", "train.batch_size=16"],
    "counting_datacomp": ["arm=own_log1p_100", "train.batch_size=16"],
    "nuclr_cc3m": ["arm=nuclr", "train.batch_size=12"],
}
# prints the predicted peak divided by the measured growth of the resident memory
MEASURE = """
import sys, torch
from functools import partial
from cli.settings.compose import compose_run
from clipx.models.clip import build_model
from clipx.training.cost import count_step
from clipx.training.setup import build_components
from clipx.training.forecast import timed_step
from clipx.types import Progress
config = compose_run([*sys.argv[1:], "data.root=x", "train.device=cpu"])
predicted = count_step(config).peak
def kib(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
before = kib("VmRSS")
pairs = 2 * config.train.batch_size
components = build_components(config, torch.device("cpu"), pairs, "x", partial(build_model, pretrained=False))
for step in range(2):
    timed_step(components, Progress(step, 2, 0, 1))
print(predicted / 1024 / (kib("VmHWM") - before))
"""
# with these, glibc returns freed tensors to the system at once; by default it keeps a part that differs between runs
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@pytest.mark.long
@pytest.mark.parametrize("name", MEASURED)
def test_the_predicted_peak_is_within_a_tenth_of_the_measured_one(name: str) -> None:
    command = [sys.executable, "-c", MEASURE, f"recipe={name}", *MEASURED[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | RETURN_MEMORY)
    assert 0.9 < float(done.stdout.splitlines()[-1]) < 1.1


def test_a_batch_that_does_not_fit_is_refused_before_it_is_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path)
    config.model.image.name, config.train.batch_size = "small:conv", 4096
    monkeypatch.setattr(cost, "free_memory", lambda device: 5 * 10**8)
    message = r"^train.batch_size=4096 needs about 0\.6 GB for a step, but 0\.5 GB are free; try"
    with pytest.raises(UserError, match=message):
        cost.check_memory(config, CPU)


def test_the_changes_suggested_for_a_batch_that_does_not_fit_are_the_smallest_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DEVICES, "L40S", replace(DEVICES["L40S"], memory=1e9))

    def with_setting(key: str, value: int) -> Forecast:
        config = settings(tmp_path, text="open_clip:mini-48")
        config.train.batch_size = 2048
        setattr(config.train, key, value)
        return forecast(config, 2, "L40S")

    found = with_setting("accumulation", 1)
    assert not found.fits
    suggested = changes_that_fit(found, "L40S")
    keys = [line.partition("=")[0].removeprefix("train.") for line in suggested]
    assert keys == ["accumulation", "grad_checkpointing", "batch_size"]
    assert with_setting("grad_checkpointing", True).fits
    for line in (suggested[0], suggested[2]):
        key, _, value = line.partition(" ")[0].removeprefix("train.").partition("=")
        new = with_setting(key, int(value))
        assert new.fits and f"({new.cost.peak / 1e9:.1f} GB, " in line
        smaller_change = int(value) // 2 if key == "accumulation" else int(value) * 2
        assert not with_setting(key, smaller_change).fits


def test_check_prints_the_forecast_and_refuses_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["recipe=demo", "model.text.name=small:bag", "train.batch_size=512"]
    found = forecast(compose_run(run), 4, "L40S")
    command = ["check", *run, "device=L40S", "processes=4"]
    done = clipx_here(*command, cwd=tmp_path)
    assert f"memory        {found.cost.peak / 1e9:.2f} GB of each GPU; usable: 44.6 GB, 93%" in done.stdout
    assert f"{found.images_per_s:,.0f} images/s, {found.images_per_s / 4:,.0f} for each GPU" in done.stdout
    monkeypatch.setitem(DEVICES, "L40S", replace(DEVICES["L40S"], memory=found.cost.peak))
    refused = clipx_here(*command, cwd=tmp_path, code=2)
    assert "a step fits with one of: train." in refused.stderr


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_respects_the_limit_of_a_container(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    monkeypatch.setattr("clipx.utils.device.PROC", proc)
    monkeypatch.setattr("clipx.utils.device.CGROUPS", groups)
    assert free_memory(CPU) == 8000 * 1024
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
    assert free_memory(CPU) == 400_000
