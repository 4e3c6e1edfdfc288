"""Training samples, the checks of their settings, and the members of a sample in a shard."""

import io
import json
import random
from dataclasses import dataclass
from typing import Any

from PIL import Image

from clipx.config.schema import ScenesConfig
from clipx.config.setting import check
from clipx.data.scenes.content import ContentDistribution, popularity
from clipx.data.scenes.faults import fault_rates, training_captions
from clipx.data.scenes.render import Scene, render, sample_scene
from clipx.errors import UserError

TWO_GROUPS = 0.2  # probability of two groups in a training scene
RECURRING = 50  # number of contents that `false_negatives` repeats; small, so that a batch often has one twice


@dataclass
class Sample:
    """A scene with its captions, and further facts for its .json member."""

    scene: Scene
    captions: list[str]
    facts: dict[str, Any]
    label: int | None = None  # class index, in the class sets

    def members(self) -> dict[str, bytes]:
        """Return extension -> file content. Images are PNG: all decoders return the same pixels."""
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
    """Return training sample `index`, which does not depend on `num_train` or on other samples.

    Its facts are "popularity", the probability of the first group's (shape, colour); "repeats", the earlier sample
    whose content it repeats (`false_negatives`), or None; and "faults", the fault of each caption.
    """
    rng = random.Random(f"{config.seed}/train/{index}")
    source = int(rng.random() * RECURRING) if rng.random() < config.false_negatives and index >= RECURRING else None
    distribution = ContentDistribution(config.max_count, TWO_GROUPS, config.seed, config.popularity_skew)
    # The content has a separate generator, so that a later sample can repeat it, given only this sample's index.
    content = distribution.sample(random.Random(f"{config.seed}/content/{index if source is None else source}"))
    scene = sample_scene(content, config.image_size, rng)
    captions, faults = training_captions(content, config, rng)
    main = content.groups[0]
    facts = {
        "popularity": popularity(config.seed, config.popularity_skew)[main.shape, main.colour],
        "repeats": source,
        "faults": faults,
    }
    return Sample(scene, captions, facts)


def validate(config: ScenesConfig) -> None:
    """Raise UserError naming the first setting that is out of range."""
    check(config, "data.scenes.")
    rates = fault_rates(config)
    if sum(rates.values()) > 1:
        raise UserError(
            f"data.scenes.{' + data.scenes.'.join(rates)}={sum(rates.values()):g} is out of range; "
            "allowed: at most 1, as a caption has at most one fault"
        )
