"""Negative captions: of rendered scenes, of shards with a list `negatives`, and sources without them."""

import json
import random
import tarfile
from pathlib import Path

import pytest

from clipx.config.schema import DataConfig, ScenesConfig, TrainConfig
from clipx.data.scenes.captions import COLOUR, SHAPE, negative_caption
from clipx.data.scenes.content import COLOURS, SHAPES
from clipx.data.scenes.samples import training_sample
from clipx.errors import UserError
from clipx.types import Batch
from tests.helpers.annotation_files import write_table
from tests.helpers.folder import add, jpeg
from tests.helpers.loading import load


def batches(config: DataConfig) -> list[Batch]:
    train = TrainConfig(epochs=1, batch_size=4)
    return [batch for batch, _ in load(config, train, needs=("negative_text",))]


@pytest.mark.parametrize(
    ("caption", "allowed"),
    [
        ("three red circles and a blue star", {"three blue circles and a red star"}),
        ("two rings", {f"two {shape}{'es' if shape == 'cross' else 's'}" for shape in SHAPES if shape != "ring"}),
        ("a green object", {f"a {colour} object" for colour in COLOURS if colour != "green"}),
        # exchanging the colours of two unnamed shapes would leave the caption true
        ("red and blue things", {f"{c} and blue things" for c in COLOURS if c not in ("red", "blue")}),
        ("what a lovely day", {"no what a lovely day"}),
    ],
)
def test_a_negative_caption_exchanges_colours_or_one_word(caption: str, allowed: set[str]) -> None:
    found = {negative_caption(caption, random.Random(seed)) for seed in range(60)}
    assert found == allowed


def test_no_negative_of_a_faultless_caption_is_true() -> None:
    scenes = ScenesConfig(num_train=300, omit=0.5)
    for index in range(scenes.num_train):
        sample = training_sample(scenes, index)
        groups = sample.scene.content.groups
        for caption, descriptions in zip(sample.captions, sample.descriptions, strict=True):
            negative = negative_caption(caption, random.Random(index))
            colours, shapes = COLOUR.findall(negative), [found[1] for found in SHAPE.finditer(negative)]
            if len(colours) == len(shapes) == 2:  # two groups, named in the order of `groups`
                assert colours == [group.colour for group in reversed(groups)]
                assert shapes == [group.shape for group in groups]
            elif descriptions[0].colour:
                assert set(colours) - {group.colour for group in groups}
            elif descriptions[0].shape:
                assert set(shapes) - {group.shape for group in groups}


@pytest.mark.parametrize("cache", ["none", "memory"])
@pytest.mark.parametrize("captions", ["first", "random"])
def test_batches_contain_the_negative_of_the_drawn_caption(tmp_path: Path, cache: str, captions: str) -> None:
    (tmp_path / "train").mkdir()
    with tarfile.open(tmp_path / "train" / "0.tar", "w") as tar:
        for i in range(8):
            texts, negatives = ([f"{i} {word} {k}" for k in range(3)] for word in ("caption", "negates"))
            texts[1] = " "  # an empty caption is bad, the others are not
            add(tar, f"{i}.jpg", jpeg("red"))
            add(tar, f"{i}.txt", texts[0].encode())
            add(tar, f"{i}.json", json.dumps({"captions": texts, "negatives": negatives}).encode())
    config = DataConfig(name="t", source="shards", root=str(tmp_path), captions=captions, cache=cache, workers=0)
    config.crop_scale, config.max_bad_rate = [1.0, 1.0], 1.0
    found = batches(config)
    assert sum(len(batch.text) for batch in found) > (7 if captions == "first" else 2)
    for batch in found:
        assert batch.negative_text is not None
        for text, negative in zip(batch.text.tolist(), batch.negative_text.tolist(), strict=True):
            assert text[-1] == negative[-1], "the negative is that of another caption"
            assert "".join(map(chr, text)).strip() != "".join(map(chr, negative)).strip()


def test_a_source_without_negatives_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"negative captions, which data.source=csv does not have; allowed: scenes, or"):
        batches(write_table(tmp_path))
