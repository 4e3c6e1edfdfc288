"""Evaluation samples: class sets by shape, colour and count, and images with five captions for retrieval.

Of the config, only seed, world, image_size, max_count, layout and test_images apply here. The random seeds differ from
those of the training data.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clipx.config.data_schema import ScenesConfig
from clipx.data.preprocess.keywords import CARDINALS
from clipx.data.scenes.captions import detailed_captions
from clipx.data.scenes.content import WORLDS, Content, ContentDistribution, arrange
from clipx.data.scenes.render import sample_scene
from clipx.data.scenes.samples import Sample

TWO_GROUPS = 0.6  # probability of two groups in a retrieval image; high, because contents of two groups rarely repeat


@dataclass(frozen=True)
class ClassSet:
    """Labelled scenes with one group each."""

    classnames: Callable[[ScenesConfig], list[str]]
    templates: tuple[str, ...]  # prompts; "{c}" stands for the class name
    content: Callable[[int, ScenesConfig, random.Random], Content]  # class index -> content, random in all else

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
    """Yield samples whose captions name all attributes; contents are unique, so each caption fits only one image."""
    rng = random.Random(f"{config.seed}/scenes_captions")
    distribution = ContentDistribution(config.max_count, TWO_GROUPS, concepts=WORLDS[config.world].concepts)
    seen: set[frozenset[tuple[object, ...]]] = set()
    while len(seen) < num_images:
        content = distribution.sample(rng)
        if content.key() not in seen:
            seen.add(content.key())
            captions = detailed_captions(content, rng)
            yield Sample(sample_scene(content, config.image_size, config.layout, rng), captions, {})
