"""Annotated objects that captions do not name, counted on COCO (paper 1, Fig. 4; claim 1.12).

For each image-caption pair, counts the object categories that are annotated in the image (COCO has 80) but missing
from the caption. A caption names a category if the category's name occurs as a whole word, singular or plural.
Synonyms ("man" for person) do not count, so the share without persons is reported as well.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

from clipx.data.sources.files import entries, read_json
from clipx.errors import UserError
from clipx.utils.files import write_text
from clipx.verdict import within
from evaluation.claims.evidence import HISTOGRAM, write_stated
from evaluation.metrics import bootstrap_interval, weighted_mean

LEAST = 0.5  # the claim's "many" means more than this share of the pairs
CONTENT = "COCO's annotations (captions_*.json, instances_*.json)"
PERSON = "person"
IRREGULAR_PLURALS = {"person": "people|persons", "mouse": "mice", "knife": "knives", "sheep": "sheep"}


@dataclass(frozen=True)
class MissingObjects:
    """Counts and shares of image-caption pairs."""

    histogram: list[int]  # [k]: pairs in which k categories are missing
    images: int  # with captions
    share: float  # of pairs in which at least one category is missing
    low: float  # 95% interval, bootstrap over images
    high: float
    share_without_persons: float  # of pairs in which a category other than "person" is missing


def find(folder: Path) -> tuple[Path, Path]:
    """Return the first captions file below a folder that has an instances file, and this file.

    Raises UserError: there are no such files.
    """
    for captions in sorted(folder.rglob("captions_*.json")):
        instances = captions.with_name(captions.name.replace("captions", "instances", 1))
        if instances.is_file():
            return captions, instances
    needed = "captions_NAME.json and its instances_NAME.json (COCO's annotations)"
    raise UserError(f"{folder} is no folder that holds {needed}")


def count(files: tuple[Path, Path]) -> MissingObjects:
    """Count missing objects in all pairs of `files` (captions, instances). Images without objects have none missing.

    Raises UserError: a file is not a COCO annotation file, or no image has both captions and objects.
    """
    captions, instances = (read_json(file, CONTENT) for file in files)
    categories = entries(files[1], instances, "categories", {"id": int, "name": str}, CONTENT)
    names = {one["id"]: one["name"] for one in categories}
    objects: dict[int, set[str]] = defaultdict(set)  # image -> annotated categories
    for one in entries(files[1], instances, "annotations", {"image_id": int, "category_id": int}, CONTENT):
        if one["category_id"] not in names:
            raise UserError(f'{files[1]}: "categories" has no id {one["category_id"]}')
        objects[one["image_id"]].add(names[one["category_id"]])
    texts: dict[int, list[str]] = defaultdict(list)  # image -> captions
    for one in entries(files[0], captions, "annotations", {"image_id": int, "caption": str}, CONTENT):
        texts[one["image_id"]].append(one["caption"])
    if not objects.keys() & texts.keys():
        raise UserError(f"{files[0]} and {files[1]} have no image in common")
    patterns = {name: _pattern(name) for name in names.values()}
    missing = [
        [{name for name in objects.get(image, ()) if not patterns[name].search(text)} for text in texts[image]]
        for image in sorted(texts)
    ]
    return _summarise(missing)


def _summarise(missing: list[list[set[str]]]) -> MissingObjects:
    """Summarise `missing`: image -> caption -> missing categories."""
    counts = [len(names) for captions in missing for names in captions]
    shares = torch.tensor([sum(map(bool, captions)) / len(captions) for captions in missing], dtype=torch.float64)
    weights = torch.tensor([float(len(captions)) for captions in missing], dtype=torch.float64)
    low, high = bootstrap_interval(shares, weights)
    without_persons = [bool(names - {PERSON}) for captions in missing for names in captions]
    return MissingObjects(
        histogram=[counts.count(n) for n in range(max(counts) + 1)],
        images=len(missing),
        share=weighted_mean(shares, weights),
        low=low,
        high=high,
        share_without_persons=sum(without_persons) / len(without_persons),
    )


def write(counted: MissingObjects, out: Path) -> list[Path]:
    """Write claims.json with the verdict, and the counts that the report draws; return both paths."""
    entry = {
        "claim": "1.12",
        "statement": "share of image-caption pairs in which an annotated object's name is missing",
        "measured": f"{counted.share:.3f} ({counted.low:.3f} .. {counted.high:.3f})",
        "expected": f"more than {LEAST:g}",
        "verdict": within(counted.low, counted.high, LEAST),
    }
    write_text(out / HISTOGRAM, json.dumps(vars(counted)) + "\n")
    return [write_stated(out, [entry], {}), out / HISTOGRAM]


def sentence(counted: MissingObjects) -> str:
    """Return the result as one sentence for the terminal."""
    return (
        f"{sum(counted.histogram):,} image-caption pairs of {counted.images:,} images: {counted.share:.1%} "
        f"({counted.low:.1%} .. {counted.high:.1%}) do not name an annotated object category; "
        f"not counting persons: {counted.share_without_persons:.1%}"
    )


def _pattern(name: str) -> re.Pattern[str]:
    plural = IRREGULAR_PLURALS.get(name, "")
    regular = re.escape(name) + "(?:e?s)?"
    return re.compile(rf"\b(?:{regular}{'|' + plural if plural else ''})\b", re.IGNORECASE)
