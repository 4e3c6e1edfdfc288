"""Layouts in webdataset shards.

wds:FOLDER       CLIP-benchmark's layout: classnames.txt, zeroshot_classification_templates.txt, and for each split
                 nshards.txt and 0.tar, 1.tar, ... with an image and .cls per sample. If dataset_type.txt says
                 "retrieval": .txt with one caption per line instead of .cls, and no class names or templates.
                 DataComp's sets with groups also have .npy: an array whose first number is the image's group
captions:FOLDER  shards of images with a "captions" list in .json, or else with one caption in .txt
pairs:FOLDER     shards in which samples 2p and 2p+1 are minimal pair p; each has a caption in .txt, and the keys "pair"
                 and "category" in .json
"""

import io
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clipx.data.shards.reader import Shards
from clipx.data.shards.tar import scan
from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.files import (
    SPLIT_NAMES,
    ShardImages,
    open_shards,
    refuse,
    require_file,
    require_folder,
    sample_json,
    sample_text,
    short_name,
)
from evaluation.datasets.kinds import Captioned, Labelled, MinimalPairs, Split
from evaluation.types import Settings

TEMPLATES = "zeroshot_classification_templates.txt"


def open_wds(spec: str, folder: Path, settings: Settings, metric: str = "") -> Labelled | Captioned:
    """Open a folder in CLIP-benchmark's webdataset layout.

    `metric` as in Labelled.

    Raises UserError: a file of the layout is missing or empty, or two files contradict each other.
    """
    require_folder(spec, folder)
    splits = {path.parent.name: path.parent for path in sorted(folder.glob("*/nshards.txt"))}
    if not splits:
        raise UserError(f"datasets={spec}: no split in {folder}; expected test/nshards.txt and test/0.tar")
    kind = folder / "dataset_type.txt"
    if kind.is_file() and kind.read_text(encoding="utf-8").strip() == "retrieval":
        return _retrieval(spec, folder, splits, settings)
    classnames = _lines(spec, folder / "classnames.txt", "one class name per line, in the order of the labels")
    templates = _lines(spec, folder / TEMPLATES, "one prompt per line with {c} for the class name")
    for template in templates:
        if "{c}" not in template:
            raise UserError(f"datasets={spec}: {TEMPLATES}: {template!r} lacks {{c}} for the class name")
    grouped = metric.startswith("worst_group")
    readers = {name: partial(_split, spec, path, len(classnames), grouped) for name, path in splits.items()}
    known = prompts.Templates(templates, [prompts.PLAIN])
    return Labelled(spec, short_name(folder), classnames, known, readers, settings, metric)


def open_captions(spec: str, folder: Path, settings: Settings) -> Captioned:
    """Open a folder of webdataset shards of images with captions.

    Raises UserError: no folder, no caption, or "captions" is not a list of texts.
    """
    require_folder(spec, folder)
    shards = open_shards(spec, folder, ("image",))
    captions = [_captions_of(spec, shards, i) for i in range(len(shards))]
    return Captioned(spec, short_name(folder), _split_of(folder), ShardImages(spec, shards), captions, settings)


def open_pairs(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open a folder of webdataset shards of minimal pairs.

    Raises UserError: no folder, an odd number of samples, or two consecutive samples that are not a pair.
    """
    require_folder(spec, folder)
    shards = open_shards(spec, folder, ("image", "txt", "json"))
    if len(shards) % 2:
        raise UserError(f"datasets={spec}: {len(shards)} samples; pairs need an even number")
    captions = [sample_text(spec, shards, i, "txt") for i in range(len(shards))]
    categories = [_category(spec, shards, p) for p in range(len(shards) // 2)]
    images = ShardImages(spec, shards)
    return MinimalPairs(spec, short_name(folder), _split_of(folder), images, captions, categories, settings.limit)


def _split(spec: str, folder: Path, classes: int, grouped: bool) -> Split:
    _check_shard_names(spec, folder)
    shards = open_shards(spec, folder, ("image", "cls"))
    labels = []
    for i in range(len(shards)):
        text = sample_text(spec, shards, i, "cls")
        if not (text.isdecimal() and int(text) < classes):
            allowed = f"0..{classes - 1}, as classnames.txt has {classes} names"
            refuse(spec, shards, i, f"class {text!r}, allowed {allowed}")
        labels.append(int(text))
    return Split(ShardImages(spec, shards), torch.tensor(labels), _groups(spec, shards) if grouped else None)


def _groups(spec: str, shards: Shards) -> Tensor:
    """Return the first number of each sample's .npy, int64 [n]. The index of the shards does not list these members."""
    first: dict[str, int] = {}
    for path in sorted(shards.folder.glob("*.tar")):
        with path.open("rb") as file:
            for member in scan(path)[0]:
                key, _, extension = member.name.rpartition("/")[2].partition(".")
                if extension == "npy":
                    file.seek(member.offset)
                    with suppress(ValueError, IndexError, EOFError):
                        first[key] = int(np.load(io.BytesIO(file.read(member.size)), allow_pickle=False).flat[0])
    for i in range(len(shards)):
        if first.get(shards.key(i), -1) < 0:
            refuse(spec, shards, i, "needs a .npy whose first number is its group, 0 or larger")
    return torch.tensor([first[shards.key(i)] for i in range(len(shards))])


def _retrieval(spec: str, folder: Path, splits: dict[str, Path], settings: Settings) -> Captioned:
    if "test" not in splits:
        raise UserError(f"datasets={spec}: no test split in {folder}; expected test/nshards.txt and test/0.tar")
    _check_shard_names(spec, splits["test"])
    shards = open_shards(spec, splits["test"], ("image", "txt"))
    captions = [
        [line.strip() for line in sample_text(spec, shards, i, "txt").splitlines() if line.strip()]
        for i in range(len(shards))
    ]
    return Captioned(spec, short_name(folder), "test", ShardImages(spec, shards), captions, settings)


def _captions_of(spec: str, shards: Shards, index: int) -> list[str]:
    if shards.has(index, "json"):
        captions = sample_json(spec, shards, index).get("captions")
        if captions is not None:
            if not isinstance(captions, list) or not all(isinstance(c, str) and c.strip() for c in captions):
                refuse(spec, shards, index, '"captions" in its .json is not a list of texts')
            return captions
    if shards.has(index, "txt"):
        text = sample_text(spec, shards, index, "txt")
        return [text] if text else []
    return []


def _category(spec: str, shards: Shards, pair: int) -> str:
    """Return the category in a pair's two .json files, which must agree."""
    first, second = (sample_json(spec, shards, i) for i in (2 * pair, 2 * pair + 1))
    if first.get("pair") != second.get("pair") or first.get("category") != second.get("category"):
        refuse(spec, shards, 2 * pair, 'its .json and the next one differ in "pair" or "category"')
    category = first.get("category")
    if not isinstance(category, str):
        refuse(spec, shards, 2 * pair, '"category" in its .json is not a text')
    return category


def _split_of(folder: Path) -> str:
    name = folder.resolve().name
    return name if name in SPLIT_NAMES else "all"


def _lines(spec: str, path: Path, content: str) -> list[str]:
    """Return the lines of a file. A blank line is an error: it would shift the labels of all later lines."""
    lines = [line.strip() for line in require_file(spec, path, content).rstrip().splitlines()]
    if not all(lines) or not lines:
        where = f"line {lines.index('') + 1} of {path}" if lines else str(path)
        raise UserError(f"datasets={spec}: {where} is empty; it should hold {content}")
    return lines


def _check_shard_names(spec: str, folder: Path) -> None:
    """Raise UserError unless the folder holds exactly 0.tar .. (n-1).tar, with n from nshards.txt."""
    text = require_file(spec, folder / "nshards.txt", "the number of shards").strip()
    if not text.isdecimal():
        raise UserError(f"datasets={spec}: {folder / 'nshards.txt'} holds {text!r}, expected a number")
    expected = {f"{k}.tar" for k in range(int(text))}
    found = {path.name for path in folder.glob("*.tar")}
    if expected != found:
        names = sorted(expected - found) or sorted(found - expected)
        problem = "missing" if expected - found else "not expected"
        raise UserError(f"datasets={spec}: {folder}: {names[0]} is {problem}, nshards.txt says {text} shard(s)")
