"""Training samples, and their files in a shard."""

import io
import json
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.captions import Description, training_captions
from clipx.data.scenes.content import WORLDS, Content, ContentDistribution, ContentSet, content_set
from clipx.data.scenes.render import Scene, render, sample_scene

TWO_GROUPS = 0.2  # probability of two groups in a training scene
RECURRING = 50  # contents that the setting false_negatives repeats; few, so that they often recur within a batch


@dataclass
class Sample:
    """A scene with its captions, and further facts for its .json member."""

    scene: Scene
    captions: list[str]
    facts: dict[str, Any]
    label: int | None = None  # class index, in evaluation sets with classes
    descriptions: list[list[Description]] = field(default_factory=list)  # of each training caption

    def members(self) -> dict[str, bytes]:
        """Return extension -> file content. Images are PNG, from which all decoders return the same pixels."""
        buffer = io.BytesIO()
        Image.fromarray(render(self.scene)).save(buffer, "PNG", compress_level=1)
        members = {"png": buffer.getvalue()}
        if self.captions:
            members["txt"] = self.captions[0].encode()
        if self.label is not None:
            members["cls"] = str(self.label).encode()
        truth: dict[str, Any] = {
            "captions": self.captions,
            **self.facts,
            "groups": [vars(group) for group in self.scene.content.groups],
            "objects": [vars(o) for o in self.scene.objects],
        }
        members["json"] = json.dumps(truth).encode()
        return members


def training_sample(config: ScenesConfig, index: int) -> Sample:
    """Return training sample `index`, which does not depend on `num_train`.

    Its facts are "popularity", the probability of the first group's (shape, colour); "repeats", the earlier sample
    whose content this one repeats because of `false_negatives`, or None; and "faults", each caption's fault or None.
    """
    rng = random.Random(f"{config.seed}/train/{index}")
    source = _repeated(config, index, rng)
    content = _content(config, index if source is None else source)
    scene = sample_scene(content, config.image_size, config.layout, rng)
    captions = training_captions(content, config, rng)
    facts = {
        "popularity": _contents(config).shares[content.concept()],
        "repeats": source,
        "faults": [caption.fault for caption in captions],
    }
    texts = [caption.text for caption in captions]
    return Sample(scene, texts, facts, descriptions=[caption.descriptions for caption in captions])


def content_of(config: ScenesConfig) -> NDArray[np.int32]:
    """Number the contents of the training samples from 0: int32 [num_train], equal for equal Content.key()."""
    numbers: dict[frozenset[tuple[object, ...]], int] = {}
    of_each = np.empty(config.num_train, np.int32)
    for index in range(config.num_train):
        source = _repeated(config, index, random.Random(f"{config.seed}/train/{index}"))
        key = _content(config, index if source is None else source).key()
        of_each[index] = numbers.setdefault(key, len(numbers))
    return of_each


def _repeated(config: ScenesConfig, index: int, rng: random.Random) -> int | None:
    """Return the earlier sample whose content sample `index` repeats; None if its content is newly drawn."""
    return int(rng.random() * RECURRING) if rng.random() < config.false_negatives and index >= RECURRING else None


def _content(config: ScenesConfig, index: int) -> Content:
    # a generator of its own, so that a later sample can repeat this content without building this sample
    return _contents(config).sample(random.Random(f"{config.seed}/content/{index}"))


def _contents(config: ScenesConfig) -> ContentDistribution | ContentSet:
    concepts = WORLDS[config.world].concepts
    any_content = ContentDistribution(config.max_count, TWO_GROUPS, config.seed, config.popularity_skew, concepts)
    return any_content if config.contents is None else content_set(any_content, config.contents)
