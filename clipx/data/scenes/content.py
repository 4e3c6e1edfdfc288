"""What a scene shows: groups of equal objects on a 3 x 3 grid, drawn from a generator.

Everything random comes from the `random.Random` that is passed in; its sequences are the same on every
platform and Python version.
"""

import random
from bisect import bisect
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product

from clipx.data.scenes.knobs import MAX_GRID

SHAPES = ("circle", "ring", "square", "diamond", "triangle", "star", "cross", "heart")
ORIENTED = "triangle"  # the shape that points somewhere
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan", "white", "black")
SIZES = ("small", "large")
ORIENTATIONS = ("up", "right", "down", "left")
CONCEPTS = tuple(product(SHAPES, COLOURS))

CELL_NAMES = (
    "top left", "top", "top right",
    "left", "centre", "right",
    "bottom left", "bottom", "bottom right",
)  # fmt: skip
LINES = {"left": (0, 3, 6), "right": (2, 5, 8), "top": (0, 1, 2), "bottom": (6, 7, 8)}
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}

IN_LINE = 0.5  # share of groups of one to three that stand at one side
SIDE_BY_SIDE = 0.6  # share of two-group scenes with the groups at opposite sides
MOST_OF_TWO = 3  # objects in a group where there are two groups: what one side holds


@dataclass
class ObjectGroup:
    """Equal objects: what a caption can say about them."""

    count: int
    colour: str
    shape: str
    size: str
    position: str | None  # a cell's name for one object, a side for several, None where they are scattered
    orientation: str | None  # None for shapes that point nowhere


@dataclass
class Content:
    """Groups and the cells (0..8, row by row) of each group's objects."""

    groups: list[ObjectGroup]
    cells: list[list[int]]

    def key(self) -> frozenset[tuple[object, ...]]:
        """Equal for contents that a caption which says everything describes alike."""
        return frozenset(tuple(vars(group).values()) for group in self.groups)


@lru_cache(maxsize=8)
def popularity(seed: int, skew: float) -> dict[tuple[str, str], float]:
    """(shape, colour) -> probability: Zipf with exponent `skew` over ranks that `seed` shuffles."""
    concepts = list(CONCEPTS)
    random.Random(f"{seed}/popularity").shuffle(concepts)
    weights = [(rank + 1) ** -skew for rank in range(len(concepts))]
    return {concept: weight / sum(weights) for concept, weight in zip(concepts, weights, strict=True)}


@lru_cache(maxsize=8)
def _cumulative(seed: int, skew: float) -> list[float]:
    return list(accumulate(popularity(seed, skew).values()))


@dataclass(frozen=True)
class ContentDraw:
    """The distribution of contents of a split."""

    max_count: int
    two_groups: float  # share of scenes with a second group
    seed: int = 0  # of the popularity ranks
    skew: float = 0.0  # Zipf exponent of the concepts

    def draw(self, rng: random.Random) -> Content:
        """One or two groups; two differ in colour and in shape."""
        first = self._concept(rng)
        if rng.random() >= self.two_groups:
            count = rng.randint(1, self.max_count)
            return arrange([first], [count], rng)
        second = self._concept(rng)
        while second[0] == first[0] or second[1] == first[1]:
            second = self._concept(rng)
        most = min(MOST_OF_TWO, self.max_count)
        return arrange([first, second], [rng.randint(1, most), rng.randint(1, most)], rng)

    def _concept(self, rng: random.Random) -> tuple[str, str]:
        if not self.skew:
            return CONCEPTS[rng.randrange(len(CONCEPTS))]
        cumulative = _cumulative(self.seed, self.skew)
        rank = min(bisect(cumulative, rng.random()), len(CONCEPTS) - 1)
        return list(popularity(self.seed, self.skew))[rank]


def arrange(concepts: list[tuple[str, str]], counts: list[int], rng: random.Random) -> Content:
    """A content of these (shape, colour) and counts; sizes, orientations and cells are drawn."""
    cells = _cells(counts, rng)
    groups = []
    for (shape, colour), count, taken in zip(concepts, counts, cells, strict=True):
        size = SIZES[rng.random() < 0.5]
        orientation = ORIENTATIONS[rng.randrange(4)] if shape == ORIENTED else None
        groups.append(ObjectGroup(count, colour, shape, size, position_of(taken), orientation))
    return Content(groups, cells)


def position_of(cells: list[int]) -> str | None:
    """What is common to the cells: a cell's own name, the side that holds them all, or None."""
    if len(cells) == 1:
        return CELL_NAMES[cells[0]]
    for side, line in LINES.items():
        if all(cell in line for cell in cells):
            return side
    return None


def _cells(counts: list[int], rng: random.Random) -> list[list[int]]:
    if len(counts) == 1:
        (count,) = counts
        if 1 < count <= MOST_OF_TWO and rng.random() < IN_LINE:
            return [rng.sample(LINES[rng.choice(tuple(LINES))], count)]
        return [rng.sample(range(MAX_GRID), count)]
    if rng.random() < SIDE_BY_SIDE:
        side = rng.choice(tuple(LINES))
        return [rng.sample(LINES[s], count) for s, count in zip((side, OPPOSITE[side]), counts, strict=True)]
    taken = rng.sample(range(MAX_GRID), sum(counts))
    return [taken[: counts[0]], taken[counts[0] :]]
