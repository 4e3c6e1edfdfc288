"""Pairs through Hugging Face `datasets`: a local folder (parquet, saved data set) or a name on the hub."""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample
from clipx.errors import UserError
from clipx.utils.hub import quiet_hub
from clipx.utils.registry import lookup, suggest

PROBES = 64  # rows whose bytes enter the fingerprint


class HFPairs:
    """Rows of a data set in memory-mapped Arrow files; the caption column holds a text or a list of texts."""

    streaming: Literal[False] = False

    def __init__(self, config: DataConfig) -> None:
        lookup(CHOICES, config.captions, "data.captions")
        self.captions = config.captions
        self.image, self.caption = config.image_column, config.caption_column
        self.rows = load(config, streaming=False)
        self.problems: Sequence[str] = []
        if not len(self.rows):
            raise UserError(f"data.root={config.root} has no rows in split {config.split}")
        self.fingerprint = f"{len(self)}:{self._digest()}"

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, sample_id: int) -> str:
        return f"row {sample_id}"

    def pair(self, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        row = self.rows[sample_id]
        return image_bytes(row[self.image]), caption_from(row[self.caption], self.captions, generator)

    def image_of(self) -> None:
        return None

    def _digest(self) -> str:
        # datasets' own fingerprint depends on paths and on its version, so a copied folder would be other data
        digest = hashlib.sha256()
        for k in range(PROBES):
            row = self.rows[k * (len(self) - 1) // (PROBES - 1)]
            digest.update(repr((row[self.caption], _without_folder(row[self.image]))).encode())
        return digest.hexdigest()[:16]


def load(config: DataConfig, streaming: bool) -> Any:
    """The split of the data set, images as encoded bytes.

    Raises:
        UserError: it is neither here nor can it be fetched, or lacks a column.
    """
    import datasets

    assert config.root is not None
    folder = Path(config.root)
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            saved = datasets.load_from_disk(config.root)
            split = saved[config.split] if (folder / "dataset_dict.json").is_file() else saved
            rows = split.to_iterable_dataset() if streaming else split
        else:
            with quiet_hub(fetching=not folder.is_dir()):
                rows = datasets.load_dataset(config.root, split=config.split, streaming=streaming)
    except Exception as error:  # builders raise whatever they like, the hub's client a dozen kinds
        reason = " ".join(str(error).split()[:30])
        raise UserError(f"data.root={config.root}: split {config.split} could not be loaded: {reason}") from error
    features = rows.features or {}
    for key in ("image_column", "caption_column"):
        column = getattr(config, key)
        if features and column not in features:
            raise UserError(f"data.{key}={column} is not a column of {config.root}; {suggest(column, features)}")
    return rows.cast_column(config.image_column, datasets.Image(decode=False))


def image_bytes(cell: dict[str, Any] | None) -> bytes:
    """The encoded image of a cell. Raises BadSample."""
    if cell is None or (cell["bytes"] is None and cell["path"] is None):
        raise BadSample("no image")
    if cell["bytes"] is not None:
        return bytes(cell["bytes"])
    try:
        return Path(cell["path"]).read_bytes()
    except OSError as error:
        raise BadSample(f"cannot be read ({error})") from error


def _without_folder(cell: dict[str, Any] | None) -> dict[str, Any] | None:
    """The cell with the file's name for its path, which for a folder of image files is absolute."""
    return cell and {**cell, "path": cell["path"] and Path(cell["path"]).name}


def _first(captions: list[str], generator: random.Random) -> str:
    return captions[0]


def _random(captions: list[str], generator: random.Random) -> str:
    return generator.choice(captions)


CHOICES = {"first": _first, "random": _random}


def caption_from(cell: str | list[str] | None, captions: str, generator: random.Random) -> str:
    """A caption from a cell that holds one or several. Raises BadSample."""
    several = [cell] if isinstance(cell, str) else cell
    if not several or not all(isinstance(c, str) for c in several):
        raise BadSample("no caption")
    return texts.checked(CHOICES[captions](several, generator))
