"""Faults of training captions, such as a wrong count or an unrelated text."""

import random
from collections.abc import Callable
from itertools import accumulate

from clipx.config.schema import ScenesConfig
from clipx.data.preprocess.keywords import CARDINALS
from clipx.data.scenes.captions import CAPTIONS_PER_IMAGE, DETAIL, Description, describe, phrase
from clipx.data.scenes.content import COLOURS, ORIENTED, SHAPES, Content

UNRELATED = (
    "click here to see the full size",
    "photo from our last holiday",
    "no description available",
    "free shipping on all orders",
    "my new favourite picture of the week",
    "image may be subject to copyright",
    "download this wallpaper for your desktop",
    "what a lovely day it was",
)
WITH_NUMBERS = ("{caption}, photo {m} of {k}", "{caption}, page {m}", "picture {m}: {caption}", "day {m}, {caption}")


def fault_rates(config: ScenesConfig) -> dict[str, float]:
    """Return, for each fault, the share of training captions that have it."""
    return {name: getattr(config, name) for name in FAULTS}


def training_captions(content: Content, config: ScenesConfig, rng: random.Random) -> tuple[list[str], list[str | None]]:
    """Return CAPTIONS_PER_IMAGE different captions, and the fault of each: a key of FAULTS, or None for no fault."""
    rates = fault_rates(config)
    bounds = dict(zip(rates, accumulate(rates.values()), strict=True))
    captions: list[str] = []
    faults: list[str | None] = []
    for _ in range(CAPTIONS_PER_IMAGE):
        u = rng.random()
        fault = next((name for name, bound in bounds.items() if u < bound), None)
        caption = _caption(content, fault, config, rng)
        while caption in captions:  # sample only the caption again, not the fault, so that each fault keeps its share
            caption = _caption(content, fault, config, rng)
        captions.append(caption)
        faults.append(fault)
    return captions, faults


def _caption(content: Content, fault: str | None, config: ScenesConfig, rng: random.Random) -> str:
    descriptions = describe(content, DETAIL, rng)
    return phrase(descriptions, rng) if fault is None else FAULTS[fault](descriptions, config, rng)


def _omit(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Omit one or two of count, colour and shape, for all groups of the caption.

    The count is kept if a group has one object, because "a circle" still states it.
    """
    features = ["colour", "shape"] if any(d.count == 1 for d in descriptions) else ["count", "colour", "shape"]
    for feature in rng.sample(features, rng.choice((1, 2))):
        for d in descriptions:
            setattr(d, feature, None)
            if feature == "shape":
                d.orientation = None  # it would reveal the shape
    return phrase(descriptions, rng)


def _wrong_count(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Give one group a wrong count."""
    d = rng.choice(descriptions)
    d.count = rng.choice([n for n in range(1, config.max_count + 1) if n != d.count])
    d.plural = d.count > 1
    return phrase(descriptions, rng)


def _add_number(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Add one or two numbers (two..twenty) that do not count objects, as in "photo two of ten"."""
    m, k = sorted(rng.sample(range(2, len(CARDINALS)), 2))
    return rng.choice(WITH_NUMBERS).format(caption=phrase(descriptions, rng), m=CARDINALS[m], k=CARDINALS[k])


def _noise(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Return an unrelated text with probability 1/2, else give one group a wrong colour or shape."""
    if rng.random() < 0.5:
        return rng.choice(UNRELATED)
    d = rng.choice(descriptions)
    if rng.random() < 0.5:
        d.colour = rng.choice([c for c in COLOURS if c != d.colour])
    else:
        d.shape = rng.choice([s for s in SHAPES if s != d.shape])
        d.orientation = d.orientation if d.shape == ORIENTED else None
    return phrase(descriptions, rng)


# each key is a field of ScenesConfig: the share of that fault
FAULTS: dict[str, Callable[[list[Description], ScenesConfig, random.Random], str]] = {
    "omit": _omit,
    "mislabelled": _wrong_count,
    "irrelevant_numbers": _add_number,
    "noise": _noise,
}
