"""Evaluation samples: class sets by shape, colour and count, and images with five captions for retrieval.

None of the config's knobs applies here, save seed, image size and the largest count; the generators' seeds
differ from those of training.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.captions import EVERYTHING, clean_captions, number
from clipx.data.scenes.content import COLOURS, SHAPES, Content, ContentDraw, arrange
from clipx.data.scenes.render import stage
from clipx.data.scenes.samples import Sample

TWO_GROUPS_IN_RETRIEVAL = 0.6  # most captions of two groups fit one image only


@dataclass(frozen=True)
class ClassSet:
    """A labelled set of scenes with one group each."""

    classnames: Callable[[ScenesConfig], list[str]]
    templates: tuple[str, ...]  # "{c}" is the class name's place
    content: Callable[[int, ScenesConfig, random.Random], Content]  # of a class index; the rest varies

    def sample(self, name: str, config: ScenesConfig, index: int) -> Sample:
        """Sample `index` of the set and split `name`; classes take turns."""
        rng = random.Random(f"{config.seed}/{name}/{index}")
        label = index % len(self.classnames(config))
        content = self.content(label, config, rng)
        return Sample(stage(content, config.image_size, rng), [], {}, label)


def _of_shape(label: int, config: ScenesConfig, rng: random.Random) -> Content:
    return arrange([(SHAPES[label], rng.choice(COLOURS))], [rng.randint(1, config.max_count)], rng)


def _of_colour(label: int, config: ScenesConfig, rng: random.Random) -> Content:
    return arrange([(rng.choice(SHAPES), COLOURS[label])], [rng.randint(1, config.max_count)], rng)


def _of_count(label: int, config: ScenesConfig, rng: random.Random) -> Content:
    return arrange([(rng.choice(SHAPES), rng.choice(COLOURS))], [label + 1], rng)


def _counts(config: ScenesConfig) -> list[str]:
    """The noun is part of the name because of "one object"."""
    return ["one object", *(f"{number(n)} objects" for n in range(2, config.max_count + 1))]


CLASS_SETS = {
    "scenes_shape": ClassSet(
        lambda config: list(SHAPES),
        ("a {c}", "one {c}", "a picture of a {c}", "a picture of one {c}", "an image with a {c}"),
        _of_shape,
    ),
    "scenes_colour": ClassSet(
        lambda config: list(COLOURS),
        ("{c} objects", "{c} shapes", "a {c} object", "a picture of {c} objects", "an image with a {c} shape"),
        _of_colour,
    ),
    "scenes_count": ClassSet(
        _counts,
        ("{c}", "a picture of {c}", "an image of {c}", "a picture with {c}"),
        _of_count,
    ),
}


def retrieval_samples(config: ScenesConfig, number_of_images: int) -> Iterator[Sample]:
    """Images whose captions say everything; no content occurs twice, so that each caption fits one image."""
    rng = random.Random(f"{config.seed}/scenes_captions")
    draw = ContentDraw(config.max_count, TWO_GROUPS_IN_RETRIEVAL)
    seen: set[frozenset[tuple[object, ...]]] = set()
    while len(seen) < number_of_images:
        content = draw.draw(rng)
        if content.key() not in seen:
            seen.add(content.key())
            captions = clean_captions(content, EVERYTHING, rng)
            yield Sample(stage(content, config.image_size, rng), captions, {})
