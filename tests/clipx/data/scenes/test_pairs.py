"""The scenes of a minimal pair differ only in the category of the pair."""

from collections import Counter
from typing import Any

from clipx.config.schema import ScenesConfig
from clipx.data.scenes.evaluation_sets import pair_samples
from clipx.data.scenes.samples import Sample

ATTRIBUTES = ("count", "colour", "shape", "size", "position", "orientation")  # of a group


def groups(sample: Sample) -> list[dict[str, Any]]:
    return [vars(group) for group in sample.scene.content.groups]


def test_the_groups_of_a_pair_differ_only_in_its_category_and_each_category_has_the_set_number_of_pairs() -> None:
    samples = list(pair_samples(ScenesConfig(test_pairs=30)))
    assert [sample.facts["pair"] for sample in samples] == [k // 2 for k in range(len(samples))]
    found: Counter[str] = Counter()
    for first, second in zip(samples[::2], samples[1::2], strict=True):
        assert first.facts == second.facts
        category = first.facts["category"]
        found[category] += 1
        fewer, more = sorted((groups(first), groups(second)), key=len)
        if category == "presence":
            assert more[:-1] == fewer
        else:
            pairs = zip(fewer, more, strict=True)
            assert [name for a, b in pairs for name in ATTRIBUTES if a[name] != b[name]] == [category]
    assert found == dict.fromkeys(("colour", "count", "shape", "size", "position", "presence", "orientation"), 30)
