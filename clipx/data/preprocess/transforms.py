"""Image transforms for training and evaluation: PIL images to tensors.

torchvision's transforms draw from torch's global generator, but each sample needs a separate generator. This module
therefore draws the random crop itself.
"""

import math
import random
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import rgb_pixels, to_rgb
from clipx.data.preprocess.on_device import LARGEST, Box, Crops, Operations, Resize
from clipx.types import Pixels
from clipx.utils.registry import lookup

MIN_RATIO, MAX_RATIO = 3 / 4, 4 / 3  # width / height of a random crop


class TrainTransform:
    """Random resized crop, then flip, then RandAugment."""

    def __init__(self, config: DataConfig, inputs: Pixels) -> None:
        self.scale = (config.crop_scale[0], config.crop_scale[1])
        self.flip = config.flip
        self.size = inputs.image_size
        self.augment = Operations(config.rand_augment, self.size) if config.rand_augment else None
        self.interpolation = inputs.interpolation
        self.resize = lookup({"exact": self._exact, "fast": self._fast}, config.decode, "data.decode")
        self.on_device = Resize(self.size, self.interpolation) if config.augment == "device" else None

    def __call__(self, image: Image.Image, generator: random.Random) -> Tensor:
        """Return uint8 [3, H, W]; `image` need not be decoded yet. Raises BadSample if the image is corrupt."""
        box, flipped, operations = self.draw(*image.size, generator)
        pixels = self.resize(image, box)
        if flipped:
            pixels = pixels.flip(2)
        for operation in operations:
            assert self.augment is not None
            pixels = self.augment.apply(pixels, operation)
        return pixels

    def for_device(self, image: Image.Image | Tensor, generator: random.Random) -> tuple[Tensor, Crops | None]:
        """Return decoded pixels, uint8 [h, w, 3], and what the device has to do with them, b = 1. Raises BadSample.

        Without data.augment=device, return the result of `__call__` and None. `image` may be uint8 [H, W, 3].
        """
        if self.on_device is None:
            return self(Image.fromarray(image.numpy()) if isinstance(image, Tensor) else image, generator), None
        size = (image.shape[1], image.shape[0]) if isinstance(image, Tensor) else image.size
        box, flipped, operations = self.draw(*size, generator)
        decoded = image if isinstance(image, Tensor) else torch.from_numpy(rgb_pixels(image))
        pixels, crops = self.on_device.cut(decoded, box)
        if pixels.shape[0] * pixels.shape[1] > LARGEST:
            resized = self._exact(Image.fromarray(decoded.numpy()), box).permute(1, 2, 0)
            pixels, crops = self.on_device.cut(resized, (0, 0, self.size, self.size))
        crops.flags[0, 1] = flipped
        return pixels, crops._replace(operations=torch.tensor([operations], dtype=torch.int64))

    def finish(self, pixels: Tensor, crops: Crops, host: Crops) -> Tensor:
        """Return uint8 [b, 3, H, W] on the device, as `__call__` would, from what `for_device` returned for b images.

        `pixels`: uint8 [pixels, 3], those of all images. `host`: a copy of `crops` in CPU memory.
        """
        assert self.on_device is not None
        images = self.on_device(pixels, crops, host)
        images = torch.where(crops.flags[:, 1, None, None, None], images.flip(3), images)
        for operations in host.operations.unbind(1):
            assert self.augment is not None
            images = self.augment.apply_each(images, operations)
        return images

    def draw(self, width: int, height: int, generator: random.Random) -> tuple[Box, bool, list[int]]:
        """Draw the box, whether to flip, and RandAugment's operations for an image, always in this order."""
        box, flipped = crop_box(width, height, self.scale, generator), self.flip and generator.random() < 0.5
        return box, flipped, [] if self.augment is None else self.augment.draw(generator)

    @property
    def fixed(self) -> bool:
        """True if the transform always returns the central square of an image, flipped or not."""
        return self.scale == (1.0, 1.0) and self.augment is None

    def central_square(self, image: Image.Image) -> Tensor:
        """Return an image's central square as uint8 [3, H, W]; only if `fixed`. Raises BadSample like `__call__`."""
        return self.resize(image, crop_box(image.width, image.height, self.scale, random.Random(0)))

    def _exact(self, image: Image.Image, box: Box) -> Tensor:
        resampling = Image.Resampling[self.interpolation.upper()]
        resized = to_rgb(image).resize((self.size, self.size), resampling, box=box)
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1)

    def _fast(self, image: Image.Image, box: Box) -> Tensor:
        """Decode a JPEG at 1/2, 1/4 or 1/8 of its size if the box then has at least `size` pixels per side."""
        width, height = image.size
        min_size = (width * self.size / (box[2] - box[0]), height * self.size / (box[3] - box[1]))
        image.draft("RGB", (math.ceil(min_size[0]), math.ceil(min_size[1])))  # no effect on other formats
        pixels = torch.from_numpy(np.array(to_rgb(image)))
        x, y = pixels.shape[1] / width, pixels.shape[0] / height
        left, top = math.floor(box[0] * x), math.floor(box[1] * y)
        right, bottom = max(round(box[2] * x), left + 1), max(round(box[3] * y), top + 1)
        crop = pixels[top:bottom, left:right].permute(2, 0, 1)[None]
        antialias = self.interpolation != "nearest"
        return functional.interpolate(crop, (self.size, self.size), mode=self.interpolation, antialias=antialias)[0]


def crop_box(width: int, height: int, scale: tuple[float, float], generator: random.Random) -> Box:
    """Return a random box like torchvision's RandomResizedCrop: share of the area in `scale`, aspect ratio in 3/4..4/3.

    If none of ten random boxes fits into the image, return the largest central box with an aspect ratio in this range.
    This is the whole image if its aspect ratio is in the range. `scale` (1, 1) always gives the central square.
    """
    for _ in range(10):
        area = width * height * generator.uniform(*scale)
        ratio = np.exp(generator.uniform(np.log(MIN_RATIO), np.log(MAX_RATIO)))
        w, h = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
        if w <= width and h <= height:
            left, top = generator.uniform(0, width - w), generator.uniform(0, height - h)
            return left, top, left + w, top + h
    # Scale (1, 1) always ends here: a box of the whole area fits only at the image's exact ratio. The ten boxes are
    # drawn nevertheless, so that the flips are the same as in runs of earlier versions.
    ratio = 1.0 if scale == (1.0, 1.0) else min(max(width / height, MIN_RATIO), MAX_RATIO)
    w, h = min(width, height * ratio), min(height, width / ratio)
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


class Normalise:
    """Normalises uint8 [b, 3, H, W] to float32 with the image tower's mean and standard deviation, on the device."""

    def __init__(self, inputs: Pixels, device: torch.device) -> None:
        self.mean = torch.tensor(inputs.mean, device=device).view(3, 1, 1) * 255
        self.std = torch.tensor(inputs.std, device=device).view(3, 1, 1) * 255

    def __call__(self, pixels: Tensor) -> Tensor:
        return pixels.float().sub_(self.mean).div_(self.std)


def evaluation_transform(inputs: Pixels) -> Callable[[Image.Image], Tensor]:
    """Return open_clip's evaluation transform: a PIL image to normalised float32 [3, H, W]."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    config = PreprocessCfg(
        size=inputs.image_size,
        mean=inputs.mean,
        std=inputs.std,
        interpolation=inputs.interpolation,
        resize_mode=inputs.resize_mode,
    )
    transform: Callable[[Image.Image], Tensor] = image_transform_v2(config, is_train=False)
    return transform
