"""The rendered data set on disk: a folder of webdataset shards. The folder gets its name only when it is complete."""

import io
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clipx.config.schema import ScenesConfig
from clipx.config.setting import check
from clipx.data.scenes.captions import check_faults
from clipx.data.scenes.evaluation_sets import CLASS_SETS, pair_samples, retrieval_samples
from clipx.data.scenes.samples import Sample, training_sample
from clipx.errors import Fault, UserError
from clipx.utils.files import cache_home, content_hash, new_folder
from clipx.utils.interrupts import SIGNALS, end_with_parent
from clipx.utils.lock import turn
from clipx.utils.terminal import ProgressBar
from clipx.utils.trust import load_json

FORMAT = 1  # to be increased when rendering changes, so that cached data are rendered again
SHARD = 5_000  # samples per training shard
PROBE_IMAGES = 2_000  # images of each class set on which linear probes are trained
FINISHED = "scenes.json"  # file in the root, written last: the rendered config
FIRST, SECOND = "scenes_", "new_"  # prefixes of the evaluation sets of the two halves; world=all has only FIRST


def ensure_rendered(config: ScenesConfig, root: Path | None) -> Path:
    """Return the folder of the data set; render the data set first if it is missing.

    The folder is `root`, by default a folder in the cache, named by the config's hash. Raises UserError if a setting is
    out of range, or like `render_folder`.
    """
    root = root or cache_home() / "scenes" / content_hash(_identity(config))
    check(config, "data.scenes.")
    check_faults(config)
    if not _is_finished(root, config):
        render_folder(root, config)
    return root


def render_folder(root: Path, config: ScenesConfig) -> None:
    """Render the data set into `root` on all cores, unless another process has just done so.

    Raises UserError if `root` contains anything else, or is the current folder.
    """
    if root.is_dir() and root.samefile("."):
        raise UserError(f"data.root={root} is the current folder, which rendering would replace; name a folder in it")
    # all ranks of a run call this, maybe on several machines: one renders, the others wait
    with turn(root.with_name(f".{root.name}.lock")):
        if _is_finished(root, config):
            return
        if root.parent == cache_home() / "scenes":  # only clipx writes there: remove leftovers of killed processes
            for leftover in root.parent.glob(f".{root.name}.*"):
                shutil.rmtree(leftover, ignore_errors=True)
        print(f"rendering {config.num_train} scenes into {root}, once", file=sys.stderr)
        if root.is_dir():
            root.rmdir()  # it is empty, and new_folder creates it again
        with new_folder(root) as temporary:
            _write_class_files(temporary, config)
            _write_shards(temporary, config)
            (temporary / FINISHED).write_text(json.dumps(_identity(config)))


def _write_shards(root: Path, config: ScenesConfig) -> None:
    files = [*_plan(config)]
    workers = min(len(os.sched_getaffinity(0)), len(files))
    fork = multiprocessing.get_context("fork")  # with another start method, each process would import torch
    with ProcessPoolExecutor(workers, fork, _prepare, (os.getpid(),)) as pool:
        written = pool.map(partial(_write_shard, root, config), files)  # forks, so before the bar starts a thread
        try:
            with ProgressBar() as progress:
                progress.start("rendering shards", len(files))
                for _ in written:
                    progress.advance(1)
        except BrokenProcessPool as error:
            raise Fault("a process that renders was killed, probably because memory ran out") from error
        except BaseException:  # also Ctrl-C: do not wait for the other shards
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _prepare(parent: int) -> None:
    """Let a new process leave Ctrl-C, which a terminal sends to all processes, to its parent, and end with it."""
    for number in SIGNALS:  # not by the parent's handlers, which save a run
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    end_with_parent(parent)


def _identity(config: ScenesConfig) -> dict[str, Any]:
    return {"format": FORMAT, **vars(config)}


def _is_finished(root: Path, config: ScenesConfig) -> bool:
    """Return True if `root` contains this data set, False if `root` is absent or empty. Raises UserError otherwise."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    advice = "give another data.root, or data.root=null for the cache"
    try:
        found, wanted = load_json((root / FINISHED).read_bytes()), _identity(config)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a damaged file
        found = None
    if not isinstance(found, dict):
        raise UserError(f"data.root={root} exists, but holds no finished scenes; {advice}")
    if found != wanted:
        differing = [key for key in wanted | found if found.get(key) != wanted.get(key)]
        differences = ", ".join(f"{key}={found.get(key)}, not {wanted.get(key)}" for key in differing)
        raise UserError(f"data.root={root} holds other scenes ({differences}); {advice}")
    return True


def _plan(config: ScenesConfig) -> dict[str, tuple[int, Iterator[Sample]]]:
    """Return shard file -> number of its first sample, and its samples, which are made when they are asked for.

    The training shards, which are usually the largest, come first, so that all workers finish at about the same time.
    """
    plan: dict[str, tuple[int, Iterator[Sample]]] = {}
    for k in range(0, config.num_train, SHARD):
        numbers = range(k, min(k + SHARD, config.num_train))
        plan[f"train/{k // SHARD:05d}.tar"] = k, map(partial(training_sample, config), numbers)
    for prefix, of_world in _evaluated(config).items():
        for part, size in (("train", PROBE_IMAGES), ("test", config.test_images)):
            for name, class_set in CLASS_SETS.items():
                split = f"{prefix}{name.removeprefix(FIRST)}/{part}"
                plan[f"{split}/0.tar"] = 0, map(partial(class_set.sample, split, of_world), range(size))
        plan[f"{prefix}captions/00000.tar"] = 0, retrieval_samples(of_world, config.test_images)
        plan[f"{prefix}pairs/00000.tar"] = 0, pair_samples(of_world)
    return plan


def _evaluated(config: ScenesConfig) -> dict[str, ScenesConfig]:
    """Return prefix of the evaluation sets' names -> config of their world."""
    if config.world == "all":
        return {FIRST: config}
    return {FIRST: replace(config, world="first"), SECOND: replace(config, world="second")}


def _write_shard(root: Path, config: ScenesConfig, file: str) -> None:
    """Write a tar file of `_plan`, without times and owners, so that equal arguments give equal bytes."""
    first, samples = _plan(config)[file]
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for index, sample in enumerate(samples, first):
            for extension, data in sample.members().items():
                info = tarfile.TarInfo(f"s{index:07d}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def _write_class_files(root: Path, config: ScenesConfig) -> None:
    for prefix, of_world in _evaluated(config).items():
        for name, class_set in CLASS_SETS.items():
            folder = root / f"{prefix}{name.removeprefix(FIRST)}"
            for split in ("train", "test"):
                (folder / split).mkdir(parents=True)
                (folder / split / "nshards.txt").write_text("1\n")
            (folder / "classnames.txt").write_text("\n".join(class_set.classnames(of_world)) + "\n")
            (folder / "zeroshot_classification_templates.txt").write_text("\n".join(class_set.templates) + "\n")
