"""Shard index at the size of CC12M (12.4M samples): start-up time, memory and scan speed: `make bench-index`.

Two ranks open a synthetic index, with four workers each. Its shards are empty files, which are never read; the scan is
measured on one further shard of 300 MB. Three numbers have a target: scan speed (higher is better), memory of the index
summed over all processes, and seconds from opening the index to the first batch of ids (lower is better).
"""

import multiprocessing
import os
import random
import re
import tarfile
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from clipx.config.schema import TrainConfig
from clipx.data.sampler import Sampler
from clipx.data.shards.index import ABSENT, ARRAYS, INDEX_FOLDER, Arrays, Index, Shard, save
from clipx.data.shards.reader import Shards
from clipx.data.shards.tar import scan
from tests.bench.chaos import descendants
from tests.helpers.folder import add

SAMPLES, PER_SHARD = 12_400_000, 10_000
RANKS, WORKERS = 2, 4


def write_synthetic(folder: Path) -> None:
    """Write 1,240 empty shards and an index with 10,000 samples in each; one sample in 100 has no caption."""
    shards = []
    for number in range(SAMPLES // PER_SHARD):
        path = folder / f"{number:05d}.tar"
        path.touch()
        stat = path.stat()
        shards.append(Shard(path.name, stat.st_size, stat.st_mtime_ns, PER_SHARD, 9 * PER_SHARD))
    within = np.arange(SAMPLES, dtype=np.uint32) % PER_SHARD
    arrays: Arrays = dict.fromkeys(ARRAYS, within + 1)
    arrays["txt_block"] = np.where(np.arange(SAMPLES) % 100, within, ABSENT).astype(np.uint32)
    arrays["key_end"] = (within + 1) * 9
    arrays["key_bytes"] = np.full(9 * SAMPLES, ord("7"), np.uint8)
    arrays["key_hash"] = np.arange(SAMPLES, dtype=np.uint64)
    (folder / INDEX_FOLDER).mkdir()
    save(Index(shards, arrays, "synthetic"), folder / INDEX_FOLDER)


def run_rank(folder: Path, barrier: Barrier, seconds: "multiprocessing.Queue[tuple[float, float]]") -> None:
    """Open the index, start an epoch, and fork workers that read every record of the index.

    Puts into `seconds`: wall time to open, and to the first batch of ids. All processes pass `barrier` twice: when the
    records have been read, and when `main` has measured the memory.
    """
    start = time.perf_counter()
    shards = Shards.open(folder, ("image", "txt"))
    opened = time.perf_counter() - start
    next(Sampler(len(shards), TrainConfig(epochs=1, batch_size=4096), seed=0, rank=0, world_size=1).batches(0))
    seconds.put((opened, time.perf_counter() - start))

    def read_records() -> None:
        total = sum(int(shards.index.arrays[f"{c}_{w}"].sum()) for c in ("image", "txt") for w in ("block", "size"))
        assert shards._rows is not None and total + int(shards._rows.sum()) > 0
        barrier.wait()
        barrier.wait()

    workers = [multiprocessing.get_context("fork").Process(target=read_records) for _ in range(WORKERS)]
    for process in workers:
        process.start()
    barrier.wait()
    barrier.wait()
    for process in workers:
        process.join()


def mapped_megabytes(pids: list[int], pattern: str) -> float:
    """Return the MB in mappings whose path matches; a page that n processes share counts 1/n in each (Linux's Pss)."""
    total = 0
    for pid in pids:
        mapping = ""
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                mapping = line
            elif line.startswith("Pss:") and re.search(pattern, mapping):
                total += int(line.split()[1])
    return total * 1024 / 1e6


def scan_speed(folder: Path) -> float:
    """Return the MB/s at which one core scans a cached shard of img2dataset-like samples (25 kB .jpg, .txt, .json)."""
    path, image = folder / "scan.tar", random.Random(0).randbytes(25_000)
    with tarfile.open(path, "w") as tar:
        for i in range(300 * 10**6 // 27_000):
            for extension, data in (("jpg", image), ("txt", b"a caption"), ("json", b'{"width": 256}' * 20)):
                add(tar, f"{i:09d}.{extension}", data)
    scan(path)  # fills the page cache
    start = time.process_time()
    scan(path)
    return path.stat().st_size / 1e6 / (time.process_time() - start)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CLIPX_CACHE"] = str(folder / "cache")
        print(f"scan of one shard: {scan_speed(folder):.0f} MB/s per core (target: 500)")
        (folder / "scan.tar").unlink()
        write_synthetic(folder)
        context = multiprocessing.get_context("fork")
        barrier, seconds = context.Barrier(RANKS * (WORKERS + 1) + 1), context.Queue()
        ranks = [context.Process(target=run_rank, args=(folder, barrier, seconds)) for _ in range(RANKS)]
        for process in ranks:
            process.start()
        barrier.wait()
        pids = [pid for process in ranks if process.pid for pid in (process.pid, *descendants(process.pid))]
        memory = mapped_megabytes(pids, re.escape(name))
        barrier.wait()
        for process in ranks:
            process.join()
        starts = [seconds.get() for _ in ranks]
    print(f"{SAMPLES:,} samples, {RANKS} ranks x {WORKERS} workers ({len(pids)} processes)")
    print(f"index in memory, sum over all processes: {memory:.0f} MB (target: 400)")
    opened, total = (max(column) for column in zip(*starts, strict=True))
    print(f"start-up, all ranks at once: index {opened:.1f} s, to the first batch of ids {total:.1f} s (target: 5)")


if __name__ == "__main__":
    main()
