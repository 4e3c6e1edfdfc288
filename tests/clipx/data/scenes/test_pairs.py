"""The scenes of a minimal pair differ only in the category of the pair."""

from functools import cache
from typing import Any

import pytest

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.evaluation_sets import EDITS, pair_samples
from clipx.data.scenes.samples import Sample

ATTRIBUTES = ("count", "colour", "shape", "size", "position", "orientation")  # of a group


@cache
def pairs_by_category() -> dict[str, list[tuple[Sample, Sample]]]:
    samples = list(pair_samples(ScenesConfig(test_pairs=30)))
    assert [sample.facts["pair"] for sample in samples] == [k // 2 for k in range(2 * 30 * len(EDITS))]
    pairs: dict[str, list[tuple[Sample, Sample]]] = {}
    for first, second in zip(samples[::2], samples[1::2], strict=True):
        assert first.facts == second.facts
        pairs.setdefault(first.facts["category"], []).append((first, second))
    return pairs


def groups(sample: Sample) -> list[dict[str, Any]]:
    return [vars(group) for group in sample.scene.content.groups]


def test_seven_categories_with_the_set_number_of_pairs_each() -> None:
    counts = {category: len(pairs) for category, pairs in pairs_by_category().items()}
    assert counts == dict.fromkeys(EDITS, 30)
    assert set(counts) == {"colour", "count", "shape", "size", "position", "presence", "orientation"}


@pytest.mark.parametrize("category", [c for c in EDITS if c != "presence"])
def test_the_groups_differ_only_in_the_category(category: str) -> None:
    for first, second in pairs_by_category()[category]:
        different = [
            name
            for a, b in zip(groups(first), groups(second), strict=True)
            for name in ATTRIBUTES
            if a[name] != b[name]
        ]
        assert different == [category]


def test_presence_pairs_differ_by_one_group() -> None:
    for first, second in pairs_by_category()["presence"]:
        fewer, more = sorted((groups(first), groups(second)), key=len)
        assert more[:-1] == fewer
