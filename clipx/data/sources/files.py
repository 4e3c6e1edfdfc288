"""Pairs of image files and captions listed elsewhere: COCO's annotations, tables of paths and captions."""

import csv
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import DataConfig
from clipx.data.preprocess import captions as texts
from clipx.data.preprocess.images import BadSample
from clipx.data.sources.packed_strings import PackedTexts
from clipx.errors import UserError
from clipx.utils.registry import lookup, suggest

Row = tuple[str, str]  # path of an image below the folder, caption
csv.field_size_limit(2**31 - 1)  # the default refuses captions above 128 KiB, and with them the file


class FilePairs:
    """Rows of (image file, caption). A sample is a row (`each`), or an image with one of its captions."""

    streaming: Literal[False] = False

    def __init__(self, folder: Path, rows: list[Row], captions: str, problems: list[str]) -> None:
        self.folder = folder
        self.problems: Sequence[str] = problems
        # 0: all captions of an image are one sample's, k: the first k of them
        per_sample = lookup({"each": 1, "random": 0, "first": 1}, captions, "data.captions")
        if captions == "each":
            groups = [[row] for row in rows]
        else:
            # the images' order is that of their first rows, whatever the order of the others
            place = {name: i for i, name in reversed(list(enumerate(name for name, _ in rows)))}
            ordered = sorted(rows, key=lambda row: place[row[0]])  # stable
            groups = [list(group) for _, group in groupby(ordered, key=lambda row: row[0])]
        kept = [group[: per_sample or None] for group in groups]
        self._names = PackedTexts(group[0][0] for group in kept)
        self._captions = PackedTexts(caption for group in kept for _, caption in group)
        self._starts: NDArray[np.int64] = np.cumsum([0, *map(len, kept)])
        digest = hashlib.sha256(self._names.digest_bytes() + self._captions.digest_bytes() + self._starts.tobytes())
        self.fingerprint = f"{len(self)}:{digest.hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._names)

    def where(self, sample_id: int) -> str:
        return self._names[sample_id]

    def pair(self, sample_id: int, generator: random.Random) -> tuple[bytes, str]:
        begin, end = int(self._starts[sample_id]), int(self._starts[sample_id + 1])
        caption = texts.checked(self._captions[generator.randrange(begin, end)])
        try:
            return (self.folder / self._names[sample_id]).read_bytes(), caption
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise BadSample(f"cannot be read ({error})") from error

    def image_of(self) -> NDArray[np.int32] | None:
        numbers: dict[str, int] = {}
        of_each = (numbers.setdefault(self._names[i], len(numbers)) for i in range(len(self)))
        images = np.fromiter(of_each, np.int32, len(self))
        return images if len(numbers) < len(self) else None


def coco(folder: Path, annotations: Path, config: DataConfig) -> FilePairs:
    """Pairs of a captions_*.json as MSCOCO publishes it; images in `folder`.

    Raises:
        UserError: no such file, or no caption annotations in it.
    """
    content = _load_json(annotations)
    try:
        names = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
        written = [(int(a["image_id"]), str(a["caption"])) for a in content["annotations"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{annotations} holds no caption annotations of MSCOCO's format ({type(error).__name__}: {error}): "
            "data.annotations is a captions_*.json"
        ) from error
    # a downloaded file has no business outside the folder; a user's own table may name any path
    outside = {i for i, name in names.items() if Path(name).is_absolute() or ".." in Path(name).parts}
    rows = [(names[i], caption) for i, caption in written if i in names and i not in outside]
    lost = Counter(i for i, _ in written if i not in names)
    problems = [f"{annotations.name}: no image {i}, which has {n} captions" for i, n in lost.items()]
    problems += [f"{annotations.name}: {names[i]} is outside {folder}, not read" for i in sorted(outside)]
    return _build(folder, annotations, rows, config.captions, problems)


def table(folder: Path, path: Path, config: DataConfig, delimiter: str) -> FilePairs:
    """Pairs of a text table with a header line; its columns are data.image_column and data.caption_column.

    Raises:
        UserError: no such file, no UTF-8, or a column that is not there.
    """
    problems: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(_rows(csv.reader(file, delimiter=delimiter), path.name, config, problems))
    except FileNotFoundError:
        raise UserError(f"data.annotations: no file {path}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a UTF-8 text table ({error})") from error
    return _build(folder, path, rows, config.captions, problems)


def _rows(lines: Iterator[list[str]], name: str, config: DataConfig, problems: list[str]) -> Iterator[Row]:
    header = next(lines, [])
    for key in ("image_column", "caption_column"):
        column = getattr(config, key)
        if column not in header:
            raise UserError(f"data.{key}={column} is not a column of {name}; {suggest(column, header)}")
    image, caption = header.index(config.image_column), header.index(config.caption_column)
    for number, line in enumerate(lines, start=2):
        if len(line) == len(header):
            yield line[image], line[caption]
        elif line:
            problems.append(f"{name}: row {number} has {len(line)} fields, not {len(header)}")


def _build(folder: Path, source: Path, rows: list[Row], captions: str, problems: list[str]) -> FilePairs:
    if not rows:
        raise UserError("; ".join([f"{source} holds no pairs", *problems[:3]]))
    return FilePairs(folder, rows, captions, problems)


def _load_json(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        loaded: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"data.annotations: no file {path}") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON in UTF-8 ({error})") from error
    return loaded
