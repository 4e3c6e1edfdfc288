"""Captions of scenes in many wordings, such as "three small red circles on the left"; some are false on purpose."""

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, permutations

from clipx.config.schema import ScenesConfig
from clipx.data.preprocess.captions import CARDINALS
from clipx.data.scenes.content import COLOURS, ORIENTED, SHAPES, WORLDS, Content, ObjectGroup
from clipx.errors import UserError

# Wordings are chosen at random from these lists; a repeated entry is chosen more often.
ONE = ("a", "a", "one", "a single")  # for a count of one
NOUNS = ("object", "shape", "thing", "figure")  # for an object whose shape is not named
FRAMES = (
    "{}", "{}", "{}", "a picture of {}", "an image of {}", "a picture with {}", "an image showing {}", "here we see {}",
)  # fmt: skip
JOINS = ("{} and {}", "{} and {}", "{} with {}", "{} next to {}")
PLACES = {
    "left": "on the left", "right": "on the right", "top": "at the top", "bottom": "at the bottom",
    "centre": "in the centre", "top left": "at the top left", "top right": "at the top right",
    "bottom left": "at the bottom left", "bottom right": "at the bottom right",
}  # fmt: skip
CAPTIONS_PER_IMAGE = 5
COLOUR = re.compile(rf"\b(?:{'|'.join(COLOURS)})\b")
SHAPE = re.compile(rf"\b({'|'.join(SHAPES)})((?:e?s)?)\b")


@dataclass
class Description:
    """The attributes of a group that a caption names; None for attributes that it omits."""

    count: int | None
    colour: str | None
    shape: str | None
    plural: bool  # the noun is plural, also if `count` is omitted
    size: str | None = None
    position: str | None = None
    orientation: str | None = None
    numbered: bool = False  # with count_share: a count of one is "one" or "a single", because "a" names no count


Style = Callable[[Description, random.Random], str]  # description of a group -> its text
Detail = tuple[float, float, float]  # probabilities that a caption names size, position and orientation
DETAIL: Detail = (0.35, 0.35, 0.5)  # of training captions
NAMED = ("count", "colour", "shape", "size", "position", "orientation")  # attributes that a caption can name


def describe(content: Content, detail: Detail, rng: random.Random) -> list[Description]:
    """Describe every group. Count, colour and shape are always named, the other attributes at random."""
    size, position, orientation = (rng.random() < p for p in detail)
    return [
        Description(
            count=group.count,
            colour=group.colour,
            shape=group.shape,
            plural=group.count > 1,
            size=group.size if size else None,
            position=group.position if position else None,
            orientation=group.orientation if orientation else None,
        )
        for group in content.groups
    ]


def leave_out(descriptions: Iterable[Description], names: Iterable[str]) -> None:
    """Omit the attributes `names` of all groups of a caption, in place."""
    for d in descriptions:
        for name in names:
            setattr(d, name, None)
            if name == "shape":
                d.orientation = None  # only one shape has orientations: an orientation would reveal the shape


def fits(descriptions: Sequence[Description], content: Content) -> bool:
    """Return True if the content of a scene fits all descriptions of a caption.

    Each description must match a different group; groups that the caption does not mention are allowed. A plural stands
    for two or more objects, a singular for one. A caption without descriptions fits no content.
    """
    orders = permutations(content.groups, len(descriptions))
    return bool(descriptions) and any(all(map(_matches, descriptions, groups)) for groups in orders)


def _matches(d: Description, group: ObjectGroup) -> bool:
    if d.plural != (group.count > 1):
        return False
    return all(getattr(d, name) in (None, getattr(group, name)) for name in NAMED)


def phrase(descriptions: Sequence[Description], rng: random.Random, style: Style | None = None) -> str:
    """Return a caption in a random wording, or in the wording of `style`."""
    style = style or rng.choice(ALONE if len(descriptions) == 1 else TOGETHER)
    frame, join = rng.choice(FRAMES), rng.choice(JOINS)
    groups = [style(d, rng) for d in descriptions]
    return frame.format(groups[0] if len(groups) == 1 else join.format(*groups))


def detailed_captions(content: Content, rng: random.Random) -> list[str]:
    """Return CAPTIONS_PER_IMAGE different true captions that name all attributes."""
    captions: list[str] = []
    while len(captions) < CAPTIONS_PER_IMAGE:
        caption = phrase(describe(content, (1, 1, 1), rng), rng)
        if caption not in captions:
            captions.append(caption)
    return captions


def negative_caption(caption: str, rng: random.Random) -> str:
    """Change a few words of a true caption, so that it becomes false, as NegCLIP does.

    Two colours are swapped, or one colour or one shape is replaced by another. Two colours are swapped only if shapes
    are named too, because otherwise the caption might stay true. A caption without colours and shapes is negated.
    """
    colours, shapes = dict.fromkeys(COLOUR.findall(caption)), SHAPE.search(caption)
    if len(colours) == 2 and shapes:
        first, second = colours
        return COLOUR.sub(lambda found: second if found[0] == first else first, caption)
    if colours:
        other = rng.choice([colour for colour in COLOURS if colour not in colours])
        return COLOUR.sub(other, caption, count=1)
    if shapes:
        other = rng.choice([shape for shape in SHAPES if shape not in caption])
        plural = "" if not shapes[2] else "es" if other == "cross" else "s"
        return caption[: shapes.start()] + other + plural + caption[shapes.end() :]
    return f"no {caption}"


def plain(d: Description, rng: random.Random) -> str:
    """Return a text like "three small red triangles pointing up on the left"."""
    return _join(_count(d, rng), d.size, d.colour, _noun(d, rng), _pointing(d), _place(d))


def _with_clause(d: Description, rng: random.Random) -> str:
    """Return a text like "three small triangles pointing up that are red on the left"."""
    verb = "are" if d.plural else "is"
    colour = f"that {verb} {d.colour}" if d.colour else None
    return _join(_count(d, rng), d.size, _noun(d, rng), _pointing(d), colour, _place(d))


def _colour_first(d: Description, rng: random.Random) -> str:
    """Return a text like "three red objects on the left, all small triangles pointing up"."""
    if d.shape is None:
        return plain(d, rng)
    objects = _join(_count(d, rng), d.colour, "objects" if d.plural else "object", _place(d))
    return f"{objects}, {_join('all' if d.plural else 'a', d.size, _noun(d, rng), _pointing(d))}"


def _count_first(d: Description, rng: random.Random) -> str:
    """Return a text like "three objects on the left, all small red triangles pointing up"."""
    objects = _join(_count(d, rng), "objects" if d.plural else "object", _place(d))
    return f"{objects}, {_join('all' if d.plural else 'a', d.size, d.colour, _noun(d, rng), _pointing(d))}"


# styles for captions of two groups (TOGETHER) and of one group (ALONE)
TOGETHER: tuple[Style, ...] = (plain, plain, plain, _with_clause)
ALONE: tuple[Style, ...] = (*TOGETHER, _colour_first, _count_first)


def _count(d: Description, rng: random.Random) -> str | None:
    one = rng.choice(ONE)
    if d.count is None:
        return None if d.plural else "a"
    if d.count > 1:
        return CARDINALS[d.count]
    return "one" if d.numbered and one == "a" else one


def _noun(d: Description, rng: random.Random) -> str:
    noun = rng.choice(NOUNS) if d.shape is None else d.shape
    return noun + ("es" if noun == "cross" else "s") if d.plural else noun


def _pointing(d: Description) -> str | None:
    return f"pointing {d.orientation}" if d.orientation else None


def _place(d: Description) -> str | None:
    return PLACES[d.position] if d.position else None


def _join(*words: str | None) -> str:
    return re.sub(r"\ba (?=[aeiou])", "an ", " ".join(word for word in words if word))


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
    """Return fault -> share of captions, as set; `mislabelled` is the share of those that name a count."""
    return {name: getattr(config, name) for name in FAULTS}


def named_shares(config: ScenesConfig) -> dict[str, float]:
    """Return attribute -> share of training captions that name it, for the attributes whose share is set."""
    shares = {"count": config.count_share, "colour": config.colour_share, "shape": config.shape_share}
    return {name: share for name, share in shares.items() if share is not None}


def check_faults(config: ScenesConfig) -> None:
    """Raise UserError if the settings of faults contradict each other or those of named attributes."""
    rates = fault_rates(config)
    total = math.fsum(rates.values())  # exact: the sum of 0.2, 0.4, 0.3 and 0.1 would be above 1
    if total > 1:
        raise UserError(
            f"data.scenes.{' + data.scenes.'.join(rates)}={total} is out of range; "
            "allowed: at most 1, as a caption has at most one fault"
        )
    if config.omit and named_shares(config):
        keys = ", ".join(f"data.scenes.{name}_share" for name in named_shares(config))
        raise UserError(
            f"data.scenes.omit={config.omit:g} and {keys} both set what captions leave out; set data.scenes.omit=0"
        )


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
