"""Captions for groups of objects in many wordings, such as "three small red circles on the left"."""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from clipx.data.preprocess.keywords import CARDINALS
from clipx.data.scenes.content import COLOURS, SHAPES, Content, ObjectGroup

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
    numbered: bool = False  # a count of one is "one" or "a single", never "a"


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
    """Return True if a caption with these descriptions is true of a content.

    Each description must match a different group; groups that the caption does not mention are allowed. A plural stands
    for two or more objects, a singular for one. A caption without descriptions fits no content.
    """
    orders = permutations(content.groups, len(descriptions))
    return bool(descriptions) and any(all(map(_matches, descriptions, groups)) for groups in orders)


def _matches(d: Description, group: ObjectGroup) -> bool:
    named = {name: value for name in NAMED if (value := getattr(d, name)) is not None}
    return d.plural == (group.count > 1) and all(getattr(group, name) == value for name, value in named.items())


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
    """Return a false caption that differs in few words, like NegCLIP's.

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
