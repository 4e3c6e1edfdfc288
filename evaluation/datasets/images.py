"""Images of an evaluation set, decoded on access. A damaged one stops the evaluation with its name."""

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
from evaluation.datasets.folder import refuse


class Images(Sequence[Image]):
    """RGB images by number; may be sent to another process."""

    @abstractmethod
    def at(self, index: int) -> Image:
        """The image of a number in 0..len-1; UserError naming a damaged one."""

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
    """Of a split in shards."""

    def __init__(self, spec: str, shards: Shards) -> None:
        self.spec = spec
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    def at(self, index: int) -> Image:
        """Decoded."""
        try:
            return decode(self.shards.read(index, "image"))
        except BadSample as error:
            refuse(self.spec, self.shards, index, str(error))


class FileImages(Images):
    """Files of any format that PIL reads: Oxford's pets hold some GIFs that are called .jpg."""

    def __init__(self, spec: str, paths: Sequence[Path]) -> None:
        self.spec = spec
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def at(self, index: int) -> Image:
        """Decoded."""
        path = self.paths[index]
        try:
            with Pillow.open(path) as image:
                if image.width * image.height <= MAX_PIXELS:
                    return image.convert("RGB")
        except Exception as error:  # PIL's decoders raise OSError, SyntaxError, struct.error, ... on damage
            problem = f"damaged image ({type(error).__name__})"
            raise UserError(f"datasets={self.spec}: {path}: {problem}") from error
        raise UserError(f"datasets={self.spec}: {path}: more than {MAX_PIXELS} pixels")


class ArrayImages(Images):
    """Pixels that are in memory, as those of CIFAR and STL-10."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        """`pixels` [n, H, W, 3]."""
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def at(self, index: int) -> Image:
        """As PIL's."""
        return Pillow.fromarray(self.pixels[index])
