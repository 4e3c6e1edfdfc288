"""Objects that captions leave out: counted by name, by pair, with images as the independent examples."""

import json
from pathlib import Path

import pytest

from clipx.errors import UserError
from evaluation.analyses.missing_objects import Missing, count, find, write
from evaluation.claims.evidence import collect_evidence, outcomes
from evaluation.claims.table import CLAIMS


def annotations(folder: Path, kinds: list[list[str]], captions: list[list[str]]) -> Path:
    names = sorted({name for of_image in kinds for name in of_image})
    boxes = [{"image_id": i, "category_id": names.index(k)} for i, of_image in enumerate(kinds) for k in of_image]
    texts = [{"image_id": i, "caption": text} for i, of_image in enumerate(captions) for text in of_image]
    categories = [{"id": at, "name": name} for at, name in enumerate(names)]
    (folder / "captions_x.json").write_text(json.dumps({"annotations": texts}))
    (folder / "instances_x.json").write_text(json.dumps({"annotations": boxes, "categories": categories}))
    return folder


def counted(folder: Path, kinds: list[list[str]], captions: list[list[str]]) -> Missing:
    return count(find([annotations(folder, kinds, captions)]))


def test_names_are_whole_words_in_singular_or_plural(tmp_path: Path) -> None:
    kinds = [["car", "bus", "person", "dining table", "car"]]
    captions = [["Buses and cars, people at a dining table", "A carpet on a busy table", "one PERSON in a car."]]
    found = counted(tmp_path, kinds, captions)
    assert found.histogram == [1, 0, 1, 0, 1]  # none, then all four, then bus and table
    assert found.share == pytest.approx(2 / 3)
    assert found.images == 1


def test_shares_without_persons_are_told_apart(tmp_path: Path) -> None:
    found = counted(tmp_path, [["person", "dog"], ["person"]], [["a man with a dog"], ["a woman"]])
    assert (found.share, found.share_without_persons) == (1.0, 0.0)


def test_pairs_of_images_without_objects_count_and_miss_nothing(tmp_path: Path) -> None:
    found = counted(tmp_path, [["dog"], [], ["cat"]], [["an animal"], ["a sky", "clouds", "a blue sky"]])
    assert found.histogram == [3, 1] and found.images == 2, "without a caption, there is no pair"
    assert found.share == 0.25


@pytest.mark.parametrize(("good", "expected"), [(0, "holds"), (40, "undecided"), (80, "does not hold")])
def test_the_verdict_goes_through_the_file(tmp_path: Path, good: int, expected: str) -> None:
    captions = [["a dog" if i < good else "an animal"] for i in range(80)]
    write(counted(tmp_path, [["dog"]] * 80, captions), tmp_path / "out")
    (found,) = [o for o in outcomes(CLAIMS, collect_evidence([], [tmp_path])) if o.claim.id == "1.12"]
    assert found.verdict == expected and "more than 0.5" in found.findings[0].note


def test_what_is_no_annotation_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no captions_NAME"):
        find([tmp_path])
    with pytest.raises(UserError, match="have no image in common"):
        counted(tmp_path, [[], ["dog"]], [["a dog"]])
    (tmp_path / "instances_x.json").write_text("{}")
    with pytest.raises(UserError, match="are not COCO annotations"):
        count(find([tmp_path]))


@pytest.mark.real_data
def test_most_captions_of_coco_leave_an_object_out(real_data: Path) -> None:
    found = count(find([real_data / "coco"]))
    assert found.images > 70 and sum(found.histogram) == pytest.approx(5 * found.images, rel=0.05)
    assert found.low > 0.5 and len(found.histogram) > 4
