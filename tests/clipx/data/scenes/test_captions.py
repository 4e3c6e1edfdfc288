"""Captions without a fault are true; each fault occurs with its share."""

from typing import Any

import pytest

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.captions import CAPTIONS_PER_IMAGE
from clipx.data.scenes.evaluation_sets import retrieval_samples
from clipx.data.scenes.samples import Sample, training_sample
from tests.helpers.scenes import named, within_binomial

N = 800


def truth(sample: Sample) -> tuple[list[int], list[str], list[str]]:
    """Return the counts above one, the colours and the shapes of a sample, as `named` finds them in a true caption."""
    groups = sample.scene.content.groups
    return (
        sorted(g.count for g in groups if g.count > 1),
        sorted(g.colour for g in groups),
        sorted(g.shape for g in groups),
    )


def faulty(samples: list[Sample]) -> list[tuple[Sample, str]]:
    """Return the (sample, caption) pairs whose numbers, colours or shapes differ from the scene."""
    return [(s, c) for s in samples for c in s.captions if named(c) != truth(s)]


@pytest.mark.parametrize("fault", ["omit", "mislabelled", "irrelevant_numbers", "noise"])
def test_the_share_of_faulty_captions_is_the_setting_and_the_others_are_true(fault: str) -> None:
    settings: dict[str, Any] = {"omit": 0.0, fault: 0.3}
    found = [training_sample(ScenesConfig(**settings), i) for i in range(N)]
    assert within_binomial(len(faulty(found)), N * CAPTIONS_PER_IMAGE, 0.3)
    first = [s for s in found if named(s.captions[0]) != truth(s)]
    assert within_binomial(len(first), N, 0.3), "share among the first captions, which are the .txt members"
    for sample in found:
        assert len(set(sample.captions)) == CAPTIONS_PER_IMAGE
        for caption, recorded in zip(sample.captions, sample.facts["faults"], strict=True):
            assert recorded == (None if named(caption) == truth(sample) else fault)


def test_every_retrieval_caption_fits_only_one_image() -> None:
    images = list(retrieval_samples(ScenesConfig(), 300))
    captions = [c for s in images for c in s.captions]
    assert len(set(captions)) == len(captions) == 300 * CAPTIONS_PER_IMAGE
    assert len({s.scene.content.key() for s in images}) == 300
    assert faulty(images) == []


def test_faults_never_change_evaluation_captions() -> None:
    with_faults = ScenesConfig(omit=0.5, noise=0.5, popularity_skew=2.0, false_negatives=0.9)
    clean = [s.members() for s in retrieval_samples(ScenesConfig(), 50)]
    assert [s.members() for s in retrieval_samples(with_faults, 50)] == clean
