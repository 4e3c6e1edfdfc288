"""Scenes depend only on (seed, id), and the pixels agree with the ground truth."""

import numpy as np
import pytest

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.render import render
from clipx.data.scenes.samples import RECURRING, training_sample
from tests.helpers.scenes import components, within_binomial

CONFIG = ScenesConfig(false_negatives=0.2, omit=0.2, noise=0.2, popularity_skew=1.0)


def test_a_sample_does_not_depend_on_the_order_or_the_number_of_samples() -> None:
    ids = [7, 3, 1000, 59_999, 0]
    first = {i: training_sample(CONFIG, i).members() for i in ids}
    more = ScenesConfig(**{**vars(CONFIG), "num_train": 1_000_000})
    assert all(training_sample(more, i).members() == first[i] for i in sorted(ids))


@pytest.mark.parametrize("layout", ["grid", "free"])
@pytest.mark.parametrize("image_size", [32, 65])
def test_the_pixels_show_as_many_objects_of_each_colour_as_the_ground_truth(image_size: int, layout: str) -> None:
    config = ScenesConfig(image_size=image_size, max_count=9, layout=layout)
    for index in range(40):
        scene = training_sample(config, index).scene
        pixels = render(scene)
        assert pixels.shape == (image_size, image_size, 3)
        assert pixels.dtype == np.uint8
        assert sum(g.count for g in scene.content.groups) == len(scene.objects)
        for group in scene.content.groups:
            rgb = next(o.rgb for o in scene.objects if o.colour == group.colour)
            assert components(pixels, rgb) == group.count, (index, group)


def test_false_negatives_is_the_share_of_samples_that_repeat_a_content() -> None:
    samples = [training_sample(ScenesConfig(false_negatives=0.3), i) for i in range(1000)]
    repeats = [(s, samples[s.facts["repeats"]]) for s in samples if s.facts["repeats"] is not None]
    assert within_binomial(len(repeats), len(samples) - RECURRING, 0.3)
    for sample, source in repeats:
        assert sample.scene.content == source.scene.content
        assert not np.array_equal(render(sample.scene), render(source.scene))
