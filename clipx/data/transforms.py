"""Pixels: PIL images to tensors, for training and for evaluation."""

import random
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clipx.config import DataConfig
from clipx.errors import UserError
from clipx.types import Inputs

RESAMPLING = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "nearest": Image.Resampling.NEAREST,
}


class TrainTransform:
    """RandomResizedCrop, flip and RandAugment, as uint8; each call's randomness comes from the given generator only."""

    def __init__(self, config: DataConfig, inputs: Inputs) -> None:
        low, high = config.crop_scale if len(config.crop_scale) == 2 else (0.0, 0.0)
        if not 0 < low <= high <= 1:
            raise UserError(f"data.crop_scale={config.crop_scale} must be [low, high] with 0 < low <= high <= 1")
        self.scale = (low, high)
        self.flip = config.flip
        self.size = inputs.image_size
        self.resampling = RESAMPLING[inputs.interpolation]
        self.augment = _rand_augment(*config.rand_augment) if config.rand_augment else None

    def __call__(self, image: Image.Image, generator: random.Random) -> Tensor:
        """uint8 [3, H, W]."""
        box = _crop(image.width, image.height, self.scale, generator)
        image = image.resize((self.size, self.size), self.resampling, box=box)
        if self.flip and generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.augment is not None:
            with torch.random.fork_rng(devices=[]):  # torchvision draws from the global state of torch
                torch.default_generator.manual_seed(generator.getrandbits(62))
                image = self.augment(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _rand_augment(operations: int, magnitude: int) -> Callable[[Image.Image], Image.Image]:
    """RandAugment (Cubuk et al. 2020) with magnitudes in 0..10, as its authors count them."""
    from torchvision.transforms import RandAugment

    augment: Callable[[Image.Image], Image.Image] = RandAugment(operations, magnitude, num_magnitude_bins=11)
    return augment


def _crop(
    width: int, height: int, scale: tuple[float, float], generator: random.Random
) -> tuple[float, float, float, float]:
    """A box of a random share of the area and an aspect ratio in 3/4..4/3, as torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = width * height * generator.uniform(*scale)
        ratio = np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
        if w <= width and h <= height:
            left, top = generator.uniform(0, width - w), generator.uniform(0, height - h)
            return left, top, left + w, top + h
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def normalise(pixels: Tensor, inputs: Inputs) -> Tensor:
    """uint8 [b, 3, H, W] to float32 with the towers' mean and standard deviation, on the pixels' device."""
    mean = torch.tensor(inputs.mean, device=pixels.device).view(3, 1, 1) * 255
    std = torch.tensor(inputs.std, device=pixels.device).view(3, 1, 1) * 255
    return (pixels.float() - mean) / std


def evaluation_transform(inputs: Inputs) -> Callable[[Image.Image], Tensor]:
    """open_clip's own evaluation transform: float32 [3, H, W], normalised."""
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
