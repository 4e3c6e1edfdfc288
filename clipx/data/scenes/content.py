"""The content of a scene: groups of equal objects on a 3 x 3 grid.

All random numbers come from `random.Random`, whose sequences are the same on every platform.
"""

import random
from bisect import bisect
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, product

NUM_CELLS = 9  # of the 3 x 3 grid
SHAPES = ("circle", "ring", "square", "diamond", "triangle", "star", "cross", "heart")
ORIENTED = "triangle"  # the only shape with an orientation
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan", "white", "black")
SIZES = ("small", "large")
ORIENTATIONS = ("up", "right", "down", "left")
Concept = tuple[str, str]  # shape and colour of a group
CONCEPTS = tuple(product(SHAPES, COLOURS))


@dataclass(frozen=True)
class World:
    """The shapes and colours of scenes."""

    shapes: tuple[str, ...]
    colours: tuple[str, ...]

    @property
    def concepts(self) -> tuple[Concept, ...]:
        """All pairs of a shape and a colour."""
        return tuple(product(self.shapes, self.colours))


# values of data.scenes.world; the two halves share no shape and no colour
WORLDS = {
    "all": World(SHAPES, COLOURS),
    "first": World(SHAPES[::2], COLOURS[::2]),
    "second": World(SHAPES[1::2], COLOURS[1::2]),
}

CELL_NAMES = (
    "top left", "top", "top right",
    "left", "centre", "right",
    "bottom left", "bottom", "bottom right",
)  # fmt: skip
LINES = {"left": (0, 3, 6), "right": (2, 5, 8), "top": (0, 1, 2), "bottom": (6, 7, 8)}  # side -> its cells
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}

# Probabilities that the cells of groups are on sides of the grid; otherwise they are drawn from all cells.
IN_LINE = 0.5  # two or three objects of a one-group scene: on one side
OPPOSITE_SIDES = 0.6  # groups of a two-group scene: on opposite sides
CELLS_PER_SIDE = 3  # also the largest count in a two-group scene, so that each group fits on one side


@dataclass
class ObjectGroup:
    """A group of equal objects, described by the attributes that a caption can name."""

    count: int
    colour: str
    shape: str
    size: str
    position: str | None  # cell of a single object; side that has all objects; None if no side has them all
    orientation: str | None  # None for shapes without an orientation


@dataclass
class Content:
    """One or two groups, and for each group the cells of its objects (0..8, numbered row by row)."""

    groups: list[ObjectGroup]
    cells: list[list[int]]

    def key(self) -> frozenset[tuple[object, ...]]:
        """Return the attributes of all groups. Contents with different keys never share a fully detailed caption."""
        return frozenset(tuple(vars(group).values()) for group in self.groups)

    def concept(self) -> Concept:
        """Return shape and colour of the first group."""
        return self.groups[0].shape, self.groups[0].colour


@lru_cache(maxsize=8)
def popularity(seed: int, skew: float, among: tuple[Concept, ...] = CONCEPTS) -> dict[Concept, float]:
    """Return the probability of each concept: Zipf with exponent `skew`; `seed` shuffles the ranks."""
    concepts = list(among)
    random.Random(f"{seed}/popularity").shuffle(concepts)
    weights = [(rank + 1) ** -skew for rank in range(len(concepts))]
    return {concept: weight / sum(weights) for concept, weight in zip(concepts, weights, strict=True)}


@dataclass(frozen=True)
class ContentDistribution:
    """Distribution from which the contents of a split are sampled."""

    max_count: int
    two_groups: float  # probability of a second group
    seed: int = 0  # shuffles the ranks of the concepts
    skew: float = 0.0  # Zipf exponent of the concepts; 0 for equal probabilities
    concepts: tuple[Concept, ...] = CONCEPTS

    @property
    def shares(self) -> dict[Concept, float]:
        """Probability of each concept as the first group."""
        return popularity(self.seed, self.skew, self.concepts)

    def sample(self, rng: random.Random, first: Concept | None = None) -> Content:
        """Sample a content: one group, or two that differ in colour and in shape. The first concept may be given."""
        first = first or self._concept(rng)
        if rng.random() >= self.two_groups:
            return arrange([first], [rng.randint(1, self.max_count)], rng)
        second = self._concept(rng)
        while second[0] == first[0] or second[1] == first[1]:
            second = self._concept(rng)
        most = min(CELLS_PER_SIDE, self.max_count)
        return arrange([first, second], [rng.randint(1, most), rng.randint(1, most)], rng)

    def _concept(self, rng: random.Random) -> Concept:
        if not self.skew:
            return rng.choice(self.concepts)
        rank = bisect(list(accumulate(self.shares.values())), rng.random())
        return list(self.shares)[min(rank, len(self.concepts) - 1)]


@dataclass(frozen=True)
class ContentSet:
    """Contents that recur in the training samples; their keys differ."""

    contents: list[Content]
    cumulative: list[float]  # cumulative probabilities of the contents
    shares: dict[Concept, float]  # probability of each concept as the first group

    def sample(self, rng: random.Random) -> Content:
        """Sample one of the contents."""
        return rng.choices(self.contents, cum_weights=self.cumulative)[0]


@lru_cache(maxsize=4)
def content_set(distribution: ContentDistribution, number: int) -> ContentSet:
    """Return `number` different contents; counts and first concepts are distributed as in `distribution`.

    Contents are drawn, for each first concept in turn, until `number` different ones are found. A content's probability
    is the popularity of its first concept, times the content's share of the draws of this concept. The concept of a
    second group is uniform. With fewer contents than concepts, the concepts that have none get probability 0.
    """
    uniform, rng = replace(distribution, skew=0.0), random.Random(f"{distribution.seed}/contents")
    concepts = rng.sample(distribution.concepts, len(distribution.concepts))
    found: dict[frozenset[tuple[object, ...]], Content] = {}
    drawn: list[Content] = []
    while len(found) < number:
        content = uniform.sample(rng, concepts[len(drawn) % len(concepts)])
        drawn.append(found.setdefault(content.key(), content))
    popular = distribution.shares
    draws, of_concept = Counter(map(id, drawn)), Counter(content.concept() for content in drawn)
    total = sum(popular[concept] for concept in of_concept)
    shares = {concept: p / total for concept, p in popular.items() if concept in of_concept}
    contents = list(found.values())
    cumulative = accumulate(shares[c.concept()] * draws[id(c)] / of_concept[c.concept()] for c in contents)
    return ContentSet(contents, list(cumulative), shares)


def arrange(concepts: list[Concept], counts: list[int], rng: random.Random) -> Content:
    """Return a content with a group for each concept and count; sample sizes, orientations and cells."""
    cells = _cells(counts, rng)
    groups = []
    for (shape, colour), count, taken in zip(concepts, counts, cells, strict=True):
        size = SIZES[rng.random() < 0.5]
        orientation = ORIENTATIONS[rng.randrange(4)] if shape == ORIENTED else None
        groups.append(ObjectGroup(count, colour, shape, size, position_of(taken), orientation))
    return Content(groups, cells)


def position_of(cells: list[int]) -> str | None:
    """Return the name of a single cell, the side that has all cells, or None."""
    if len(cells) == 1:
        return CELL_NAMES[cells[0]]
    return next((side for side, line in LINES.items() if set(cells) <= set(line)), None)


def _cells(counts: list[int], rng: random.Random) -> list[list[int]]:
    if len(counts) == 1:
        (count,) = counts
        if 1 < count <= CELLS_PER_SIDE and rng.random() < IN_LINE:
            return [rng.sample(LINES[rng.choice(tuple(LINES))], count)]
        return [rng.sample(range(NUM_CELLS), count)]
    if rng.random() < OPPOSITE_SIDES:
        side = rng.choice(tuple(LINES))
        return [rng.sample(LINES[s], count) for s, count in zip((side, OPPOSITE[side]), counts, strict=True)]
    taken = rng.sample(range(NUM_CELLS), sum(counts))
    return [taken[: counts[0]], taken[counts[0] :]]
