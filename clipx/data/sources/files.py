"""Pairs from lists of image files and captions: COCO annotations, Karpathy's splits, CSV and TSV tables."""

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import BadSample, read_error
from clipx.data.sources.base import PairSource
from clipx.errors import UserError
from clipx.utils.registry import lookup, suggest

SAMPLED = 64  # number of evenly spaced samples that represent a data set in hashes
Row = tuple[str, str]  # path of an image (absolute, or below the folder of images), caption
csv.field_size_limit(2**31 - 1)  # with the default, a caption above 128 KiB makes the whole file unreadable


class PackedTexts:
    """A list of texts in two arrays, shared by all loader processes.

    A list of Python strings would be copied into every process, because reading a string changes its reference count.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        self._data: NDArray[np.uint8] = np.frombuffer(b"".join(encoded), np.uint8)
        self._ends: NDArray[np.int64] = np.cumsum([0, *map(len, encoded)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        begin, end = self._ends[index], self._ends[index + 1]
        return self._data[begin:end].tobytes().decode("utf-8", "surrogatepass")

    def tobytes(self) -> bytes:
        """Return bytes that identify the list, to compute a hash."""
        return self._data.tobytes() + self._ends.tobytes()


def evenly_spaced(count: int) -> list[int]:
    """Return SAMPLED evenly spaced numbers from 0 to count - 1; some are equal if there are fewer."""
    return [k * (count - 1) // (SAMPLED - 1) for k in range(SAMPLED)]


def sizes_of(paths: list[Path]) -> list[int]:
    """Return the bytes of each file, -1 if it cannot be read."""
    return [_size(path) for path in paths]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):  # ValueError: a NUL byte in the name
        return -1


class FilePairs(PairSource):
    """Pairs from rows of (image file, caption)."""

    draws_caption = True  # among the captions kept; with captions="first" or "each" a sample keeps only one

    def __init__(self, folder: Path, rows: list[Row], captions: str, problems: list[str]) -> None:
        """Build samples from rows whose image paths are absolute or below `folder`.

        `problems`: messages about rows that were left out.

        captions="each" gives one sample per row. The other values give one sample per image: "first" with its first
        caption, "random" with a random one of its captions in each epoch.
        """
        self.folder = folder
        self.problems = problems
        captions_kept = lookup({"each": 1, "random": None, "first": 1}, captions, "data.captions")  # None: all
        if captions == "each":
            samples = [[row] for row in rows]
        else:
            # put the rows of an image together; images are in the order of their first rows
            first_row = {name: i for i, (name, _) in reversed(list(enumerate(rows)))}
            ordered = sorted(rows, key=lambda row: first_row[row[0]])
            samples = [list(group)[:captions_kept] for _, group in groupby(ordered, key=lambda row: row[0])]
        self._names = PackedTexts(sample[0][0] for sample in samples)
        self._captions = PackedTexts(caption for sample in samples for _, caption in sample)
        self._starts: NDArray[np.int64] = np.cumsum([0, *map(len, samples)])  # index of each sample's first caption
        digest = hashlib.sha256(self._names.tobytes() + self._captions.tobytes() + self._starts.tobytes())
        self.fingerprint = f"{len(self)}:{digest.hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._names)

    def where(self, sample_id: int) -> str:
        return self._names[sample_id]

    def image(self, sample_id: int) -> bytes:
        path = self.folder / self._names[sample_id]
        try:
            return path.read_bytes()
        except ValueError as error:  # a NUL byte in the name
            raise BadSample(f"cannot be read ({error})") from error
        except OSError as error:
            raise read_error(error, path) from error

    def captions(self, sample_id: int) -> list[str]:
        return [self._captions[i] for i in range(self._starts[sample_id], self._starts[sample_id + 1])]

    def image_sizes(self) -> list[int]:
        return sizes_of([self.folder / self._names[i] for i in evenly_spaced(len(self))])

    def image_of(self) -> NDArray[np.int32] | None:
        numbers: dict[str, int] = {}
        of_each = (numbers.setdefault(self._names[i], len(numbers)) for i in range(len(self)))
        images = np.fromiter(of_each, np.int32, len(self))
        return images if len(numbers) < len(self) else None


def coco(folder: Path, annotations: Path, config: DataConfig) -> FilePairs:
    """Return the pairs of a captions_*.json in MSCOCO's format, with the images in `folder`.

    Raises UserError if the file contains no caption annotations.
    """
    content = _read_json(annotations)
    try:
        names = {int(image["id"]): str(image["file_name"]) for image in content["images"]}
        captions = [(int(a["image_id"]), str(a["caption"])) for a in content["annotations"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{annotations} holds no caption annotations in MSCOCO's format ({type(error).__name__}: {error}): "
            "data.annotations must be a captions_*.json"
        ) from error
    # Downloaded annotations must not read files outside the folder. A table, written by the user, may name any path.
    outside = {i for i, name in names.items() if _leaves_folder(name)}
    rows = [(names[i], caption) for i, caption in captions if i in names and i not in outside]
    unknown = Counter(i for i, _ in captions if i not in names)
    problems = [f"{annotations.name}: no image {i} for {n} captions" for i, n in unknown.items()]
    problems += [f"{annotations.name}: {names[i]} is outside {folder}, not read" for i in sorted(outside)]
    return _file_pairs(folder, annotations, rows, config.captions, problems)


def karpathy(folder: Path, annotations: Path, config: DataConfig) -> FilePairs:
    """Return the training pairs of a JSON in Karpathy's format (Flickr30k, MSCOCO), with the images in `folder`.

    These are the splits `train` and `restval`. Raises UserError if the JSON has another format.
    """
    content = _read_json(annotations)
    try:
        all_rows = [
            (str(Path(image.get("filepath", "")) / image["filename"]), str(sentence["raw"]))
            for image in content["images"]
            if image["split"] in ("train", "restval")
            for sentence in image["sentences"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{annotations} holds no captions in Karpathy's format ({type(error).__name__}: {error}): "
            "data.annotations must be a dataset_*.json"
        ) from error
    outside = {name for name, _ in all_rows if _leaves_folder(name)}
    problems = [f"{annotations.name}: {name} is outside {folder}, not read" for name in sorted(outside)]
    rows = [(name, caption) for name, caption in all_rows if name not in outside]
    return _file_pairs(folder, annotations, rows, config.captions, problems)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON in UTF-8 ({error})") from error


def _leaves_folder(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts


def table(folder: Path, path: Path, config: DataConfig, delimiter: str) -> FilePairs:
    """Return the pairs of a text table with a header line and columns data.image_column and data.caption_column.

    Raises UserError if a column is missing, the file is not UTF-8, or it contains no pairs.
    """
    problems: list[str] = []
    rows, last = list[Row](), 1  # and the line where the last row ended
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # strict, because otherwise a quote without its end would swallow the rows that follow
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in _rows(reader, path.name, config, problems):
                rows.append(row)
                last = reader.line_num
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a UTF-8 text table ({error})") from error
    except csv.Error as error:
        raise UserError(
            f"{path}: line {last + 1} or later: {error}; a field that starts with a quote ends with one, and quotes in "
            "it are doubled"
        ) from error
    return _file_pairs(folder, path, rows, config.captions, problems)


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


def _file_pairs(folder: Path, path: Path, rows: list[Row], captions: str, problems: list[str]) -> FilePairs:
    if not rows:
        raise UserError("; ".join([f"{path} holds no pairs", *problems[:3]]))
    return FilePairs(folder, rows, captions, problems)
