"""Missing objects: found by name, counted by image-caption pair, with a verdict on claim 1.12."""

import json
from pathlib import Path

import pytest

from clipx.errors import UserError
from evaluation.claims.assess import outcomes
from evaluation.claims.evidence import collect_evidence
from evaluation.claims.measurements.missing_objects import MissingObjects, count, find, write
from evaluation.claims.table import CLAIMS


def annotations(folder: Path, kinds: list[list[str]], captions: list[list[str]]) -> Path:
    names = sorted({name for image_kinds in kinds for name in image_kinds})
    boxes = [{"image_id": i, "category_id": names.index(k)} for i, image_kinds in enumerate(kinds) for k in image_kinds]
    texts = [{"image_id": i, "caption": text} for i, image_texts in enumerate(captions) for text in image_texts]
    categories = [{"id": at, "name": name} for at, name in enumerate(names)]
    (folder / "captions_x.json").write_text(json.dumps({"annotations": texts}))
    (folder / "instances_x.json").write_text(json.dumps({"annotations": boxes, "categories": categories}))
    return folder


def counted(folder: Path, kinds: list[list[str]], captions: list[list[str]]) -> MissingObjects:
    return count(find(annotations(folder, kinds, captions)))


def test_names_match_whole_words_in_singular_or_plural(tmp_path: Path) -> None:
    kinds = [["car", "bus", "person", "dining table", "car"]]
    captions = [["Buses and cars, people at a dining table", "A carpet on a busy table", "one PERSON in a car."]]
    counts = counted(tmp_path, kinds, captions)
    assert counts.histogram == [1, 0, 1, 0, 1]  # missing from the captions: none; all four; bus and dining table
    assert counts.share == pytest.approx(2 / 3)
    assert counts.images == 1


def test_persons_are_left_out_of_one_share_and_images_without_objects_miss_nothing(tmp_path: Path) -> None:
    counts = counted(tmp_path, [["person", "dog"], ["person"]], [["a man with a dog"], ["a woman"]])
    assert (counts.share, counts.share_without_persons) == (1.0, 0.0)
    counts = counted(tmp_path, [["dog"], [], ["cat"]], [["an animal"], ["a sky", "clouds", "a blue sky"]])
    assert counts.histogram == [3, 1] and counts.images == 2, "an image without captions has no pair"
    assert counts.share == 0.25


@pytest.mark.parametrize(("complete", "expected"), [(0, "holds"), (40, "undecided"), (80, "does not hold")])
def test_the_report_reads_the_verdict_from_claims_json(tmp_path: Path, complete: int, expected: str) -> None:
    captions = [["a dog" if i < complete else "an animal"] for i in range(80)]
    write(counted(tmp_path, [["dog"]] * 80, captions), tmp_path / "out")
    (outcome,) = [o for o in outcomes(CLAIMS, collect_evidence([], [tmp_path])) if o.claim.id == "1.12"]
    assert outcome.verdict == expected and "more than 0.5" in outcome.findings[0].note


def test_errors_name_the_missing_or_wrong_annotations(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder that holds captions_NAME"):
        find(tmp_path)
    with pytest.raises(UserError, match="have no image in common"):
        counted(tmp_path, [[], ["dog"]], [["a dog"]])
    for content, problem in (
        ("{}", 'has no list "categories"; it should hold COCO'),
        ("[", "is corrupt; it should hold COCO"),
        (
            '{"categories": [], "annotations": [{"image_id": 0, "category_id": 7}]}',
            ': "categories" has no id 7',
        ),
    ):
        (tmp_path / "instances_x.json").write_text(content)
        with pytest.raises(UserError, match=f"instances_x.json ?{problem}"):
            count(find(tmp_path))


@pytest.mark.real_data
def test_most_captions_of_coco_miss_an_object(real_data: Path) -> None:
    counts = count(find(real_data / "coco"))
    assert counts.images > 70 and sum(counts.histogram) == pytest.approx(5 * counts.images, rel=0.05)
    assert counts.low > 0.5 and len(counts.histogram) > 4
