"""Which annotated objects of an image its captions leave out, on COCO JSON (paper 1, figure 4; claim 1.12).

A pair is an image and one of its captions. Counted are the kinds of object (COCO's 80 categories) that are
annotated in the image and whose name, as a whole word, singular or plural, is not in the caption. Other words for
a thing ("man" for person) do not count as its name, so the shares without persons are given as well.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clipx.errors import UserError
from clipx.utils.files import write_text
from evaluation.claims.evidence import HISTOGRAM
from evaluation.claims.types import Verdict
from evaluation.metrics import bootstrap_interval, weighted_mean
from evaluation.runs.reader import STATED

LEAST = 0.5  # "many": more than half of the pairs
PERSON = "person"


@dataclass(frozen=True)
class Missing:
    """Counts over pairs."""

    histogram: list[int]  # pairs by how many kinds of object are missing
    images: int
    share: float  # of the pairs with at least one missing
    low: float  # 95% interval, bootstrap over images
    high: float
    share_without_persons: float


def find(paths: list[Path]) -> tuple[Path, Path]:
    """Captions and instances file: both given, or the first such pair in a folder.

    Raises:
        UserError: they are not there.
    """
    if len(paths) == 2 and all(path.is_file() for path in paths):
        first, second = paths
        return (first, second) if "captions" in first.name else (second, first)
    for captions in sorted(file for path in paths for file in path.rglob("captions_*.json")):
        instances = captions.with_name(captions.name.replace("captions", "instances", 1))
        if instances.is_file():
            return captions, instances
    raise UserError(f"{paths[0]} holds no captions_NAME.json with its instances_NAME.json (COCO's annotations)")


def count(files: tuple[Path, Path]) -> Missing:
    """Counts over all image-caption pairs; an image without annotated objects has none that could be missing.

    Raises:
        UserError: a file is not a COCO annotation file, or no image has both.
    """
    captions, instances = (_read(file) for file in files)
    try:
        names = {int(c["id"]): str(c["name"]) for c in instances["categories"]}
        kinds: dict[int, set[str]] = defaultdict(set)
        for one in instances["annotations"]:
            kinds[int(one["image_id"])].add(names[int(one["category_id"])])
        texts: dict[int, list[str]] = defaultdict(list)
        for one in captions["annotations"]:
            texts[int(one["image_id"])].append(str(one["caption"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{files[0]} and {files[1]} are not COCO annotations: {error!r}") from error
    patterns = {name: _pattern(name) for name in names.values()}
    missing = [
        [{kind for kind in kinds.get(image, ()) if not patterns[kind].search(text)} for text in texts[image]]
        for image in sorted(texts)
    ]
    if not kinds.keys() & texts.keys():
        raise UserError(f"{files[0]} and {files[1]} have no image in common")
    return _summed(missing)


def _summed(missing: list[list[set[str]]]) -> Missing:
    """Of each image, for each of its captions, the kinds that are missing."""
    counts = [len(kinds) for of_image in missing for kinds in of_image]
    shares = torch.tensor([sum(map(bool, of_image)) / len(of_image) for of_image in missing], dtype=torch.float64)
    weights = torch.tensor([float(len(of_image)) for of_image in missing], dtype=torch.float64)
    low, high = bootstrap_interval(shares, weights)
    others = [bool(kinds - {PERSON}) for of_image in missing for kinds in of_image]
    return Missing(
        histogram=[counts.count(n) for n in range(max(counts) + 1)],
        images=len(missing),
        share=weighted_mean(shares, weights),
        low=low,
        high=high,
        share_without_persons=sum(others) / len(others),
    )


def write(counted: Missing, out: Path) -> list[Path]:
    """claims.json, which the verdicts are read from, and the histogram, which the report draws."""
    verdict: Verdict = "holds" if counted.low > LEAST else "does not hold" if counted.high < LEAST else "undecided"
    entry = {
        "claim": "1.12",
        "statement": "share of image-caption pairs in which an annotated object's name is missing",
        "measured": f"{counted.share:.3f} ({counted.low:.3f} .. {counted.high:.3f})",
        "expected": f"more than {LEAST:g}",
        "verdict": verdict,
    }
    write_text(out / STATED, json.dumps([entry], indent=1) + "\n")
    write_text(out / HISTOGRAM, json.dumps(vars(counted)) + "\n")
    return [out / STATED, out / HISTOGRAM]


def sentence(counted: Missing) -> str:
    """For the terminal."""
    pairs = sum(counted.histogram)
    return (
        f"{counted.share:.1%} ({counted.low:.1%} .. {counted.high:.1%}) of {pairs:,} pairs of {counted.images:,} "
        f"images leave out an annotated kind of object; {counted.share_without_persons:.1%} one other than a person"
    )


def _pattern(name: str) -> re.Pattern[str]:
    plural = {"person": "people|persons", "mouse": "mice", "knife": "knives", "sheep": "sheep"}.get(name, "")
    regular = re.escape(name) + "(?:e?s)?"
    return re.compile(rf"\b(?:{regular}{'|' + plural if plural else ''})\b", re.IGNORECASE)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file} is not a COCO annotation file")
    return content
