"""Training captions: the attributes that they name, and their faults, such as a wrong count or an unrelated text."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from clipx.config.data_schema import ScenesConfig
from clipx.data.preprocess.keywords import CARDINALS
from clipx.data.scenes.captions import CAPTIONS_PER_IMAGE, DETAIL, Description, describe, leave_out, phrase
from clipx.data.scenes.content import ORIENTED, WORLDS, Content

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


@dataclass
class Caption:
    """A training caption."""

    text: str
    fault: str | None  # a key of FAULTS
    descriptions: list[Description]  # attributes named for each group; empty for an unrelated text


def fault_rates(config: ScenesConfig) -> dict[str, float]:
    """Return fault -> share of captions, as set; fewer are mislabelled if some captions do not name the count."""
    return {name: getattr(config, name) for name in FAULTS}


def named_shares(config: ScenesConfig) -> dict[str, float]:
    """Return attribute -> share of training captions that name it, for the attributes whose share is set."""
    shares = {"count": config.count_share, "colour": config.colour_share, "shape": config.shape_share}
    return {name: share for name, share in shares.items() if share is not None}


def training_captions(content: Content, config: ScenesConfig, rng: random.Random) -> list[Caption]:
    """Return CAPTIONS_PER_IMAGE different captions."""
    rates, shares = fault_rates(config), named_shares(config)
    bounds = dict(zip(rates, accumulate(rates.values()), strict=True))
    captions: list[Caption] = []
    for _ in range(CAPTIONS_PER_IMAGE):
        u = rng.random()
        fault = next((name for name, bound in bounds.items() if u < bound), None)
        omitted = [name for name, share in shares.items() if rng.random() >= share]
        if fault == "mislabelled" and "count" in omitted:
            fault = None  # no count is named that could be wrong
        caption = _caption(content, fault, omitted, config, rng)
        # replace a repeated text by one with the same fault and omissions, so that their shares do not change
        while any(caption.text == other.text for other in captions):
            caption = _caption(content, fault, omitted, config, rng)
        captions.append(caption)
    return captions


def _caption(
    content: Content, fault: str | None, omitted: list[str], config: ScenesConfig, rng: random.Random
) -> Caption:
    descriptions = describe(content, DETAIL, rng)
    leave_out(descriptions, omitted)
    for d in descriptions:
        d.numbered = config.count_share is not None
    text = phrase(descriptions, rng) if fault is None else FAULTS[fault](descriptions, config, rng)
    return Caption(text, fault, descriptions)


def _omit(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Omit one or two of count, colour and shape, for all groups of the caption.

    The count is kept if a group has one object, because "a circle" states the count.
    """
    features = ["colour", "shape"] if any(d.count == 1 for d in descriptions) else ["count", "colour", "shape"]
    leave_out(descriptions, rng.sample(features, rng.choice((1, 2))))
    return phrase(descriptions, rng)


def _wrong_count(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    d = rng.choice(descriptions)
    d.count = rng.choice([n for n in range(1, config.max_count + 1) if n != d.count])
    d.plural = d.count > 1
    return phrase(descriptions, rng)


def _add_number(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Add one or two number words (two to twenty) that do not count objects, as in "photo two of ten"."""
    m, k = sorted(rng.sample(range(2, len(CARDINALS)), 2))
    return rng.choice(WITH_NUMBERS).format(caption=phrase(descriptions, rng), m=CARDINALS[m], k=CARDINALS[k])


def _noise(descriptions: list[Description], config: ScenesConfig, rng: random.Random) -> str:
    """Return an unrelated text with probability 1/2, else give one group a wrong colour or shape.

    A caption that names neither colour nor shape always becomes an unrelated text.
    """
    names_colour, names_shape = (getattr(descriptions[0], name) is not None for name in ("colour", "shape"))
    if rng.random() < 0.5 or not (names_colour or names_shape):
        descriptions.clear()
        return rng.choice(UNRELATED)
    d, world = rng.choice(descriptions), WORLDS[config.world]
    if (rng.random() < 0.5 or not names_shape) and names_colour:
        d.colour = rng.choice([c for c in world.colours if c != d.colour])
    else:
        d.shape = rng.choice([s for s in world.shapes if s != d.shape])
        d.orientation = d.orientation if d.shape == ORIENTED else None
    return phrase(descriptions, rng)


# each key is also a field of ScenesConfig, which sets the share of captions with this fault
FAULTS: dict[str, Callable[[list[Description], ScenesConfig, random.Random], str]] = {
    "omit": _omit,
    "mislabelled": _wrong_count,
    "irrelevant_numbers": _add_number,
    "noise": _noise,
}
