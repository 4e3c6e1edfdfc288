"""`clipx data verify`: read every sample of a folder of shards and report corrupt samples."""

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cli.settings.arguments import parse_arguments
from clipx.config.setting import AT_LEAST_0, SHARE, setting
from clipx.data.loading.bad_samples import check_bad_rate
from clipx.data.shards.index import ABSENT, COLUMNS, Index, open_index
from clipx.data.shards.reader import Shards
from clipx.data.shards.verify import verify as read_all
from clipx.utils.files import write_text
from clipx.utils.progress import ProgressBar

PRINTED = 20  # number of problems printed; verify.txt lists all


@dataclass(kw_only=True)
class Options:
    """The options of `clipx data verify`."""

    captions: str = setting("auto", "captions to read; auto: those there are", choices=("auto", "first", "random"))
    max_bad_rate: float = setting(0.05, "share of bad samples above which the exit code is 2", SHARE)
    workers: int = setting(0, "processes; 0: one per processor", AT_LEAST_0)
    out: str | None = setting(None, "folder of the report; null: that of the shards")


def verify(arguments: list[str]) -> None:
    """Run `clipx data verify FOLDER`: write counts to verify.json and bad samples to verify.txt."""
    (given_folder,), options = parse_arguments(arguments, Options, "data verify", "FOLDER")
    folder = Path(given_folder)
    workers = options.workers or len(os.sched_getaffinity(0))
    index = open_index(folder)
    columns = {"auto": text_column(index), "first": "txt", "random": "json"}
    shards = Shards.open(folder, ("image", columns[options.captions]))
    started, samples, size = time.perf_counter(), 0, 0
    damage: dict[str, str] = {}
    with ProgressBar() as progress:
        progress.start("samples read", len(shards))
        for found in read_all(shards, workers):
            samples, size = samples + found.samples, size + found.size
            damage |= found.damage
            progress.advance(found.samples)
    seconds = time.perf_counter() - started
    lines = [*shards.problems, *(f"{where}: {why}" for where, why in damage.items())]
    content = {
        "shards": len(index.shards),
        "samples": samples,
        "corrupt": len(damage),
        "index_problems": len(shards.problems),
        "kinds": Counter(why.partition(" (")[0] for why in damage.values()),
        "columns": shards.columns,
        "index": index.digest,
        "bytes": size,
        "seconds": round(seconds, 1),
        "images_per_s": round(samples / seconds, 1),
    }
    out = Path(options.out or folder)
    write_text(out / "verify.txt", "".join(f"{line}\n" for line in lines))
    write_text(out / "verify.json", json.dumps(content, indent=1) + "\n")
    print(f"{samples:,} samples of {len(index.shards):,} shards read with {workers} processes in {seconds:.1f} s")
    print(f"{samples / seconds:,.0f} images/s, {size / seconds / 1e6:,.0f} MB/s")
    print(f"{len(damage):,} corrupt, {len(shards.problems):,} left out by the index (clipx data index lists them)")
    for line in lines[:PRINTED]:
        print(f"  {line}")
    print(f"report: {out / 'verify.json'}, {out / 'verify.txt'}")
    check_bad_rate(options.max_bad_rate, len(lines), samples + len(shards.problems), lines)


def text_column(index: Index) -> str:
    """Return the first text column that the shards hold: .txt captions, .json captions or .cls classes; else "txt"."""
    return next((c for c in COLUMNS[1:] if (index.arrays[f"{c}_block"] != ABSENT).any()), "txt")
