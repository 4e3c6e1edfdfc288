"""RandAugment depends only on the sample's generator."""

import random

import pytest
import torch
from PIL import Image

from clipx.config.schema import DataConfig
from clipx.config.setting import check
from clipx.data.preprocess.transforms import TrainTransform
from clipx.errors import UserError
from tests.helpers.loading import inputs

IMAGE = Image.effect_noise((60, 50), 80).convert("RGB")


def transform(rand_augment: list[int] | None) -> TrainTransform:
    config = DataConfig(name="x", source="shards", crop_scale=[1.0, 1.0], rand_augment=rand_augment)
    return TrainTransform(config, inputs())


def test_an_augmented_sample_depends_only_on_its_generator() -> None:
    augment = transform([2, 7])
    torch.manual_seed(1)
    one = augment(IMAGE, random.Random(5))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(one, augment(IMAGE, random.Random(5)))
    assert one.shape == (3, 32, 32) and one.dtype == torch.uint8
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state), "the global random state changed"


def test_augmentation_changes_most_samples_and_is_off_by_default() -> None:
    plain, augment = transform(None), transform([2, 7])
    changed = sum(
        not torch.equal(plain(IMAGE, random.Random(seed)), augment(IMAGE, random.Random(seed))) for seed in range(40)
    )
    assert changed >= 30
    assert DataConfig(name="x", source="x").rand_augment is None


@pytest.mark.parametrize("value", [[2], [0, 7], [2, 11], [2, -1]])
def test_a_rand_augment_out_of_range_is_refused(value: list[int]) -> None:
    config = DataConfig(rand_augment=value)
    with pytest.raises(UserError, match=r"data.rand_augment=.* is out of range; allowed: \[n, m\]"):
        check(config, "data.")
