"""Where training pairs come from: image-text pairs with a stable id and random access."""

import json
import random
from pathlib import Path
from typing import Protocol

from PIL import Image

from clipx.config import DataConfig
from clipx.data import scenes
from clipx.data.images import BadSample, decode
from clipx.data.shards import Shards
from clipx.errors import UserError
from clipx.tables import lookup


class Pairs(Protocol):
    """Pairs by sample id; `problems` are samples left out, found without decoding."""

    problems: list[str]
    fingerprint: str  # changes with the samples or their order

    def __len__(self) -> int: ...

    def where(self, sample_id: int) -> str:
        """A name of the sample for messages."""
        ...

    def pair(self, sample_id: int, generator: random.Random) -> tuple[Image.Image, str]:
        """The decoded image and one caption. Raises BadSample."""
        ...


class ShardPairs:
    """Pairs of webdataset shards."""

    def __init__(self, folder: Path, captions: str) -> None:
        self.read_caption = lookup({"first": self._first, "random": self._random}, captions, "data.captions")
        self.shards = Shards.open(folder, ("image", "txt" if captions == "first" else "json"))
        self.problems = self.shards.problems
        self.fingerprint = f"{len(self.shards)}:{self.shards.content_hash()}"

    def __len__(self) -> int:
        return len(self.shards)

    def where(self, sample_id: int) -> str:
        return self.shards.where(sample_id)

    def pair(self, sample_id: int, generator: random.Random) -> tuple[Image.Image, str]:
        caption = self.read_caption(sample_id, generator).strip()
        if not caption:
            raise BadSample("empty caption")
        return decode(self.shards.read(sample_id, "image")), caption

    def _first(self, sample_id: int, generator: random.Random) -> str:
        try:
            return self.shards.read(sample_id, "txt").decode()
        except UnicodeDecodeError as error:
            raise BadSample(f"caption is not UTF-8 ({error})") from error

    def _random(self, sample_id: int, generator: random.Random) -> str:
        try:
            captions = json.loads(self.shards.read(sample_id, "json"))["captions"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadSample(f'.json has no "captions" ({type(error).__name__}: {error})') from error
        if not isinstance(captions, list) or not captions or not all(isinstance(c, str) for c in captions):
            raise BadSample('"captions" in its .json is no list of texts')
        caption: str = generator.choice(captions)
        return caption


def _given(config: DataConfig) -> Path:
    if config.root is None:
        raise UserError(f"data.root is needed for data={config.name}: the folder that holds {config.split}/*.tar")
    return Path(config.root)


def _rendered(config: DataConfig) -> Path:
    return scenes.ensure(config.scenes, Path(config.root) if config.root else None)


SOURCES = {"scenes": _rendered, "shards": _given}


def root_folder(config: DataConfig) -> Path:
    """The folder of the training shards and of the evaluation sets that belong to them; scenes are made first.

    Raises:
        UserError: unknown data.source, or a missing root.
    """
    return lookup(SOURCES, config.source, "data.source")(config)


def open_source(config: DataConfig) -> Pairs:
    """The training pairs of a run.

    Raises:
        UserError: as `root_folder`, or an empty folder, or no usable sample.
    """
    return ShardPairs(root_folder(config) / config.split, config.captions)
