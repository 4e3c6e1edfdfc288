"""swaps:FOLDER: one change a caption, balanced words, and the images of the captions."""

import json
from collections import Counter
from pathlib import Path

import pytest

from clipx.data.preprocess.captions import Keywords
from clipx.errors import UserError
from evaluation.datasets.kinds import Choices
from evaluation.datasets.opening import open_dataset
from evaluation.datasets.swaps import changes
from evaluation.types import Settings
from tests.helpers import fakes

CAPTIONS = [
    *("Two dogs run .", "Three dogs run .", "two men sit", "two boats", "five birds fly"),
    *("a red car", "a Gray horse", "a blue door", "the red bus", "a wide sky", "two red birds and two boats"),
]
IMAGES = [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("category", "items"), [("numbers", 4), ("colours", 4)])
def test_a_preference_for_a_word_is_right_for_half_of_the_captions(category: str, items: int) -> None:
    label = Keywords([category], digits=False)
    changed = changes(CAPTIONS, IMAGES)[category]
    right, wrong = Counter(label(CAPTIONS[n]) for n in changed), Counter(map(label, changed.values()))
    assert right == wrong
    assert len(changed) == items  # all captions with three or five; of the others as many
    assert all(label(CAPTIONS[n]) != label(text) for n, text in changed.items())


def test_only_the_keyword_changes_each_time_that_it_occurs() -> None:
    assert Keywords(["numbers"], digits=False).replace("Two men and two dogs; twofold, two-storey", 4) == (
        "Five men and five dogs; twofold, two-storey"
    )
    assert Keywords(["colours"], digits=False).replace("a gray sky", 1) == "a red sky"


def test_two_words_of_the_first_caption_of_an_image_change_places() -> None:
    changed = changes(CAPTIONS, IMAGES)["words"]
    assert sorted(changed) == [0, 2, 4, 5, 6, 7, 8, 9, 10]
    for number, text in changed.items():
        before, after = CAPTIONS[number].split(), text.split()
        assert sorted(before) == sorted(after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 2
    assert changes(CAPTIONS, IMAGES) == changes(CAPTIONS, IMAGES)
    assert changes(["dog", "dog dog"], [0, 1])["words"] == {}


def test_each_caption_keeps_its_image(tmp_path: Path) -> None:
    captions = {0: ["two dogs", "no number"], 1: ["seven cats"], 2: ["sky"]}
    samples = [
        {"png": fakes.picture(i), "json": json.dumps({"captions": texts}).encode()} for i, texts in captions.items()
    ]
    fakes.shard(tmp_path / "photos" / "test" / "0.tar", samples)
    dataset = fakes.opened(f"swaps:{tmp_path / 'photos' / 'test'}", Choices)
    assert dataset.short == "photos_swaps/test"
    assert dataset.categories("test") == ["numbers", "numbers", "words", "words"]
    assert dataset.texts("test", "captions")[:4] == ["two dogs", "seven dogs", "seven cats", "two cats"]
    originals = open_dataset(f"captions:{tmp_path / 'photos' / 'test'}").images("test")
    shown = [image.tobytes() for image in dataset.images("test")]
    assert shown == [originals[i].tobytes() for i in (0, 1, 0, 1)]
    limited = fakes.opened(f"swaps:{tmp_path / 'photos' / 'test'}", Choices, Settings(limit=2))
    assert len(limited.categories("test")) == 2


def test_captions_without_anything_to_change_are_refused(tmp_path: Path) -> None:
    fakes.shard(tmp_path / "0.tar", [{"png": fakes.picture(0), "txt": b"dog"}])
    with pytest.raises(UserError, match="no caption has a number, a colour or two different words"):
        open_dataset(f"swaps:{tmp_path}")
