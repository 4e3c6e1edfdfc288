"""Where training pairs come from: image-text pairs with a stable id and random access."""

import json
import random
from pathlib import Path
from typing import Protocol

from PIL import Image

from clipx.config import DataConfig
from clipx.data.images import BadSample, decode
from clipx.data.shards import Shards
from clipx.errors import UserError
from clipx.tables import lookup


class Pairs(Protocol):
    """Pairs by sample id; `problems` are samples left out, found without decoding."""

    problems: list[str]

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
            return str(generator.choice(captions))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadSample(f'.json has no "captions" list ({type(error).__name__}: {error})') from error


def _shards(config: DataConfig) -> Pairs:
    if config.root is None:
        raise UserError(f"data.root is needed for data={config.name}: the folder that holds {config.split}/*.tar")
    return ShardPairs(Path(config.root) / config.split, config.captions)


def _scenes(config: DataConfig) -> Pairs:
    from clipx.data import scenes

    root = scenes.ensure(config.scenes, Path(config.root) if config.root else None)
    return ShardPairs(root / config.split, config.captions)


SOURCES = {"scenes": _scenes, "shards": _shards}


def open_source(config: DataConfig) -> Pairs:
    """The training pairs of a run; a new source is a function above and a line in SOURCES.

    Raises:
        UserError: unknown data.source, a missing root, an empty folder or no usable sample.
    """
    return lookup(SOURCES, config.source, "data.source")(config)
