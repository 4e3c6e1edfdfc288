"""Evaluation data sets, named `kind:FOLDER` on the command line.

wds:FOLDER       classes in the CLIP-benchmark layout: classnames.txt, zeroshot_classification_templates.txt
                 and for each split nshards.txt and 0.tar, 1.tar, ... with .cls and an image a sample
captions:FOLDER  shards of images with a "captions" list in .json, else one caption in .txt
pairs:FOLDER     shards in which samples 2p and 2p+1 are minimal pair p; .txt, .json with "pair", "category"
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import torch
from PIL.Image import Image
from torch import Tensor

from clipx.data.shards import Shards
from clipx.errors import UserError
from clipx.tables import lookup
from evaluation.folder import (
    SPLIT_NAMES,
    Images,
    content_hash,
    open_shards,
    read_json,
    read_text,
    refuse,
    require_file,
    require_folder,
    short_name,
)
from evaluation.types import Kind, View

TEMPLATES = "zeroshot_classification_templates.txt"


class Labelled:
    """Images with a class each; the class names and prompt templates are the data set's own files."""

    kind: Kind = "labelled"

    def __init__(self, spec: str, folder: Path) -> None:
        require_folder(spec, folder)
        self.name = spec
        self.short = short_name(folder)
        self.classnames = _lines(spec, folder / "classnames.txt", "one class name a line, in the labels' order")
        self.templates = _lines(spec, folder / TEMPLATES, "one prompt a line with {c} for the class name")
        for template in self.templates:
            if "{c}" not in template:
                raise UserError(f"datasets={spec}: {TEMPLATES}: {template!r} lacks {{c}}, the class name's place")
        self._folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/nshards.txt"))}
        self.splits = tuple(self._folders)
        if not self.splits:
            raise UserError(f"datasets={spec}: no split in {folder}; expected test/nshards.txt and test/0.tar")
        self._shards: dict[str, Shards] = {}

    def labels(self, split: str) -> Tensor:
        """int64 [n], in 0..len(classnames)-1.

        Raises:
            UserError: a .cls that is no class index.
        """
        shards = self._split(split)
        labels = []
        for i in range(len(shards)):
            text = read_text(self.name, shards, i, "cls")
            if not (text.isdecimal() and int(text) < len(self.classnames)):
                allowed = f"0..{len(self.classnames) - 1}, as classnames.txt has {len(self.classnames)} names"
                refuse(self.name, shards, i, f"class {text!r}, allowed {allowed}")
            labels.append(int(text))
        return torch.tensor(labels)

    def images(self, split: str) -> Sequence[Image]:
        """Decoded on access; UserError naming a damaged one."""
        return Images(self.name, self._split(split))

    def texts(self, split: str, view: View) -> list[str]:
        """The prompts class by class: all templates of class 0, then of class 1, ..."""
        assert view == "prompts", view
        return [template.replace("{c}", name) for name in self.classnames for template in self.templates]

    def fingerprint(self, split: str, view: View) -> str:
        """Of the split's shards, or of the prompts."""
        return self._split(split).content_hash() if view == "images" else content_hash(self.texts(split, view))

    def hashes(self, split: str) -> dict[str, str]:
        """What a score on this split depends on beside the features."""
        return {
            "classnames": content_hash(self.classnames),
            "templates": content_hash(self.templates),
            "labels": content_hash(self.labels(split).tolist()),
        }

    def _split(self, split: str) -> Shards:
        if split not in self._shards:
            folder = lookup(self._folders, split, f"datasets={self.name} split")
            _check_shard_names(self.name, folder)
            self._shards[split] = open_shards(self.name, folder, ("image", "cls"))
        return self._shards[split]


class Captioned:
    """Images with any number of captions each."""

    kind: Kind = "captioned"

    def __init__(self, spec: str, folder: Path) -> None:
        require_folder(spec, folder)
        self.name = spec
        self.short = short_name(folder)
        self.splits: tuple[str, ...] = (_split_of(folder),)
        self._shards = open_shards(spec, folder, ("image",))
        if not any(self._captions):
            raise UserError(f'datasets={spec}: no sample has a caption, neither .json with "captions" nor .txt')

    @cached_property
    def _captions(self) -> list[list[str]]:
        return [self._captions_of(i) for i in range(len(self._shards))]

    def _captions_of(self, index: int) -> list[str]:
        if self._shards.has(index, "json"):
            captions = read_json(self.name, self._shards, index).get("captions")
            if captions is not None:
                return self._checked(index, captions)
        if self._shards.has(index, "txt"):
            text = read_text(self.name, self._shards, index, "txt")
            return [text] if text else []
        return []

    def _checked(self, index: int, captions: object) -> list[str]:
        if not isinstance(captions, list) or not all(isinstance(c, str) and c.strip() for c in captions):
            refuse(self.name, self._shards, index, '"captions" in its .json is no list of texts')
        return captions

    def images(self, split: str) -> Sequence[Image]:
        """Decoded on access; UserError naming a damaged one."""
        return Images(self.name, self._shards)

    def texts(self, split: str, view: View) -> list[str]:
        """All captions, image by image."""
        assert view == "captions", view
        return [caption for captions in self._captions for caption in captions]

    def image_of_caption(self, split: str) -> Tensor:
        """int64 [captions], the image of each caption."""
        counts = torch.tensor([len(captions) for captions in self._captions])
        return torch.arange(len(counts)).repeat_interleave(counts)

    def fingerprint(self, split: str, view: View) -> str:
        """Of the shards, or of the captions."""
        return self._shards.content_hash() if view == "images" else content_hash(self._captions)

    def hashes(self, split: str) -> dict[str, str]:
        """What a score depends on beside the features."""
        return {"captions": content_hash(self._captions)}


class Pairs:
    """Minimal pairs: two images and two captions that differ in one visual pattern, the category."""

    kind: Kind = "pairs"

    def __init__(self, spec: str, folder: Path) -> None:
        require_folder(spec, folder)
        self.name = spec
        self.short = short_name(folder)
        self.splits: tuple[str, ...] = (_split_of(folder),)
        self._shards = open_shards(spec, folder, ("image", "txt", "json"))
        if len(self._shards) % 2:
            raise UserError(f"datasets={spec}: {len(self._shards)} samples, pairs need an even number")
        self._captions = [read_text(spec, self._shards, i, "txt") for i in range(len(self._shards))]
        self._categories = [self._category(p) for p in range(len(self._shards) // 2)]

    def _category(self, pair: int) -> str:
        """The category of a pair, from its own column: not from its place."""
        first, second = (read_json(self.name, self._shards, i) for i in (2 * pair, 2 * pair + 1))
        if first.get("pair") != second.get("pair") or first.get("category") != second.get("category"):
            refuse(self.name, self._shards, 2 * pair, 'its .json and the next one name two "pair" or "category"')
        category = first.get("category")
        if not isinstance(category, str):
            refuse(self.name, self._shards, 2 * pair, '"category" in its .json is no text')
        return category

    def images(self, split: str) -> Sequence[Image]:
        """Images 2p and 2p+1 are those of pair p; UserError naming a damaged one."""
        return Images(self.name, self._shards)

    def texts(self, split: str, view: View) -> list[str]:
        """Captions 2p and 2p+1 are those of pair p."""
        assert view == "captions", view
        return self._captions

    def categories(self, split: str) -> list[str]:
        """[P], the visual pattern of each pair."""
        return self._categories

    def fingerprint(self, split: str, view: View) -> str:
        """Of the shards, or of the captions."""
        return self._shards.content_hash() if view == "images" else content_hash(self._captions)

    def hashes(self, split: str) -> dict[str, str]:
        """What a score depends on beside the features."""
        return {"captions": content_hash(self._captions), "categories": content_hash(self._categories)}


AnyDataset = Labelled | Captioned | Pairs
KINDS: dict[str, Callable[[str, Path], AnyDataset]] = {"wds": Labelled, "captions": Captioned, "pairs": Pairs}


def open_dataset(spec: str) -> AnyDataset:
    """The evaluation data set `kind:FOLDER`.

    Raises:
        UserError: no such kind or folder, a layout file or split is missing, captions or class names are.
    """
    kind, colon, folder = spec.partition(":")
    if not (colon and folder):
        raise UserError(f"datasets={spec}: expected kind:FOLDER, kind one of {', '.join(KINDS)}")
    return lookup(KINDS, kind, "datasets kind")(spec, Path(folder).expanduser())


def _split_of(folder: Path) -> str:
    name = folder.resolve().name
    return name if name in SPLIT_NAMES else "all"


def _lines(spec: str, path: Path, content: str) -> list[str]:
    """The lines of a layout file; a blank one is an error, as every line after it would shift."""
    lines = [line.strip() for line in require_file(spec, path, content).rstrip().splitlines()]
    if not all(lines) or not lines:
        where = f"line {lines.index('') + 1} of {path}" if lines else str(path)
        raise UserError(f"datasets={spec}: {where} is empty; it should hold {content}")
    return lines


def _check_shard_names(spec: str, folder: Path) -> None:
    """UserError when the folder does not hold exactly the shards that nshards.txt announces."""
    text = require_file(spec, folder / "nshards.txt", "the number of shards").strip()
    if not text.isdecimal():
        raise UserError(f"datasets={spec}: {folder / 'nshards.txt'} holds {text!r}, expected a number")
    expected = {f"{k}.tar" for k in range(int(text))}
    found = {path.name for path in folder.glob("*.tar")}
    if expected != found:
        names = sorted(expected - found) or sorted(found - expected)
        problem = "missing" if expected - found else "too many"
        raise UserError(f"datasets={spec}: {folder}: {names[0]} is {problem}, nshards.txt says {text} shard(s)")
