"""Read shards, files and images of evaluation sets.

No sample is ever skipped. An unusable sample stops the evaluation with an error that names the sample, because a score
over fewer examples is a different score. `open_dataset` and `Images` put the set's specification before each error.
"""

import hashlib
import json
import os
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL.Image import Image

from clipx.data.preprocess.images import BadSample, decode, open_image, read_image, to_rgb
from clipx.data.shards.reader import Shards
from clipx.data.sources.base import PairSource
from clipx.data.sources.files import SUFFIXES
from clipx.errors import UserError, prefixed
from clipx.utils.files import HIDDEN, cache_home, content_hash, write_text
from clipx.utils.trust import load_json

SPLIT_NAMES = ("train", "val", "dev", "test")
MANY = 20_000
SETTLED = 2 * 10**9  # nanoseconds; no drive has coarser modification times
File = tuple[str, int, int]  # path or name, bytes, modification time in nanoseconds
Paths = Sequence[Path | str]
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


def scan(folders: list[Path]) -> list[list[File]]:
    """Return the images of each folder, sorted by name.

    From MANY images on, the answer is kept in the cache folder until a folder changes, because looking at a million
    files takes minutes. A folder changes when a file is added, removed or renamed, not when it is overwritten.

    Raises UserError: a folder has no images, or a file cannot be read.
    """
    changed = [folder.stat().st_mtime_ns for folder in folders]
    kept = cache_home() / "listings" / f"{content_hash([str(folder.absolute()) for folder in folders])}.json"
    with suppress(OSError, ValueError, KeyError):
        if (known := json.loads(kept.read_bytes()))["changed"] == changed:
            return [[(name, size, when) for name, size, when in of_folder] for of_folder in known["files"]]
    found = [_scan(folder) for folder in folders]
    if sum(map(len, found)) >= MANY and max(changed) < time.time_ns() - SETTLED:
        write_text(kept, json.dumps({"changed": changed, "files": found}))
    return found


def _scan(folder: Path) -> list[File]:
    found = []
    try:
        for entry in os.scandir(folder):
            if entry.name.lower().endswith(SUFFIXES) and entry.name[0] != ".":
                status = entry.stat()
                found.append((entry.name, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    if not found:
        raise UserError(f"{folder} holds no images")
    return sorted(found)


def class_folders(folder: Path) -> list[Path]:
    """Return the folders of classes in their order: by number if all names are numbers. Hidden ones are left out."""
    found = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in HIDDEN]
    by_number = all(path.name.isdecimal() for path in found)
    return sorted(found, key=lambda path: (int(path.name) if by_number else 0, path.name))


def short_name(folder: Path) -> str:
    """Return the last component of the path, or the last two if the last is a split: `flickr8k/test`."""
    parts = folder.resolve().parts
    return "/".join(parts[-2:] if parts[-1] in SPLIT_NAMES else parts[-1:])


def open_shards(folder: Path, columns: tuple[str, ...]) -> Shards:
    """Open the shards of one split.

    Raises UserError: no samples, a corrupt shard, or a sample without one of `columns`.
    """
    shards = Shards.open(folder, columns)
    if shards.problems:
        raise UserError(f"{len(shards.problems)} corrupt sample(s) in {folder}, first {shards.problems[0]}")
    return shards


def refuse(shards: Shards, index: int, problem: str) -> NoReturn:
    """Raise UserError with the sample and the problem."""
    raise UserError(f"{shards.folder.name}/{shards.where(index)}: {problem}")


def sample_text(shards: Shards, index: int, column: str) -> str:
    """Return the stripped text of a sample's member. Raises UserError: the member cannot be read or is not UTF-8."""
    try:
        return shards.read(index, column).decode("utf-8-sig").strip()
    except BadSample as error:
        refuse(shards, index, str(error))
    except UnicodeDecodeError:
        refuse(shards, index, f"its .{column} is not UTF-8")


def sample_json(shards: Shards, index: int) -> dict[str, object]:
    """Return the object in a sample's .json. Raises UserError: the .json cannot be read or is not an object."""
    try:
        value = load_json(shards.read(index, "json"))
    except BadSample as error:
        refuse(shards, index, str(error))
    except ValueError:  # includes invalid UTF-8
        refuse(shards, index, "its .json is corrupt")
    if not isinstance(value, dict):
        refuse(shards, index, "its .json is not an object")
    return value


def text_fields(where: str, entry: object, names: tuple[str, ...]) -> list[str]:
    """Return the texts of an entry's fields `names`. Raises UserError: a field is missing, empty or not a text."""
    values = [entry.get(name) if isinstance(entry, dict) else None for name in names]
    for name, value in zip(names, values, strict=True):
        if not (isinstance(value, str) and value.strip()):
            raise UserError(f'{where} has no "{name}"')
    return [str(value) for value in values]


class Images(Sequence[Image]):
    """RGB images by index, decoded on access; picklable."""

    dataset = ""  # specification of the set that the images belong to

    def __init__(self, length: int, fingerprint: str) -> None:
        """`fingerprint` changes with the content."""
        self.length = length
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return self.length

    @abstractmethod
    def at(self, index: int) -> Image:
        """Return image `index`, in 0..len-1. Raises UserError if it is corrupt; the message names the image."""

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        with prefixed(f"datasets={self.dataset}"):
            return self.at(index)


class Placeholders(Images):
    """Grey images, for sets of which only embeddings exist."""

    def at(self, index: int) -> Image:
        return Pillow.new("RGB", (8, 8), "grey")


class ShardImages(Images):
    """Images in webdataset shards."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(len(shards), shards.content_hash())
        self.shards = shards

    def at(self, index: int) -> Image:
        try:
            return decode(self.shards.read(index, "image"))
        except BadSample as error:
            refuse(self.shards, index, str(error))


class SourceImages(Images):
    """Images of the samples `ids` of a source of pairs."""

    def __init__(self, source: PairSource, ids: list[int]) -> None:
        super().__init__(len(ids), content_hash([source.fingerprint, *source.image_sizes(), ids]))
        self.source = source
        self.ids = ids

    def at(self, index: int) -> Image:
        sample_id = self.ids[index]
        try:
            return decode(self.source.image(sample_id))
        except BadSample as error:
            raise UserError(f"{self.source.where(sample_id)}: {error}") from error


class AlternatingImages(Images):
    """The images of several sets of equal length in turn: the first of each set, then the second of each set, ..."""

    def __init__(self, sets: Sequence[Images]) -> None:
        super().__init__(sum(map(len, sets)), content_hash([images.fingerprint for images in sets]))
        self.sets = sets

    def at(self, index: int) -> Image:
        row, number = divmod(index, len(self.sets))
        return self.sets[number].at(row)


class FileImages(Images):
    """Image files of any format that PIL reads: some .jpg files of Oxford-IIIT Pet are GIFs."""

    def __init__(
        self,
        root: Path,
        paths: Paths,
        boxes: Sequence[Box] | None = None,
        files: list[File] | None = None,
        anywhere: bool = False,
    ) -> None:
        """The fingerprint is a hash of `boxes`, and of each file's path relative to `root`, size and modification time.

        Args:
            boxes: the part of each image that is used; None: all.
            files: path relative to `root`, size and time of each image, if they are known.
            anywhere: the images need not be below `root`, because the user has written the paths.

        Raises UserError: a file is missing, or (as a downloaded list may have it) outside `root`.
        """
        self.paths = paths
        self.boxes = boxes
        if files is None:
            names = [Path(os.path.relpath(path, root)).as_posix() for path in paths]
            outside = [path for path, name in zip(paths, names, strict=True) if name.startswith("../")]
            if outside and not anywhere:
                raise UserError(f"{outside[0]} is outside {root}, not read")
            try:
                stats = [Path(path).stat() for path in paths]
            except OSError as error:
                missing = isinstance(error, FileNotFoundError)
                problem = "is missing" if missing else f"cannot be read ({error.strerror})"
                raise UserError(f"{error.filename} {problem}") from None
            files = [(n, s.st_size, s.st_mtime_ns) for n, s in zip(names, stats, strict=True)]
        super().__init__(len(paths), content_hash(files if boxes is None else [files, boxes]))

    def at(self, index: int) -> Image:
        path = Path(self.paths[index])
        try:
            image = to_rgb(open_image(read_image(path), any_format=True))
        except BadSample as error:
            raise UserError(f"{path}: {error}") from error
        return image if self.boxes is None else image.crop(self.boxes[index])


class ArrayImages(Images):
    """Images in memory, such as CIFAR and STL-10."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        """`pixels`: uint8 [n, H, W, 3]."""
        super().__init__(len(pixels), content_hash(hashlib.sha256(pixels.data).hexdigest()))
        self.pixels = pixels

    def at(self, index: int) -> Image:
        return Pillow.fromarray(self.pixels[index])


class SomeImages(Images):
    """A subset of another set of images."""

    def __init__(self, images: Images, chosen: list[int]) -> None:
        super().__init__(len(chosen), content_hash([images.fingerprint, chosen]))
        self.images = images
        self.chosen = chosen

    def at(self, index: int) -> Image:
        return self.images.at(self.chosen[index])
