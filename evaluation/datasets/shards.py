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
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clipx.data.shards.index import is_shard, key_of
from clipx.data.shards.reader import Shards
from clipx.data.shards.tar import scan
from clipx.data.sources import flickr
from clipx.data.sources.files import read_text
from clipx.errors import UserError, printable_line
from evaluation.datasets import prompts
from evaluation.datasets.files import (
    SPLIT_NAMES,
    FileImages,
    ShardImages,
    open_shards,
    refuse,
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
    _require_folder(spec, folder)
    splits = {path.name: path for path in sorted(folder.iterdir()) if (path / "nshards.txt").is_file()}
    if not splits:
        raise UserError(f"no split in {folder}; expected test/nshards.txt and test/0.tar")
    type_file = folder / "dataset_type.txt"
    if type_file.is_file() and read_text(type_file, "the type of the data set").strip() == "retrieval":
        return _retrieval(spec, folder, splits, settings)
    classnames = _lines(folder / "classnames.txt", "one class name per line, in the order of the labels")
    templates = _lines(folder / TEMPLATES, "one prompt per line with {c} for the class name")
    grouped = metric.startswith("worst_group")
    readers = {name: partial(_split, path, len(classnames), grouped) for name, path in splits.items()}
    known = prompts.Templates(templates, [prompts.PLAIN])
    return Labelled(spec, short_name(folder), classnames, known, readers, settings, metric)


def open_captions(spec: str, folder: Path, settings: Settings) -> Captioned:
    """Open shards of images with captions, or ROOT/SPLIT of Flickr8k or Flickr30k as distributed.

    Raises UserError: no folder, no image has a caption, or "captions" is not a list of texts.
    """
    if not folder.is_dir() and flickr.is_published(folder.parent):
        place, captions_of = flickr.read_split(folder.parent, folder.name)
        images = FileImages(place, [place / name for name in captions_of])
        return Captioned(spec, short_name(folder), folder.name, images, [*captions_of.values()], settings)
    _require_folder(spec, folder)
    shards = open_shards(folder, ("image",))
    captions = [_captions_of(shards, i) for i in range(len(shards))]
    return Captioned(spec, short_name(folder), _split_of(folder), ShardImages(shards), captions, settings)


def open_pairs(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open a folder of webdataset shards of minimal pairs.

    Raises UserError: no folder, an odd number of samples, or two consecutive samples that are not a pair.
    """
    _require_folder(spec, folder)
    shards = open_shards(folder, ("image", "txt", "json"))
    if len(shards) % 2:
        raise UserError(f"{len(shards)} samples; pairs need an even number")
    captions = [sample_text(shards, i, "txt") for i in range(len(shards))]
    categories = [_category(shards, p) for p in range(len(shards) // 2)]
    images = ShardImages(shards)
    return MinimalPairs(spec, short_name(folder), _split_of(folder), images, captions, categories, settings.limit)


def _require_folder(spec: str, folder: Path) -> None:
    """Raise UserError if the data set's folder is missing; the message says how to get the data set."""
    if folder.is_dir():
        return
    if folder.name.startswith("scenes"):
        hint = "run `clipx train recipe=demo` to render the scenes sets"
    elif spec.startswith("wds:"):
        repository, place = shlex.quote(f"clip-benchmark/{folder.name}"), shlex.quote(str(folder))
        hint = f"get it with `hf download {repository} --repo-type dataset --local-dir {place}`"
    else:
        hint = "give the folder that holds its .tar shards, for example as img2dataset writes them"
    raise UserError(f"no folder {folder}; {hint}")


def _split(folder: Path, classes: int, grouped: bool) -> Split:
    _check_shard_names(folder)
    shards = open_shards(folder, ("image", "cls"))
    labels = []
    for i in range(len(shards)):
        text = sample_text(shards, i, "cls")
        if not (text.isdecimal() and len(text) < 10 and int(text) < classes):
            refuse(shards, i, f"class {text[:20]!r}, allowed 0..{classes - 1}, as classnames.txt has {classes} names")
        labels.append(int(text))
    return Split(ShardImages(shards), torch.tensor(labels), _groups(shards) if grouped else None)


def _groups(shards: Shards) -> Tensor:
    """Return the first number of each sample's .npy, int64 [n]. The index of the shards does not list these members."""
    first: dict[str, int] = {}  # place of a sample -> number
    for shard in shards.index.shards:
        with (shards.folder / shard.name).open("rb") as file:
            for member in scan(shards.folder / shard.name)[0]:
                key = key_of(member.name)
                if member.name != f"{key}.npy":
                    continue
                file.seek(member.offset)
                with suppress(ValueError, IndexError, EOFError):
                    array = np.load(io.BytesIO(file.read(member.size)), allow_pickle=False)
                    first.setdefault(printable_line(f"{shard.name}:{key}"), int(array.flat[0]))
    places = [shards.where(i) for i in range(len(shards))]
    for i, place in enumerate(places):
        if first.get(place, -1) < 0:
            refuse(shards, i, "needs a .npy whose first number is its group, 0 or larger")
    return torch.tensor([first[place] for place in places])


def _retrieval(spec: str, folder: Path, splits: dict[str, Path], settings: Settings) -> Captioned:
    if "test" not in splits:
        raise UserError(f"no test split in {folder}; expected test/nshards.txt and test/0.tar")
    _check_shard_names(splits["test"])
    shards = open_shards(splits["test"], ("image", "txt"))
    captions = [
        [line.strip() for line in sample_text(shards, i, "txt").splitlines() if line.strip()]
        for i in range(len(shards))
    ]
    return Captioned(spec, short_name(folder), "test", ShardImages(shards), captions, settings)


def _captions_of(shards: Shards, index: int) -> list[str]:
    if shards.has(index, "json"):
        captions = sample_json(shards, index).get("captions")
        if captions is not None:
            if not isinstance(captions, list) or not all(isinstance(c, str) for c in captions):
                refuse(shards, index, '"captions" in its .json is not a list of texts')
            return [caption for caption in captions if caption.strip()]
    text = sample_text(shards, index, "txt") if shards.has(index, "txt") else ""
    return [text] if text else []


def _category(shards: Shards, pair: int) -> str:
    """Return the category in a pair's two .json files, which must agree."""
    first, second = (sample_json(shards, i) for i in (2 * pair, 2 * pair + 1))
    if first.get("pair") != second.get("pair") or first.get("category") != second.get("category"):
        refuse(shards, 2 * pair, 'its .json and the next one differ in "pair" or "category"')
    category = first.get("category")
    if not isinstance(category, str):
        refuse(shards, 2 * pair, '"category" in its .json is not a text')
    return category


def _split_of(folder: Path) -> str:
    name = folder.resolve().name
    return name if name in SPLIT_NAMES else "all"


def _lines(path: Path, content: str) -> list[str]:
    """Return the lines of a file. A blank line is an error: it would shift the labels of all later lines.

    It is allowed in CLIP-benchmark's names of CLEVR's distances only, whose fourth name is empty.
    """
    lines = [line.strip() for line in read_text(path, content).rstrip().splitlines()]
    if not (lines and all(lines)) and lines != prompts.classnames("clevr_closest_object_distance"):
        where = f"line {lines.index('') + 1} of {path}" if lines else str(path)
        raise UserError(f"{where} is empty; it should hold {content}")
    return lines


def _check_shard_names(folder: Path) -> None:
    """Raise UserError unless the folder holds exactly 0.tar .. (n-1).tar, with n from nshards.txt."""
    text = read_text(folder / "nshards.txt", "the number of shards").strip()
    found = {path.name for path in folder.iterdir() if is_shard(path.name)}
    if not text.isdecimal() or len(text) > 9 or int(text) > 2 * len(found) + 10:
        raise UserError(f"{folder / 'nshards.txt'} holds {text[:20]!r}, but the folder has {len(found)} shards")
    expected = {f"{k}.tar" for k in range(int(text))}
    if expected != found:
        names = sorted(expected - found) or sorted(found - expected)
        problem = "missing" if expected - found else "not expected"
        raise UserError(f"{folder}: {names[0]} is {problem}, nshards.txt says {text} shard(s)")
