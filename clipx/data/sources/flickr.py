"""Flickr8k and Flickr30k as they are distributed, with the official splits train, dev and test.

The folder holds the images, in itself or in a usual folder (`files.FOLDERS`), and one of these files:

    dataset_flickr8k.json, dataset_flickr30k.json      captions and splits, by Karpathy
    captions.txt                                       lines IMAGE,CAPTION
    Flickr8k.token.txt, results_20130124.token         lines IMAGE#NUMBER<tab>CAPTION

Without Karpathy's file, the splits are those of flickr8k_split.txt, so Flickr30k needs Karpathy's file.
"""

import csv
from functools import cache
from pathlib import Path

from clipx.data.sources.files import find_images, read_karpathy, read_text
from clipx.errors import UserError

JSON = ("dataset_flickr8k.json", "dataset_flickr30k.json")
TABLES = ("captions.txt", "Flickr8k.token.txt", "results_20130124.token")
SPLITS = {"train": "train", "dev": "val", "val": "val", "test": "test"}  # our name -> Karpathy's
Captions = dict[str, list[str]]  # path of an image, below the folder of images -> its captions


def is_published(root: Path) -> bool:
    """Return True if a folder is Flickr8k or Flickr30k as distributed."""
    return any((root / name).is_file() for name in (*JSON, *TABLES))


def read_split(root: Path, split: str) -> tuple[Path, Captions]:
    """Return the folder of images and the captions of a split: train, dev (or val) or test.

    Raises UserError: an unknown split, no images, no official splits for these images, or a corrupt file.
    """
    if split not in SPLITS:
        raise UserError(f"{root} has no split {split}; allowed: {', '.join(SPLITS)}")
    file = next(root / name for name in (*JSON, *TABLES) if (root / name).is_file())
    if file.name in JSON:
        found = dict(read_karpathy(file, (SPLITS[split],))[1])
    else:
        numbers = _official("dev" if split == "val" else split)
        found = {name: captions for name, captions in _table(file).items() if name.partition("_")[0] in numbers}
        if len(found) < len(numbers):
            raise UserError(
                f"{file} has {len(found)} of the {len(numbers)} images of Flickr8k's {split} split; for Flickr30k, add "
                "Karpathy's dataset_flickr30k.json"
            )
    return find_images(root, next(iter(found))), found


@cache
def _official(split: str) -> frozenset[str]:
    lines = Path(__file__).with_name("flickr8k_split.txt").read_text().splitlines()
    (numbers,) = (line.split()[1:] for line in lines if line.startswith(f"{split} "))
    return frozenset(numbers)


def _table(file: Path) -> Captions:
    """Return image -> captions of a table without splits."""
    lines = read_text(file, "a caption a line").splitlines()
    if file.name == TABLES[0]:
        rows = [row for row in csv.reader(lines) if len(row) > 1]
        pairs = [(row[0], ",".join(row[1:])) for row in rows if row[0] != "image"]
    else:
        pairs = [(name.partition("#")[0], caption) for name, _, caption in (line.partition("\t") for line in lines)]
    found: Captions = {}
    for name, caption in pairs:
        if caption.strip():
            found.setdefault(name, []).append(caption.strip())
    return found
