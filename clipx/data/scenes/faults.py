"""What can be wrong with a training caption: each fault changes a description, or the text made from it."""

import random
from collections.abc import Callable
from itertools import accumulate

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.captions import CAPTIONS, NUMBERS, Description, Detail, describe, phrase
from clipx.data.scenes.content import COLOURS, ORIENTED, SHAPES, Content
from clipx.data.scenes.knobs import faults

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
IRRELEVANT = (
    "{caption}, photo {m} of {k}",
    "{caption}, page {m}",
    "picture {m}: {caption}",
    "day {m}, {caption}",
)


def faulty_captions(content: Content, config: ScenesConfig, rng: random.Random) -> tuple[list[str], list[str | None]]:
    """CAPTIONS different captions, and the fault of each (a name of `faults(config)`, None for a true one)."""
    bounds = dict(zip(faults(config), accumulate(faults(config).values()), strict=True))
    captions: list[str] = []
    found: list[str | None] = []
    for _ in range(CAPTIONS):
        u = rng.random()
        fault = next((name for name, bound in bounds.items() if u < bound), None)
        caption = _caption(content, fault, config, rng)
        while caption in captions:  # the fault stays, so that its share does
            caption = _caption(content, fault, config, rng)
        captions.append(caption)
        found.append(fault)
    return captions, found


def _caption(content: Content, fault: str | None, config: ScenesConfig, rng: random.Random) -> str:
    descriptions = describe(content, Detail(), rng)
    return phrase(descriptions, rng) if fault is None else FAULTS[fault](descriptions, config, rng)


def _omit(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Nothing about one or two of count, colour and shape in the whole caption; "a circle" still counts, so
    it is the colour or the shape where a group has one object."""
    features = ["colour", "shape"] if any(d.count == 1 for d in descriptions) else ["count", "colour", "shape"]
    for feature in rng.sample(features, rng.choice((1, 2))):
        for d in descriptions:
            setattr(d, feature, None)
            if feature == "shape":
                d.orientation = None  # it would give the shape away
    return phrase(descriptions, rng)


def _mislabel(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Another number for one group."""
    d = rng.choice(descriptions)
    d.count = rng.choice([n for n in range(1, config.max_count + 1) if n != d.count])
    d.plural = d.count > 1
    return phrase(descriptions, rng)


def _add_number(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """A number, two..twenty, that counts no objects."""
    m, k = sorted(rng.sample(range(2, len(NUMBERS)), 2))
    return rng.choice(IRRELEVANT).format(caption=phrase(descriptions, rng), m=NUMBERS[m], k=NUMBERS[k])


def _noise(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Half of the time a wrong colour or shape of one group, else a text about something else."""
    if rng.random() < 0.5:
        return rng.choice(UNRELATED)
    d = rng.choice(descriptions)
    if rng.random() < 0.5:
        d.colour = rng.choice([c for c in COLOURS if c != d.colour])
    else:
        d.shape = rng.choice([s for s in SHAPES if s != d.shape])
        d.orientation = d.orientation if d.shape == ORIENTED else None
    return phrase(descriptions, rng)


FAULTS: dict[str, Callable[[list[Description], ScenesConfig, random.Random], str]] = {
    "omit": _omit,
    "mislabelled": _mislabel,
    "irrelevant_numbers": _add_number,
    "noise": _noise,
}
