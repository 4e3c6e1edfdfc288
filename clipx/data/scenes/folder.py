"""The data set on disk: webdataset shards that are there in full or not at all."""

import fcntl
import hashlib
import io
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.evaluation_sets import CLASS_SETS, retrieval_samples
from clipx.data.scenes.knobs import validate
from clipx.data.scenes.pairs import pair_samples
from clipx.data.scenes.samples import Sample, training_sample
from clipx.errors import UserError
from clipx.utils.files import cache_home, new_folder

FORMAT = 1  # raise it when the same config renders something else: cached data are then made anew
SHARD = 5_000  # samples in a shard
CLASS_SET_SIZES = {"train": 2_000, "test": 1_000}  # train: for linear probes
RETRIEVAL_IMAGES = 1_000
FINISHED = "scenes.json"  # in the root: the config that was written


@dataclass(frozen=True)
class Shard:
    """One tar file to write: samples start..stop-1 of a split."""

    split: str  # folder below the root
    file: str
    start: int
    stop: int


def ensure(config: ScenesConfig, root: Path | None) -> Path:
    """The folder of the data set; written first where it is not there.

    root: that folder; None: one in the cache, named by the config's hash.

    Raises:
        UserError: a setting out of range, or `root` holds something else.
    """
    if root is None:
        home = cache_home() / "scenes"
        root = home / hashlib.sha256(json.dumps(_identity(config)).encode()).hexdigest()[:16]
    write(root, config)
    return root


def write(root: Path, config: ScenesConfig) -> None:
    """Renders everything into `root`, on all cores; returns at once if that has been done.

    Raises:
        UserError: a setting out of range, or `root` holds something else.
    """
    validate(config)
    if _is_finished(root, config):
        return
    with _lock(root):  # the ranks of a run all come here: one writes, the others wait
        if _is_finished(root, config):
            return
        _remove_leftovers(root)
        print(f"rendering {config.num_train} scenes into {root}, this once", file=sys.stderr)
        if root.is_dir():
            root.rmdir()  # empty, and a folder can only be moved to where there is none
        with new_folder(root) as made:
            _write_class_files(made, config)
            shards = _plan(config)
            for shard in shards:
                (made / shard.split).mkdir(parents=True, exist_ok=True)
            workers = min(os.cpu_count() or 1, len(shards))
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, spawn, _end_with_parent) as pool:
                for done in [pool.submit(_write_shard, made, shard, config) for shard in shards]:
                    done.result()
            (made / FINISHED).write_text(json.dumps(_identity(config)))


def _identity(config: ScenesConfig) -> dict[str, Any]:
    return {"format": FORMAT, **vars(config)}


def _is_finished(root: Path, config: ScenesConfig) -> bool:
    """Whether `root` holds this data set; False if it is absent or empty.

    Raises:
        UserError: it holds something else.
    """
    if not root.exists():
        return False
    advice = "give another data.root, or none: then the cache is used"
    if not (root / FINISHED).is_file():
        if root.is_dir() and not any(root.iterdir()):
            return False
        raise UserError(f"data.root={root} is there, but no finished scenes folder; {advice}")
    found, wanted = json.loads((root / FINISHED).read_text()), _identity(config)
    if found != wanted:
        differences = ", ".join(f"{k}={found.get(k)}, not {v}" for k, v in wanted.items() if found.get(k) != v)
        raise UserError(f"data.root={root} holds other scenes ({differences}); {advice}")
    return True


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Held by one process at a time; the system frees it when its holder dies."""
    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    with (locks / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(root: Path) -> None:
    """What a killed write left beside `root`; only in the cache, where every name is ours."""
    if root.parent == cache_home() / "scenes":
        for leftover in root.parent.glob(f".{root.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _plan(config: ScenesConfig) -> list[Shard]:
    """Every shard of the data set, the long ones first."""
    starts = range(0, config.num_train, SHARD)
    train = [
        Shard("train", f"{k:05d}.tar", start, min(start + SHARD, config.num_train)) for k, start in enumerate(starts)
    ]
    classes = [
        Shard(f"{name}/{split}", "0.tar", 0, size) for split, size in CLASS_SET_SIZES.items() for name in CLASS_SETS
    ]
    return [
        *train,
        *classes,
        Shard("scenes_captions", "00000.tar", 0, RETRIEVAL_IMAGES),
        Shard("scenes_pairs", "00000.tar", 0, 0),
    ]


def _samples(shard: Shard, config: ScenesConfig) -> Iterator[Sample]:
    if shard.split == "train":
        return (training_sample(config, i) for i in range(shard.start, shard.stop))
    if shard.split == "scenes_captions":
        return retrieval_samples(config, shard.stop)
    if shard.split == "scenes_pairs":
        return pair_samples(config)
    class_set = CLASS_SETS[shard.split.split("/")[0]]
    return (class_set.sample(shard.split, config, i) for i in range(shard.start, shard.stop))


def _end_with_parent() -> None:
    """In a worker: workers of a killed process would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _write_shard(root: Path, shard: Shard, config: ScenesConfig) -> None:
    """Equal bytes for equal arguments: no times, no owners."""
    with tarfile.open(root / shard.split / shard.file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for index, sample in enumerate(_samples(shard, config), shard.start):
            for extension, data in sample.members().items():
                info = tarfile.TarInfo(f"s{index:07d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _write_class_files(root: Path, config: ScenesConfig) -> None:
    for name, class_set in CLASS_SETS.items():
        folder = root / name
        for split in CLASS_SET_SIZES:
            (folder / split).mkdir(parents=True)
            (folder / split / "nshards.txt").write_text("1\n")
        (folder / "classnames.txt").write_text("\n".join(class_set.classnames(config)) + "\n")
        (folder / "zeroshot_classification_templates.txt").write_text("\n".join(class_set.templates) + "\n")
