"""An encoded image and a caption to pixels, tokens and label; what a worker process does with each sample."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import BadSample, header
from clipx.data.preprocess.keywords import Keywords
from clipx.data.preprocess.tokenizer import Tokenizer
from clipx.data.preprocess.transforms import TrainTransform
from clipx.types import Inputs


@dataclass
class Decoded:
    """A sample, or the reason why there is none."""

    sample_id: int
    pixels: Tensor | None = None  # uint8 [3, H, W]
    text: Tensor | None = None  # int64 [L]
    label: int = 0
    damage: str = ""


@dataclass
class Loaded:
    """A batch on its way from a worker to the device."""

    sample_id: Tensor
    pixels: Tensor
    text: Tensor
    label: Tensor
    damage: list[str]

    def pin_memory(self) -> "Loaded":
        """Called by DataLoader, which pins nothing in a class that has no such method."""
        sample_id, pixels, text, label = (t.pin_memory() for t in (self.sample_id, self.pixels, self.text, self.label))
        return Loaded(sample_id, pixels, text, label, self.damage)


class SamplePreprocessor:
    """Decoding, augmentation, tokens and keyword label, as the settings say."""

    def __init__(self, config: DataConfig, inputs: Inputs, tokenizer: Tokenizer) -> None:
        self.transform = TrainTransform(config, inputs)
        self.tokenizer = tokenizer
        self.keywords = Keywords(config.keywords, config.keyword_digits)

    def __call__(self, sample_id: int, where: str, image: bytes, caption: str, generator: random.Random) -> Decoded:
        """All randomness comes from the generator; `where` names the sample if it is damaged."""
        try:
            pixels = self.transform(header(image), generator)
        except BadSample as error:
            return Decoded(sample_id, damage=f"{where}: {error}")
        return Decoded(sample_id, pixels, self.tokenizer([caption])[0], self.keywords(caption))


def collate(samples: list[Decoded]) -> Loaded:
    """Stacks the good samples; a batch may be smaller than asked for by the bad ones."""
    good = [s for s in samples if not s.damage]
    empty = torch.empty(0, dtype=torch.uint8)
    return Loaded(
        sample_id=torch.tensor([s.sample_id for s in good], dtype=torch.int64),
        pixels=torch.stack([s.pixels for s in good if s.pixels is not None]) if good else empty,
        text=torch.stack([s.text for s in good if s.text is not None]) if good else empty,
        label=torch.tensor([s.label for s in good], dtype=torch.int64),
        damage=[s.damage for s in samples if s.damage],
    )
