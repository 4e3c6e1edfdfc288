"""Preprocessing of one sample in a loader process, and collation of samples into a batch (L: context length)."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clipx.data.preprocess.captions import Keywords
from clipx.data.preprocess.images import BadSample, open_image
from clipx.data.preprocess.on_device import Crops
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import TrainTransform


def sample_generator(seed: int, epoch: int, sample_id: int) -> random.Random:
    """Return the generator of a sample's draws (caption, crop, flip), the same with and without data.cache."""
    return random.Random(f"{seed},{epoch},{sample_id}")


@dataclass
class DecodedSample:
    """A preprocessed sample, or the error that makes it unusable."""

    sample_id: int
    pixels: Tensor | None = None  # uint8 [3, H, W]; with crops [h, w, 3]; or features
    text: Tensor | None = None  # int64 [L]; or features
    label: int = 0  # keyword label, 0 = none
    error: str = ""  # location and reason; empty for a good sample
    negative_text: Tensor | None = None  # int64 [L], only for objectives that need it
    lost: int = 0  # further samples lost with a bad one: the rest of a shard
    crops: Crops | None = None  # b = 1; what is left to the device


class HostBatch(NamedTuple):
    """The b good samples of a batch in CPU memory, not normalised. DataLoader can pin the tensors of a NamedTuple.

    Without a good sample, `pixels` and `text` are uint8 [0].
    """

    sample_id: Tensor  # int64 [b]
    pixels: Tensor  # uint8 [b, 3, H, W]; with crops [pixels, 3], those of all images, row by row
    text: Tensor  # int64 [b, L]
    label: Tensor  # int64 [b]
    bad: list[str]  # errors of the bad samples
    negative_text: Tensor | None = None  # int64 [b, L]
    lost: int = 0  # samples lost besides the bad ones
    crops: Crops | None = None  # what is left to the device


class SamplePreprocessor:
    """Decodes and augments an image, tokenizes its caption and finds the caption's keyword label."""

    def __init__(self, transform: TrainTransform, tokenizer: Tokenizer, keywords: Keywords) -> None:
        self.transform, self.tokenizer, self.keywords = transform, tokenizer, keywords

    def __call__(
        self,
        sample_id: int,
        where: str,
        image: bytes,
        caption: str,
        generator: random.Random,
        negative: str | None = None,
    ) -> DecodedSample:
        """Preprocess a sample. All random numbers come from `generator`; `where`: its location, for error messages."""
        try:
            pixels, crops = self.transform.for_device(open_image(image), generator)
        except BadSample as error:
            return DecodedSample(sample_id, error=f"{where}: {error}")
        negative_text = None if negative is None else self.tokenizer([negative])[0]
        text, label = self.tokenizer([caption])[0], self.keywords(caption)
        return DecodedSample(sample_id, pixels, text, label, negative_text=negative_text, crops=crops)


def collate(samples: list[DecodedSample]) -> HostBatch:
    """Stack the good samples; the batch is smaller than requested if some are bad."""
    good = [s for s in samples if not s.error]
    empty = torch.empty(0, dtype=torch.uint8)
    crops = [s.crops for s in good if s.crops is not None]
    negatives = [s.negative_text for s in good if s.negative_text is not None]
    return HostBatch(
        sample_id=torch.tensor([s.sample_id for s in good], dtype=torch.int64),
        pixels=_joined([s.pixels for s in good if s.pixels is not None], bool(crops)) if good else empty,
        text=torch.stack([s.text for s in good if s.text is not None]) if good else empty,
        label=torch.tensor([s.label for s in good], dtype=torch.int64),
        bad=[s.error for s in samples if s.error],
        negative_text=torch.stack(negatives) if negatives else None,
        lost=sum(s.lost for s in samples),
        crops=Crops(*map(torch.cat, zip(*crops, strict=True))) if crops else None,
    )


def _joined(images: list[Tensor], cropped: bool) -> Tensor:
    """Return images [3, H, W] as [b, 3, H, W]; if they are `cropped`, [h, w, 3] as [pixels, 3]."""
    if not cropped:
        return torch.stack(images)
    sizes = [image.shape[0] * image.shape[1] for image in images]
    joined = torch.empty(sum(sizes), 3, dtype=torch.uint8)
    for place, image in zip(torch.split(joined, sizes), images, strict=True):
        place.view_as(image).copy_(image)  # one copy, also of a part of an image
    return joined
