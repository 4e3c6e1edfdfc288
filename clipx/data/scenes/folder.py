"""The rendered data set on disk: webdataset shards, complete or absent."""

import fcntl
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
from clipx.data.scenes.pairs import pair_samples
from clipx.data.scenes.samples import Sample, training_sample, validate
from clipx.errors import UserError
from clipx.utils.files import cache_home, content_hash, new_folder

FORMAT = 1  # increase it when the same config renders other data; cached data are then rendered again
SHARD = 5_000  # samples per shard
CLASS_SET_SIZES = {"train": 2_000, "test": 1_000}  # train: for linear probes
RETRIEVAL_IMAGES = 1_000
FINISHED = "scenes.json"  # file in the root, written last: the rendered config


@dataclass(frozen=True)
class ShardJob:
    """A tar file to write, with samples start..stop-1 of a split."""

    split: str  # folder below the root
    file: str
    start: int
    stop: int


def ensure_rendered(config: ScenesConfig, root: Path | None) -> Path:
    """Return the folder of the data set, and render it first if it is missing.

    The folder is `root`, by default one in the cache, named by the config's hash.

    Raises:
        UserError: a setting is out of range, or `root` holds something else.
    """
    if root is None:
        root = cache_home() / "scenes" / content_hash(_identity(config))
    render_folder(root, config)
    return root


def render_folder(root: Path, config: ScenesConfig) -> None:
    """Render the data set into `root` on all cores, unless `root` already holds it. Raises UserError."""
    validate(config)
    if _is_finished(root, config):
        return
    with _lock(root):  # all ranks of a run call this: one renders, the others wait
        if _is_finished(root, config):
            return
        _remove_leftovers(root)
        print(f"rendering {config.num_train} scenes into {root}, once", file=sys.stderr)
        if root.is_dir():
            root.rmdir()  # it is empty; new_folder needs a free name
        with new_folder(root) as temporary:
            _write_class_files(temporary, config)
            shards = _plan(config)
            for shard in shards:
                (temporary / shard.split).mkdir(parents=True, exist_ok=True)
            workers = min(os.cpu_count() or 1, len(shards))
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, spawn, _end_with_parent) as pool:
                for done in [pool.submit(_write_shard, temporary, shard, config) for shard in shards]:
                    done.result()
            (temporary / FINISHED).write_text(json.dumps(_identity(config)))


def _identity(config: ScenesConfig) -> dict[str, Any]:
    return {"format": FORMAT, **vars(config)}


def _is_finished(root: Path, config: ScenesConfig) -> bool:
    """Return True if `root` holds this data set, False if it is absent or empty. Raises UserError otherwise."""
    if not root.exists():
        return False
    advice = "give another data.root, or data.root=null for the cache"
    if not (root / FINISHED).is_file():
        if root.is_dir() and not any(root.iterdir()):
            return False
        raise UserError(f"data.root={root} exists, but holds no finished scenes; {advice}")
    found, wanted = json.loads((root / FINISHED).read_text()), _identity(config)
    if found != wanted:
        differences = ", ".join(f"{k}={found.get(k)}, not {v}" for k, v in wanted.items() if found.get(k) != v)
        raise UserError(f"data.root={root} holds other scenes ({differences}); {advice}")
    return True


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Lock `root` against other processes; the system releases the lock if this process dies."""
    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / content_hash(str(root.resolve()))).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(root: Path) -> None:
    """Remove the temporary folders of killed processes next to `root`; only in the cache, where every name is ours."""
    if root.parent == cache_home() / "scenes":
        for leftover in root.parent.glob(f".{root.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _plan(config: ScenesConfig) -> list[ShardJob]:
    """Return every shard of the data set, the longest first."""
    n = config.num_train
    jobs = [ShardJob("train", f"{k:05d}.tar", k * SHARD, min((k + 1) * SHARD, n)) for k in range(-(-n // SHARD))]
    for split, size in CLASS_SET_SIZES.items():
        jobs += [ShardJob(f"{name}/{split}", "0.tar", 0, size) for name in CLASS_SETS]
    jobs.append(ShardJob("scenes_captions", "00000.tar", 0, RETRIEVAL_IMAGES))
    jobs.append(ShardJob("scenes_pairs", "00000.tar", 0, 0))
    return jobs


def _samples(shard: ShardJob, config: ScenesConfig) -> Iterator[Sample]:
    if shard.split == "train":
        return (training_sample(config, i) for i in range(shard.start, shard.stop))
    if shard.split == "scenes_captions":
        return retrieval_samples(config, shard.stop)
    if shard.split == "scenes_pairs":
        return pair_samples(config)
    class_set = CLASS_SETS[shard.split.split("/")[0]]
    return (class_set.sample(shard.split, config, i) for i in range(shard.start, shard.stop))


def _end_with_parent() -> None:
    """End this worker when its parent dies; otherwise it would wait for ever for the next task."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _write_shard(root: Path, shard: ShardJob, config: ScenesConfig) -> None:
    """Write a tar file; equal arguments give equal bytes, because it holds no times and no owners."""
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
