"""Data and runs that many tests read. They are made once and shared by all workers of a test run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from omegaconf import OmegaConf

from clipx.config.schema import RunConfig, ScenesConfig
from clipx.run.folder import RunFolder

# the smallest data set that has every split of `scenes`
SCENES = ScenesConfig(image_size=32, num_train=256, test_images=24, test_pairs=8)


def folder_of_test_run(factory: pytest.TempPathFactory, worker: str) -> Path:
    """Return a folder that all workers of pytest-xdist share. `worker`: "master" without pytest-xdist."""
    base = factory.getbasetemp()
    return (base if worker == "master" else base.parent) / "shared"


def once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return the folder. The first worker that asks lets `make` fill it; the others wait until it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder.with_suffix(".done")
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def train(root: Path) -> None:
    """Write data and a finished run into a folder."""
    from tests.helpers.runs import prepared, trained  # imports open_clip, which takes seconds

    trained(prepared(root))


def copy_of(run: Path, root: Path) -> tuple[RunConfig, Path]:
    """Copy a run to `root`/runs; return its settings and its folder. The data stay where they are."""
    config = RunFolder(run).load_config()
    config.runs = str(root / "runs")
    copied = RunFolder.of(config).path
    shutil.copytree(run, copied)
    (copied / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    return config, copied
