"""`clipx data verify`: is every sample of these shards usable?"""

import json
import os
import time
from collections import Counter
from pathlib import Path

from cli.settings.arguments import number, one_folder, split
from clipx.data.loading.bad_samples import check_bad_rate
from clipx.data.shards.index import ABSENT, Index, open_index
from clipx.data.shards.reader import Shards, shard_paths
from clipx.data.shards.verify import CHECKS
from clipx.data.shards.verify import verify as read_all
from clipx.utils.files import write_text
from clipx.utils.registry import lookup
from evaluation.embedding.progress import Count

NAMED = 20  # samples printed one by one; the report has all
SETTINGS = {"captions": "auto", "max_bad_rate": "0.05", "workers": "0", "out": ""}


def verify(arguments: list[str]) -> None:
    """FOLDER [captions=first|random] [max_bad_rate=0.05] [workers=N] [out=DIR]: writes verify.json and verify.txt.

    Raises:
        UserError: a wrong argument, no shards, or more bad samples than max_bad_rate.
    """
    places, settings = split(arguments, SETTINGS, "data verify")
    folder = one_folder(places, "data verify")
    limit = number(settings["max_bad_rate"], "max_bad_rate", 0, 1)
    workers = int(number(settings["workers"], "workers", 0, 1024)) or len(os.sched_getaffinity(0))
    index = open_index(folder, shard_paths(folder))
    choices = {"auto": text_column(index), "first": "txt", "random": "json"}
    shards = Shards.open(folder, ("image", lookup(choices, settings["captions"], "captions")))
    started, samples, size = time.perf_counter(), 0, 0
    damage: dict[str, str] = {}
    with Count() as count:
        count.start("samples read", len(shards))
        for found in read_all(shards, workers):
            samples, size = samples + found.samples, size + found.size
            damage |= found.damage
            count.advance(found.samples)
    seconds = time.perf_counter() - started
    lines = [*shards.problems, *(f"{where}: {why}" for where, why in damage.items())]
    content = {
        "shards": len(index.shards),
        "samples": samples,
        "damaged": len(damage),
        "left_out": len(shards.problems),
        "kinds": Counter(why.partition(" (")[0] for why in damage.values()),
        "columns": shards.extensions,
        "index": index.digest,
        "bytes": size,
        "seconds": round(seconds, 1),
        "images_per_s": round(samples / seconds, 1),
    }
    place = Path(settings["out"] or folder)
    write_text(place / "verify.txt", "".join(f"{line}\n" for line in lines))
    write_text(place / "verify.json", json.dumps(content, indent=1) + "\n")
    print(
        f"{samples:,} samples of {len(index.shards):,} shards read with {workers} processes in {seconds:.1f} s:", end=""
    )
    print(f" {samples / seconds:,.0f} images/s, {size / seconds / 1e6:,.0f} MB/s")
    print(f"{len(damage):,} damaged, {len(shards.problems):,} problems found by the index")
    for line in lines[:NAMED]:
        print(f"  {line}")
    print(f"report: {place / 'verify.json'}, {place / 'verify.txt'}")
    check_bad_rate(limit, len(lines), samples + len(shards.problems), lines)


def text_column(index: Index) -> str:
    """The first of captions, captions in JSON and classes that the shards have; captions where they have none."""
    return next((c for c in CHECKS if (index.arrays[f"{c}_block"] != ABSENT).any()), "txt")
