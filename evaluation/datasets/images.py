"""Images of an evaluation set, decoded on access. A corrupt image raises an error that names the image."""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL.Image import Image

from clipx.data.preprocess.images import MAX_PIXELS, BadSample, decode
from clipx.data.shards.reader import Shards
from clipx.errors import UserError
from clipx.utils.files import content_hash
from evaluation.datasets.folder import refuse

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
