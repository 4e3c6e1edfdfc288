"""Minimal pairs: two scenes with the same background that differ in one category only, such as colour or count."""

import copy
import random
from collections.abc import Callable, Iterator

from clipx.config.data_schema import ScenesConfig
from clipx.data.scenes.captions import Detail, describe, phrase, plain
from clipx.data.scenes.content import (
    COLOURS,
    ORIENTATIONS,
    ORIENTED,
    SHAPES,
    WORLDS,
    ContentDistribution,
    position_of,
)
from clipx.data.scenes.render import PALETTE, SCALES, Scene, sample_scene
from clipx.data.scenes.samples import Sample

TWO_GROUPS = 0.3  # probability of two groups, before scenes that cannot be edited are rejected

Edit = Callable[[Scene, random.Random], bool]  # changes the scene in place; returns False if it cannot be changed


def pair_samples(config: ScenesConfig) -> Iterator[Sample]:
    """Yield the samples of all pairs, category by category: 2p and 2p + 1 for pair p, with facts "pair", "category"."""
    pair = 0
    for category in EDITS:
        if category == "orientation" and ORIENTED not in WORLDS[config.world].shapes:
            continue
        for _ in range(config.test_pairs):
            rng = random.Random(f"{config.seed}/scenes_pairs/{pair}")
            scenes = _sample_pair(category, config, rng)
            wording_seed = rng.random()
            for scene in rng.sample(scenes, 2):  # random order: the changed scene must not always be second
                same = random.Random(wording_seed)  # same wording: the captions differ only in their descriptions
                descriptions = describe(scene.content, DETAILS.get(category, (0, 0, 0)), same)
                facts = {"pair": pair, "category": category}
                yield Sample(scene, [phrase(descriptions, same, plain)], facts)
            pair += 1


def _sample_pair(category: str, config: ScenesConfig, rng: random.Random) -> list[Scene]:
    concepts = WORLDS[config.world].concepts
    distribution = ContentDistribution(config.max_count, TWO_GROUPS, concepts=concepts)
    while True:
        first = sample_scene(distribution.sample(rng), config.image_size, config.layout, rng)
        second = copy.deepcopy(first)
        fits = EDITS[category](second, rng)
        if fits and all((group.shape, group.colour) in concepts for group in second.content.groups):
            return [first, second]


def _set(scene: Scene, attribute: str, value: str) -> None:
    """Set an attribute of the first group and of its objects."""
    group = scene.content.groups[0]
    for item in (group, *scene.objects[: group.count]):
        setattr(item, attribute, value)


def _colour(scene: Scene, rng: random.Random) -> bool:
    colour = rng.choice([c for c in COLOURS if all(c != g.colour for g in scene.content.groups)])
    _set(scene, "colour", colour)
    for o in scene.objects[: scene.content.groups[0].count]:
        o.rgb = PALETTE[colour]
    return True


def _shape(scene: Scene, rng: random.Random) -> bool:
    """Change the shape. Shapes with an orientation are excluded, because the orientation would change too."""
    present = [g.shape for g in scene.content.groups]
    if present[0] == ORIENTED:
        return False
    _set(scene, "shape", rng.choice([s for s in SHAPES if s not in (ORIENTED, *present)]))
    return True


def _size(scene: Scene, rng: random.Random) -> bool:
    """Shrink large objects around their centres. Enlarging small objects could move them out of their cells."""
    group = scene.content.groups[0]
    if group.size == "small":
        return False
    _set(scene, "size", "small")
    diameter = round(scene.image_size // 3 * sum(SCALES["small"]) / 2)
    for o in scene.objects[: group.count]:
        margin = (o.diameter - diameter) // 2
        o.x, o.y, o.diameter = o.x + margin, o.y + margin, diameter
    return True


def _orientation(scene: Scene, rng: random.Random) -> bool:
    orientation = scene.content.groups[0].orientation
    if orientation is None:
        return False
    _set(scene, "orientation", rng.choice([o for o in ORIENTATIONS if o != orientation]))
    return True


def _position(scene: Scene, rng: random.Random) -> bool:
    """Move the objects to the mirrored cells on the opposite side. The objects themselves are not mirrored."""
    (group, *others), (cells, *_) = scene.content.groups, scene.content.cells
    if others or group.position in (None, "centre"):
        return False
    side = str(group.position).split()[-1]
    for k, o in enumerate(scene.objects):
        row, column = divmod(cells[k], 3)
        if side in ("left", "right"):
            column, o.x = 2 - column, scene.image_size - o.x - o.diameter
        else:
            row, o.y = 2 - row, scene.image_size - o.y - o.diameter
        cells[k] = 3 * row + column
        o.position = str(position_of([cells[k]]))
    group.position = position_of(cells)
    return True


def _count(scene: Scene, rng: random.Random) -> bool:
    """Remove one object if the group's position does not change."""
    (group, *others), (cells, *_) = scene.content.groups, scene.content.cells
    if others or group.count == 1 or position_of(cells[:-1]) != group.position:
        return False
    group.count -= 1
    cells.pop()
    scene.objects.pop()
    return True


def _presence(scene: Scene, rng: random.Random) -> bool:
    """Remove the second group."""
    if len(scene.content.groups) == 1:
        return False
    scene.objects = scene.objects[: scene.content.groups[0].count]
    scene.content.groups.pop()
    scene.content.cells.pop()
    return True


EDITS: dict[str, Edit] = {
    "colour": _colour,
    "count": _count,
    "shape": _shape,
    "size": _size,
    "position": _position,
    "presence": _presence,
    "orientation": _orientation,
}
DETAILS: dict[str, Detail] = {"size": (1, 0, 0), "position": (0, 1, 0), "orientation": (0, 0, 1)}
