"""Read files, shards and images of evaluation sets.

No sample is ever skipped. An unusable sample stops the evaluation with an error that names the sample, because a score
over fewer examples is a different score. Images are decoded on access.
"""

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL.Image import Image

from clipx.data.preprocess.images import MAX_PIXELS, BadSample, decode
from clipx.data.shards.reader import Shards
from clipx.errors import UserError
from clipx.utils.files import content_hash

SPLIT_NAMES = ("train", "val", "dev", "test")


def short_name(folder: Path) -> str:
    """Return the last component of the path, or the last two if the last is a split: `flickr8k/test`."""
    parts = folder.resolve().parts
    return "/".join(parts[-2:] if parts[-1] in SPLIT_NAMES else parts[-1:])


def require_folder(spec: str, folder: Path) -> None:
    """Raise UserError if the data set's folder is missing; the message says how to get the data set."""
    if folder.is_dir():
        return
    if folder.name.startswith("scenes"):
        hint = "run `clipx train recipe=demo` to render the scenes sets"
    elif spec.startswith("wds:"):
        hint = f"get it with `hf download clip-benchmark/{folder.name} --repo-type dataset --local-dir {folder}`"
    else:
        hint = "give the folder that holds its .tar shards, for example as img2dataset writes them"
    raise UserError(f"datasets={spec}: no folder {folder}; {hint}")


def require_file(spec: str, path: Path, content: str) -> str:
    """Return the text of a file.

    Raises UserError: the file is missing or not UTF-8; the message has `content`, a description of the file.
    """
    if not path.is_file():
        raise UserError(f"datasets={spec}: {path} is missing; it should hold {content}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"datasets={spec}: {path} is not UTF-8; it should hold {content}") from None


def open_shards(spec: str, folder: Path, columns: tuple[str, ...]) -> Shards:
    """Open the shards of one split.

    Raises UserError: no samples, a corrupt shard, or a sample without one of `columns`.
    """
    shards = Shards.open(folder, columns)
    if shards.problems:
        count = len(shards.problems)
        raise UserError(f"datasets={spec}: {count} corrupt sample(s) in {folder}, first {shards.problems[0]}")
    return shards


def refuse(spec: str, shards: Shards, index: int, problem: str) -> NoReturn:
    """Raise UserError with the data set, the sample and the problem."""
    raise UserError(f"datasets={spec}: {shards.folder.name}/{shards.where(index)}: {problem}")


def sample_text(spec: str, shards: Shards, index: int, column: str) -> str:
    """Return the stripped text of a sample's member. Raises UserError: the member cannot be read or is not UTF-8."""
    try:
        return shards.read(index, column).decode("utf-8").strip()
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except UnicodeDecodeError:
        refuse(spec, shards, index, f"its .{column} is not UTF-8")


def sample_json(spec: str, shards: Shards, index: int) -> dict[str, object]:
    """Return the object in a sample's .json. Raises UserError: the .json cannot be read or is not an object."""
    try:
        value = json.loads(shards.read(index, "json"))
    except BadSample as error:
        refuse(spec, shards, index, str(error))
    except ValueError:  # includes invalid UTF-8
        refuse(spec, shards, index, "its .json is corrupt")
    if not isinstance(value, dict):
        refuse(spec, shards, index, "its .json is not an object")
    return value


Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


class Images(Sequence[Image]):
    """RGB images by index; picklable."""

    def __init__(self, length: int, fingerprint: str) -> None:
        """`fingerprint` changes with the content."""
        self.length = length
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return self.length

    @abstractmethod
    def at(self, index: int) -> Image:
        """Return image `index`, in 0..len-1. Raises UserError if it is corrupt; the message names the image."""

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Image]: ...
    def __getitem__(self, index: int | slice) -> Image | Sequence[Image]:
        if isinstance(index, slice):
            return [self.at(i) for i in range(len(self))[index]]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.at(index)


class ShardImages(Images):
    """Images in webdataset shards."""

    def __init__(self, spec: str, shards: Shards) -> None:
        super().__init__(len(shards), shards.content_hash())
        self.spec = spec
        self.shards = shards

    def at(self, index: int) -> Image:
        try:
            return decode(self.shards.read(index, "image"))
        except BadSample as error:
            refuse(self.spec, self.shards, index, str(error))


class FileImages(Images):
    """Image files of any format that PIL reads: some .jpg files of Oxford-IIIT Pet are GIFs."""

    def __init__(self, spec: str, root: Path, paths: Sequence[Path], boxes: Sequence[Box] | None = None) -> None:
        """The fingerprint is a hash of `boxes`, and of each file's path relative to `root`, size and modification time.

        `boxes`: the part of each image that is used; None: all.

        Raises UserError: a file is missing.
        """
        self.spec = spec
        self.paths = paths
        self.boxes = boxes
        try:
            stats = [path.stat() for path in paths]
        except OSError as error:
            raise UserError(f"datasets={spec}: {error.filename} is missing") from None
        names = [Path(os.path.relpath(path, root)).as_posix() for path in paths]
        files = [(n, s.st_size, s.st_mtime_ns) for n, s in zip(names, stats, strict=True)]
        super().__init__(len(paths), content_hash(files if boxes is None else [files, boxes]))

    def at(self, index: int) -> Image:
        path = self.paths[index]
        try:
            with Pillow.open(path) as image:
                if image.width * image.height <= MAX_PIXELS:
                    return image.convert("RGB") if self.boxes is None else image.convert("RGB").crop(self.boxes[index])
        except Exception as error:  # PIL's decoders raise OSError, SyntaxError, struct.error, ... on corrupt files
            problem = f"corrupt image ({type(error).__name__})"
            raise UserError(f"datasets={self.spec}: {path}: {problem}") from error
        raise UserError(f"datasets={self.spec}: {path}: more than {MAX_PIXELS} pixels")


class SomeImages(Images):
    """A subset of another set of images."""

    def __init__(self, images: Images, chosen: list[int]) -> None:
        super().__init__(len(chosen), content_hash([images.fingerprint, chosen]))
        self.images = images
        self.chosen = chosen

    def at(self, index: int) -> Image:
        return self.images.at(self.chosen[index])


class ArrayImages(Images):
    """Images in memory, such as CIFAR and STL-10."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        """`pixels`: uint8 [n, H, W, 3]."""
        super().__init__(len(pixels), content_hash(hashlib.sha256(pixels.data).hexdigest()))
        self.pixels = pixels

    def at(self, index: int) -> Image:
        return Pillow.fromarray(self.pixels[index])


def read_json(spec: str, path: Path, content: str, kind: type = dict) -> Any:
    """Return the object in a JSON file, or the list if `kind` is list; `content` describes the file in messages.

    Raises UserError: the file is missing or corrupt, or holds a value of another type or an empty list.
    """
    text = require_file(spec, path, content)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind) or value == []:
        raise UserError(f"datasets={spec}: {path} is corrupt; it should hold {content}")
    return value


def entries(
    spec: str, path: Path, value: dict[str, object], key: str, fields: dict[str, type]
) -> list[dict[str, object]]:
    """Return the list `key` of the JSON object `value`; each entry must have `fields` (name -> type).

    Raises UserError: the list or a field is missing or of the wrong type; the message names the file and the field.
    """
    found = value.get(key)
    if not isinstance(found, list):
        raise UserError(f'datasets={spec}: {path} has no list "{key}"')
    for number, entry in enumerate(found):
        for name, kind in fields.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise UserError(f'datasets={spec}: {path}: "{key}" number {number} has no "{name}" ({kind.__name__})')
    return found


def text_fields(spec: str, where: str, entry: object, names: tuple[str, ...]) -> list[str]:
    """Return the texts of an entry's fields `names`. Raises UserError: a field is missing, empty or not a text."""
    values = [entry.get(name) if isinstance(entry, dict) else None for name in names]
    for name, value in zip(names, values, strict=True):
        if not (isinstance(value, str) and value.strip()):
            raise UserError(f'datasets={spec}: {where} has no "{name}"')
    return [str(value) for value in values]
