"""Samples for evaluation: images of classes, images with five captions each, and minimal pairs.

Of the config, only seed, world, image_size, max_count, layout, test_images and test_pairs apply here. The random seeds
differ from those of the training data.
"""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clipx.config.schema import ScenesConfig
from clipx.data.preprocess.captions import CARDINALS
from clipx.data.scenes.captions import Detail, describe, detailed_captions, phrase, plain
from clipx.data.scenes.content import (
    COLOURS,
    ORIENTATIONS,
    ORIENTED,
    SHAPES,
    WORLDS,
    Content,
    ContentDistribution,
    arrange,
    position_of,
)
from clipx.data.scenes.render import PALETTE, SCALES, Scene, sample_scene
from clipx.data.scenes.samples import Sample

TWO_GROUPS = 0.6  # probability of two groups in a retrieval image; contents of one group would soon repeat


@dataclass(frozen=True)
class ClassSet:
    """Labelled scenes with one group each."""

    classnames: Callable[[ScenesConfig], list[str]]
    templates: tuple[str, ...]  # prompts; "{c}" stands for the class name
    content: Callable[[int, ScenesConfig, random.Random], Content]  # class index -> random content of this class

    def sample(self, name: str, config: ScenesConfig, index: int) -> Sample:
        """Return sample `index` of `name` (SET/SPLIT); its class is `index` modulo the number of classes."""
        rng = random.Random(f"{config.seed}/{name}/{index}")
        label = index % len(self.classnames(config))
        content = self.content(label, config, rng)
        return Sample(sample_scene(content, config.image_size, config.layout, rng), [], {}, label)


def _one_group(config: ScenesConfig, rng: random.Random, shape: str = "", colour: str = "", count: int = 0) -> Content:
    """Return a content of one group; attributes that are not given are random."""
    world = WORLDS[config.world]
    concept = shape or rng.choice(world.shapes), colour or rng.choice(world.colours)
    return arrange([concept], [count or rng.randint(1, config.max_count)], rng)


CLASS_SETS = {
    "scenes_shape": ClassSet(
        lambda config: list(WORLDS[config.world].shapes),
        ("a {c}", "one {c}", "a picture of a {c}", "a picture of one {c}", "an image with a {c}"),
        lambda k, config, rng: _one_group(config, rng, shape=WORLDS[config.world].shapes[k]),
    ),
    "scenes_colour": ClassSet(
        lambda config: list(WORLDS[config.world].colours),
        ("{c} objects", "{c} shapes", "a {c} object", "a picture of {c} objects", "an image with a {c} shape"),
        lambda k, config, rng: _one_group(config, rng, colour=WORLDS[config.world].colours[k]),
    ),
    "scenes_count": ClassSet(
        # the class name includes the noun, because its plural depends on the count
        lambda config: ["one object", *(f"{CARDINALS[n]} objects" for n in range(2, config.max_count + 1))],
        ("{c}", "a picture of {c}", "an image of {c}", "a picture with {c}"),
        lambda k, config, rng: _one_group(config, rng, count=k + 1),
    ),
}


def retrieval_samples(config: ScenesConfig, num_images: int) -> Iterator[Sample]:
    """Yield samples whose captions name all attributes; contents are unique, so no two images share a caption."""
    rng = random.Random(f"{config.seed}/scenes_captions")
    distribution = ContentDistribution(config.max_count, TWO_GROUPS, concepts=WORLDS[config.world].concepts)
    seen: set[frozenset[tuple[object, ...]]] = set()
    while len(seen) < num_images:
        content = distribution.sample(rng)
        if content.key() not in seen:
            seen.add(content.key())
            captions = detailed_captions(content, rng)
            yield Sample(sample_scene(content, config.image_size, config.layout, rng), captions, {})


TWO_GROUPS_IN_PAIRS = 0.3  # probability of two groups, before scenes that cannot be edited are rejected

Edit = Callable[[Scene, random.Random], bool]  # changes the scene in place; returns False if it cannot be changed


def pair_samples(config: ScenesConfig) -> Iterator[Sample]:
    """Yield two samples per pair, category by category: 2p and 2p + 1 for pair p. Facts: "pair", "category"."""
    pair = 0
    for category in EDITS:
        if category == "orientation" and ORIENTED not in WORLDS[config.world].shapes:
            continue
        for _ in range(config.test_pairs):
            rng = random.Random(f"{config.seed}/scenes_pairs/{pair}")
            scenes = _sample_pair(category, config, rng)
            wording_seed = rng.random()
            for scene in rng.sample(scenes, 2):  # random order: the changed scene must not always be second
                wording = random.Random(wording_seed)  # the same for both: only the descriptions of the captions differ
                descriptions = describe(scene.content, DETAILS.get(category, (0, 0, 0)), wording)
                facts = {"pair": pair, "category": category}
                yield Sample(scene, [phrase(descriptions, wording, plain)], facts)
            pair += 1


def _sample_pair(category: str, config: ScenesConfig, rng: random.Random) -> list[Scene]:
    concepts = WORLDS[config.world].concepts
    distribution = ContentDistribution(config.max_count, TWO_GROUPS_IN_PAIRS, concepts=concepts)
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
