"""`clipx data verify`: read every sample of a folder of shards and report corrupt samples."""

import json
import os
import time
from collections import Counter
from pathlib import Path

from cli.settings.arguments import count, number, split
from clipx.data.loading.bad_samples import check_bad_rate
from clipx.data.shards.index import ABSENT, COLUMNS, Index, open_index
from clipx.data.shards.reader import Shards
from clipx.data.shards.verify import verify as read_all
from clipx.utils.files import write_text
from clipx.utils.progress import ProgressBar
from clipx.utils.registry import lookup

PRINTED = 20  # number of problems printed; verify.txt lists all
SETTINGS = {"captions": "auto", "max_bad_rate": "0.05", "workers": "0", "out": ""}


def verify(arguments: list[str]) -> None:
    """Run `clipx data verify FOLDER`: write counts to verify.json and bad samples to verify.txt."""
    (given_folder,), settings = split(arguments, SETTINGS, "data verify", "FOLDER")
    folder = Path(given_folder)
    limit = number(settings["max_bad_rate"], "max_bad_rate", 0, 1)
    workers = count(settings["workers"], "workers") if settings["workers"] != "0" else len(os.sched_getaffinity(0))
    index = open_index(folder)
    choices = {"auto": text_column(index), "first": "txt", "random": "json"}
    shards = Shards.open(folder, ("image", lookup(choices, settings["captions"], "captions")))
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
    out = Path(settings["out"] or folder)
    write_text(out / "verify.txt", "".join(f"{line}\n" for line in lines))
    write_text(out / "verify.json", json.dumps(content, indent=1) + "\n")
    print(f"{samples:,} samples of {len(index.shards):,} shards read with {workers} processes in {seconds:.1f} s")
    print(f"{samples / seconds:,.0f} images/s, {size / seconds / 1e6:,.0f} MB/s")
    print(f"{len(damage):,} corrupt, {len(shards.problems):,} left out by the index (clipx data index lists them)")
    for line in lines[:PRINTED]:
        print(f"  {line}")
    print(f"report: {out / 'verify.json'}, {out / 'verify.txt'}")
    check_bad_rate(limit, len(lines), samples + len(shards.problems), lines)


def text_column(index: Index) -> str:
    """Return the first text column that the shards hold: .txt captions, .json captions or .cls classes; else "txt"."""
    return next((c for c in COLUMNS[1:] if (index.arrays[f"{c}_block"] != ABSENT).any()), "txt")
