"""A sample as it goes into a shard, and the training samples."""

import io
import json
import random
from dataclasses import dataclass
from typing import Any

from PIL import Image

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.content import ContentDraw, popularity
from clipx.data.scenes.faults import faulty_captions
from clipx.data.scenes.render import Scene, render, stage

TWO_GROUPS = 0.2  # share of training scenes with two groups
RECURRING = 50  # contents that `false_negatives` repeats: about a batch's worth, so that they meet in batches


@dataclass
class Sample:
    """A scene with its captions; `facts` are what is true beyond the scene itself."""

    scene: Scene
    captions: list[str]
    facts: dict[str, Any]
    label: int | None = None  # class index, in the class sets

    def members(self) -> dict[str, bytes]:
        """Extension -> file content. PNG: the same pixels with every decoder."""
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
    """Training sample `index`: the same for every `num_train` and in any order.

    facts: "popularity", the probability of the first group's (shape, colour); "repeats", the earlier sample
    with the same content that `false_negatives` asked for, else None; "faults", one for each caption.
    """
    rng = random.Random(f"{config.seed}/train/{index}")
    source = int(rng.random() * RECURRING) if rng.random() < config.false_negatives and index >= RECURRING else None
    draw = ContentDraw(config.max_count, TWO_GROUPS, config.seed, config.popularity_skew)
    # a generator of its own for the content, so that a repeated content can be drawn again from its id alone
    content = draw.draw(random.Random(f"{config.seed}/content/{index if source is None else source}"))
    scene = stage(content, config.image_size, rng)
    captions, faults = faulty_captions(content, config, rng)
    main = content.groups[0]
    facts = {
        "popularity": popularity(config.seed, config.popularity_skew)[main.shape, main.colour],
        "repeats": source,
        "faults": faults,
    }
    return Sample(scene, captions, facts)
