"""Settings of training scenes, alone and combined: shares of named attributes, recurring contents, free layout.

The shares are measured in the first captions of samples, on which data.captions=first trains.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.captions import Description, check_faults, fits
from clipx.data.scenes.content import Content, ObjectGroup, popularity
from clipx.data.scenes.evaluation_sets import CLASS_SETS, pair_samples, retrieval_samples
from clipx.data.scenes.render import render
from clipx.data.scenes.samples import Sample, training_sample
from clipx.errors import UserError
from tests.helpers.scenes import named, within_binomial, words

N = 1_200
ATTRIBUTES = ("count", "colour", "shape")


def first_samples(n: int = N, /, **settings: Any) -> list[Sample]:
    """Return training samples 0..n-1 with these settings, by default without omissions."""
    config = ScenesConfig(**{"omit": 0.0, **settings})
    check_faults(config)
    return [training_sample(config, i) for i in range(n)]


def has_attributes(caption: str) -> tuple[bool, ...]:
    """Return, for each of ATTRIBUTES, True if the caption names it."""
    numbers, colours, shapes = named(caption)
    return bool(numbers or {"one", "single"} & set(words(caption))), bool(colours), bool(shapes)


def test_the_three_shares_are_independent_of_each_other_and_of_the_content() -> None:
    shares = {"count_share": 0.2, "colour_share": 0.6, "shape_share": 0.7}
    samples = first_samples(**shares)
    joint = Counter(has_attributes(s.captions[0]) for s in samples)
    for pattern in product([True, False], repeat=3):
        p = np.prod([share if yes else 1 - share for yes, share in zip(pattern, shares.values(), strict=True)])
        assert within_binomial(joint[pattern], N, float(p)), pattern
    for several in (True, False):
        some = [s for s in samples if any(g.count > 1 for g in s.scene.content.groups) == several]
        assert within_binomial(sum(has_attributes(s.captions[0])[0] for s in some), len(some), 0.2)


def test_the_shares_change_no_content_and_of_the_faults_only_wrong_counts() -> None:
    faults = {"mislabelled": 0.2, "irrelevant_numbers": 0.1, "noise": 0.2, "false_negatives": 0.3}
    plain = first_samples(**faults)
    shared = first_samples(**faults, count_share=0.5, colour_share=0.5, shape_share=0.5)
    assert [s.scene.content for s in shared] == [s.scene.content for s in plain]
    found = [s.facts["faults"][0] for s in shared]
    assert within_binomial(found.count("irrelevant_numbers"), N, 0.1)
    assert within_binomial(found.count("noise"), N, 0.2)
    assert within_binomial(found.count("mislabelled"), N, 0.2 * 0.5), "only a named count can be wrong"
    for s in shared:
        for description, fault in zip(s.descriptions, s.facts["faults"], strict=True):
            assert fits(description, s.scene.content) == (fault in (None, "irrelevant_numbers")), s.captions


def test_rates_of_faults_that_sum_to_1_are_accepted_whatever_their_rounding() -> None:
    """Added one by one as floats, 0.2, 0.4, 0.3 and 0.1 are 1.0000000000000002."""
    rates: dict[str, Any] = {"omit": 0.2, "mislabelled": 0.4, "irrelevant_numbers": 0.3}
    check_faults(ScenesConfig(**rates, noise=0.1))
    with pytest.raises(UserError, match=r"=1\.01 is out of range; allowed: at most 1"):
        check_faults(ScenesConfig(**rates, noise=0.11))


def test_the_number_of_contents_is_the_setting_and_the_concepts_keep_zipfs_popularity() -> None:
    assert len({s.scene.content.key() for s in first_samples(1000, contents=80)}) == 80
    samples = first_samples(contents=320, popularity_skew=1.0)
    assert len({s.scene.content.key() for s in samples}) <= 320
    concepts, shares = Counter(s.scene.content.concept() for s in samples), popularity(0, 1.0)
    zipf = 1 / np.arange(1, len(shares) + 1)
    assert all(within_binomial(concepts[concept], N, p) for concept, p in shares.items())
    assert all(s.facts["popularity"] == pytest.approx(shares[s.scene.content.concept()]) for s in samples)
    assert sorted(shares.values(), reverse=True) == pytest.approx(zipf / zipf.sum())


def content(*groups: tuple[int, str, str], position: str | None = None) -> Content:
    return Content([ObjectGroup(n, colour, shape, "small", position, None) for n, colour, shape in groups], [[]])


def names(**values: Any) -> Description:
    """Return a description that names only these attributes, by default in the plural."""
    return Description(**{"count": None, "colour": None, "shape": None, "plural": True, **values})


def test_a_caption_fits_a_content_if_all_that_it_names_is_true() -> None:
    two_red = content((2, "red", "star"))
    both = content((2, "red", "star"), (1, "blue", "ring"))
    assert fits([names(count=2, colour="red", shape="star")], two_red)
    assert fits([names(colour="red")], two_red) and fits([names()], two_red)
    assert not fits([names(colour="blue")], two_red) and not fits([names(count=3)], two_red)
    assert not fits([names(plural=False)], two_red), "a singular stands for one object"
    assert fits([names(count=2)], both), "a caption may leave out a group"
    assert fits([names(count=1, plural=False), names(colour="red")], both), "descriptions may be in any order"
    assert not fits([names(), names()], both), "only one of the groups is plural"
    assert not fits([names(), names(plural=False)], two_red), "two descriptions need two groups"
    assert not fits([names(position="left")], two_red)
    assert fits([names(position="left")], content((2, "red", "ring"), position="left"))
    assert not fits([], two_red), "an unrelated text fits no content"


def digest(samples: Iterable[Sample]) -> str:
    """Return a hash of ground truth and pixels; how the image files are compressed does not change it."""
    found = hashlib.sha256()
    for s in samples:
        found.update(render(s.scene).tobytes())
        found.update(s.members()["json"])
    return found.hexdigest()[:16]


def test_the_same_settings_give_the_data_of_earlier_versions() -> None:
    """Golden hashes: results on rendered data must stay comparable across versions."""
    default, class_set = ScenesConfig(), CLASS_SETS["scenes_count"]
    for expected, config in {
        "2e7091475995bb4c": default,
        "d9f01f1f7fd4dd0c": ScenesConfig(
            mislabelled=0.2, irrelevant_numbers=0.1, noise=0.2, false_negatives=0.3, popularity_skew=1.0
        ),
        "b4b5e87b150646fc": ScenesConfig(omit=0.0, count_share=0.2, colour_share=0.6, shape_share=0.7, noise=0.2),
        "f64b2af1b1b4c2bc": ScenesConfig(contents=40, popularity_skew=1.0, false_negatives=0.4),
        "74ed3eef366a06c4": ScenesConfig(layout="free", image_size=32, max_count=9),
        "7649b4bf6121f9de": ScenesConfig(world="second", noise=0.3, omit=0.3),
    }.items():
        assert digest(training_sample(config, i) for i in range(100)) == expected, config
    assert digest(class_set.sample("scenes_count/test", default, i) for i in range(30)) == "8f33491b5d569014"
    assert digest(islice(retrieval_samples(default, 30), 30)) == "51166256980a83e7"
    assert digest(islice(pair_samples(default), 0, 840, 29)) == "16f3585fe31c7345"
