"""Resize, flip and RandAugment of a whole batch on the training device (data.augment=device).

A loader process draws the random numbers of a sample as always, decodes the image and cuts out the pixels that the
random box needs. The device resizes them: in float64 it computes exactly what PIL computes with integers, so the pixels
are PIL's. RandAugment's operations on a GPU may round differently.
"""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

import PIL
import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, _apply_op
from torchvision.transforms.v2.functional import equalize

from clipx.utils.device import to_device
from clipx.utils.registry import lookup

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
LARGEST = 768 * 768  # pixels that the device gets of an image; a loader process resizes larger ones
CHUNK = 2**26  # values [b, 3, H, W] that are resized at once, 512 MiB
ONE = 2.0**22  # PIL's weights are multiples of 1 / ONE
MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")  # operations of RandAugment that move pixels
TURNS = int(PIL.__version__.split(".")[0]) >= 13  # PIL 13 resizes some images first vertically, then horizontally


def _bicubic(x: Tensor) -> Tensor:
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


# name -> filter of PIL as a function of the absolute distance, and the distance from which it is 0
FILTERS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "bicubic": (_bicubic, 2),
    "bilinear": (lambda x: torch.where(x < 1, 1 - x, 0), 1),
}


class Crops(NamedTuple):
    """What is left to do for the b images of a batch on the device.

    A NamedTuple, because DataLoader pins its tensors: they are then copied while the device computes.
    """

    box: Tensor  # [b, 4]: left, top, right, bottom of what is resized; float32, as in PIL
    part: Tensor  # int64 [b, 4]: left, top, width, height of the pixels that were cut out
    flags: Tensor  # bool [b, 2]: whether x and y are exchanged in box, part and pixels; whether the result is flipped
    operations: Tensor  # int64 [b, n], see `Operations.draw`


class Resize:
    """PIL's resize with a box to S x S pixels, for all images of a batch."""

    def __init__(self, size: int, interpolation: str) -> None:
        """Raise UserError for an interpolation that is not in FILTERS."""
        self.size = size
        self.filter, self.support = lookup(
            FILTERS, interpolation, "with data.augment=device, the tower's interpolation"
        )

    def cut(self, pixels: Tensor, box: Box) -> tuple[Tensor, Crops]:
        """Return the pixels [h, w, 3] of an image [H, W, 3] that the resize of `box` reads, and its Crops (b = 1)."""
        height, width = pixels.shape[:2]
        turned = TURNS and height - self.size > max(0, 2 * (width - self.size))
        if turned:
            pixels, box, height, width = pixels.transpose(0, 1), (box[1], box[0], box[3], box[2]), width, height

        def needed(low: float, high: float, end: int) -> tuple[int, int]:
            margin = self.support * max((high - low) / self.size, 1) + 1
            return max(math.floor(low - margin), 0), min(math.ceil(high + margin), end)

        (left, right), (top, bottom) = needed(box[0], box[2], width), needed(box[1], box[3], height)
        part = torch.tensor([[left, top, right - left, bottom - top]])
        none = torch.empty(1, 0, dtype=torch.int64)
        return pixels[top:bottom, left:right], Crops(torch.tensor([box]), part, torch.tensor([[turned, False]]), none)

    def __call__(self, pixels: Tensor, crops: Crops, host: Crops) -> Tensor:
        """Return uint8 [b, 3, S, S].

        `pixels`: uint8 [pixels, 3], those of all images, row by row. `host`: a copy of `crops` in CPU memory.
        """
        width, height = host.part[:, 2:].amax(0).tolist()
        scale = float((host.box[:, 2:] - host.box[:, :2]).max()) / self.size
        taps = 2 * math.ceil(self.support * max(scale, 1)) + 1
        sizes = crops.part[:, 2] * crops.part[:, 3]
        starts = sizes.cumsum(0) - sizes
        step = max(1, CHUNK // (3 * width * height))
        chunks = zip(*(torch.split(of_all, step) for of_all in (crops.box, crops.part, starts)), strict=True)
        images = torch.cat([self._chunk(pixels, box, part, at, (width, height), taps) for box, part, at in chunks])
        upright = crops.flags[:, 0, None, None, None].logical_not()
        return torch.where(upright, images, images.mT)  # contiguous, like `images`

    def _chunk(
        self, pixels: Tensor, box: Tensor, part: Tensor, starts: Tensor, size: tuple[int, int], taps: int
    ) -> Tensor:
        x, y = (torch.arange(n, device=pixels.device) for n in size)
        # a smaller image is followed by pixels of the next; their weight is 0
        index = starts[:, None, None] + y[:, None] * part[:, 2, None, None] + x
        images = pixels[index.clamp_(max=len(pixels) - 1)].permute(0, 3, 1, 2)
        images = images.to(torch.float64, memory_format=torch.contiguous_format)
        across, down = (self._weights(box[:, k::2], part[:, k::2], size[k], taps) for k in (0, 1))
        narrow = _rounded(images.flatten(1, 2) @ across.mT).view(len(images), 3, size[1], -1)
        return _rounded(down[:, None] @ narrow).to(torch.uint8)

    def _weights(self, side: Tensor, part: Tensor, length: int, taps: int) -> Tensor:
        """Return the weight of each pixel in each result, float64 [b, S, length], as PIL computes it.

        Args:
            side: float32 [b, 2], low and high end of the box.
            part: int64 [b, 2], the first of the pixels that were cut out, and their number, at most `length`.
            taps: the largest number of pixels in a result.
        """
        scale = (side[:, 1:] - side[:, :1]).double() / self.size
        widening = scale.clamp(min=1)
        reach = self.support * widening
        results = torch.arange(self.size, dtype=torch.float64, device=side.device)
        centre = side[:, :1].double() + (results + 0.5) * scale
        first = (centre - reach + 0.5).trunc_().clamp_(min=0)
        end = torch.minimum((centre + reach + 0.5).trunc_(), part.sum(1, keepdim=True))
        pixel = first[..., None] + torch.arange(taps, device=side.device)
        distance = ((pixel - centre[..., None] + 0.5) * (1 / widening)[..., None]).abs()
        weights = torch.where(pixel < end[..., None], self.filter(distance), 0)
        weights = weights / weights.sum(-1, keepdim=True) * ONE
        weights = (weights + torch.where(weights < 0, -0.5, 0.5)).trunc_() / ONE
        places = (pixel - part[:, :1, None]).long()
        return weights.new_zeros(*centre.shape, length + taps).scatter_(2, places, weights)[..., :length]


def _rounded(sums: Tensor) -> Tensor:
    """Return sums of pixels times weights as pixels 0..255, in place."""
    return sums.add_(0.5).floor_().clamp_(0, 255)


class Operations:
    """RandAugment (Cubuk et al. 2020), magnitudes in 0..10 as in the paper: loaders draw, the device applies."""

    def __init__(self, rand_augment: list[int], size: int) -> None:
        """Prepare data.rand_augment for images of `size` x `size` pixels."""
        self.number, magnitude = rand_augment
        space = RandAugment(num_magnitude_bins=11)._augmentation_space(11, (size, size))
        self.signed = [signed for _, signed in space.values()]  # whether the sign of an operation's magnitude is drawn
        positive = [(name, float(m[magnitude]) if m.ndim else 0.0) for name, (m, _) in space.items()]
        self.table = [*positive, *((name, -m) for name, m in positive)]  # name, magnitude
        self.size = size
        self._sources: dict[tuple[int, torch.device], Tensor] = {}  # operation and device -> `_source`

    def draw(self, generator: random.Random) -> list[int]:
        """Return the places in the table of an image's operations; its second half has the negative magnitudes."""
        of_image = torch.Generator().manual_seed(generator.getrandbits(62))
        drawn = []
        for _ in range(self.number):
            place = int(torch.randint(len(self.signed), (1,), generator=of_image))
            if self.signed[place] and int(torch.randint(2, (1,), generator=of_image)):
                place += len(self.signed)
            drawn.append(place)
        return drawn

    def apply(self, images: Tensor, operation: int) -> Tensor:
        """Apply an operation of `draw` to uint8 [..., 3, S, S]."""
        name, magnitude = self.table[operation]
        if name == "Equalize":  # torchvision's other function waits for the GPU
            equalized: Tensor = equalize(images)
            return equalized
        if name in MOVES:
            black_first = torch.cat([images.new_zeros(*images.shape[:-2], 1), images.flatten(-2)], dim=-1)
            return black_first[..., self._source(operation, images.device)].view_as(images)
        changed: Tensor = _apply_op(images, name, magnitude, InterpolationMode.NEAREST, None)
        return changed

    def _source(self, operation: int, device: torch.device) -> Tensor:
        """Return where an operation of MOVES takes each pixel of its result from: int64 [S * S], made once.

        Pixels of the image count from 1, row by row; 0 stands for black. torchvision makes such a grid in each call,
        and waits for the GPU.
        """
        if (operation, device) not in self._sources:
            numbers = torch.arange(1.0, self.size**2 + 1).view(1, self.size, self.size)
            moved: Tensor = _apply_op(numbers, *self.table[operation], InterpolationMode.NEAREST, None)
            self._sources[operation, device] = to_device(moved.long().flatten(), device)
        return self._sources[operation, device]

    def apply_each(self, images: Tensor, operations: Tensor) -> Tensor:
        """Apply an operation to each image of a batch [b, 3, S, S]; `operations`: int64 [b], in CPU memory."""
        order = operations.argsort()
        kinds, counts = torch.unique(operations, return_counts=True)
        there, back = (to_device(places, images.device) for places in (order, order.argsort()))
        parts = zip(torch.split(images[there], counts.tolist()), kinds.tolist(), strict=True)
        return torch.cat([self.apply(part, kind) for part, kind in parts])[back]
