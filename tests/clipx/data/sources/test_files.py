"""Pairs from annotation files and tables: each caption is paired with its image, and only bad rows are left out."""

import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from clipx.config.schema import DataConfig
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.sources.base import PairSource
from clipx.data.sources.files import PackedTexts
from clipx.data.sources.opening import open_pair_source
from clipx.errors import Fault, UserError
from tests.helpers.annotation_files import write_coco
from tests.helpers.folder import jpeg


def coco(root: Path, captions: str) -> PairSource:
    annotations = "annotations/captions_train2014.json"
    return open_pair_source(
        DataConfig(
            name="c", source="coco", root=str(root), split="train2014", annotations=annotations, captions=captions
        )
    )


def table(root: Path, text: str, source: str = "csv", captions: str = "each", column: str = "title") -> PairSource:
    (root / "list").write_text(text, encoding="utf-8")
    config = DataConfig(name="c", source=source, root=str(root), split=".", annotations="list", captions=captions)
    config.image_column, config.caption_column = "filepath", column
    return open_pair_source(config)


def drawn(source: PairSource) -> dict[str, set[str]]:
    """Return the captions that 40 draws give for each image name."""
    found: dict[str, set[str]] = {}
    for i in range(len(source)):
        for seed in range(40):
            found.setdefault(source.where(i), set()).add(source.pair(i, random.Random(seed))[1])
    return found


def test_a_coco_caption_is_drawn_from_all_captions_of_its_image(tmp_path: Path) -> None:
    written = write_coco(tmp_path)
    source = coco(tmp_path, "random")
    assert len(source) == 6
    assert drawn(source) == {name: set(texts) for name, texts in written.items()}
    data, _ = source.pair(2, random.Random(0))
    assert decode(data).getpixel((20, 20)) == decode(jpeg("blue")).getpixel((20, 20))
    assert source.problems == [
        "captions_train2014.json: no image 7 for 1 captions",
        f"captions_train2014.json: ../../secret.jpg is outside {tmp_path / 'train2014'}, not read",
    ]


def test_captions_each_gives_all_coco_captions_and_captions_first_only_the_first_of_an_image(tmp_path: Path) -> None:
    written = write_coco(tmp_path)
    each, first = coco(tmp_path, "each"), coco(tmp_path, "first")
    assert (len(each), len(first)) == (18, 6)
    assert [each.pair(i, random.Random(i))[1] for i in range(3)] == [texts[0] for texts in written.values()][:3]
    assert drawn(first) == {name: {texts[0]} for name, texts in written.items()}
    assert each.fingerprint != first.fingerprint
    shared = each.image_of()
    assert shared is not None and shared.tolist() == [*range(6)] * 3 and first.image_of() is None


@pytest.mark.parametrize("source", ["csv", "tsv"])
def test_tables_are_read_by_column_name_with_quotes_and_line_breaks(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg("red"))
    text = '\ufefftitle,id,filepath\r\n"one, ""two""\nlines",1,a.jpg\r\n\r\nthree,2\r\nü,3,/abs/b.jpg\r\n'
    delimiter = "\t" if source == "tsv" else ","
    opened = table(tmp_path, text.replace(",", delimiter), source)
    assert [opened.where(i) for i in range(len(opened))] == ["a.jpg", "/abs/b.jpg"]
    assert opened.pair(0, random.Random(0)) == (jpeg("red"), f'one{delimiter} "two"\nlines')
    assert len(opened.problems) == 1 and "has 2 fields, not 3" in opened.problems[0]
    with pytest.raises(BadSample, match="cannot be read"):
        opened.pair(1, random.Random(0))


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, BadSample), (errno.ENOENT, BadSample), (errno.ESTALE, Fault)])
def test_a_failing_network_drive_is_no_bad_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    source = table(tmp_path, "filepath,title\na.jpg,1\n")
    (tmp_path / "a.jpg").write_bytes(b"")

    def failing(path: Path) -> bytes:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(kind, match=rf"cannot .*{os.strerror(code)}"):
        source.image(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filepath,titel\na,b\n", "data.caption_column=title is not a column of list; did you mean 'titel'"),
        ("filepath,title,title\na,b,c\n", "list has the column title twice"),
        ("filepath,title\n", "holds no pairs"),
        ("filepath,title\nonly one\n", "row 2 has 1 fields, not 2"),
        ('filepath,title\na,b\na,"Let it snow\nb,c\n', "line 3 or later: unexpected end of data; a field"),
    ],
)
def test_the_error_of_an_unusable_table_gives_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        table(tmp_path, text)


def test_the_error_of_a_missing_or_unusable_annotation_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    with pytest.raises(UserError, match="no file"):
        coco(tmp_path, "each")
    (tmp_path / "annotations" / "captions_train2014.json").write_text("{")
    with pytest.raises(UserError, match=r"captions_train2014\.json"):
        coco(tmp_path, "each")


def test_packed_texts_equal_the_texts() -> None:
    texts = ["", "a", "zwölf", "half of a pair \ud800", "\0", ""]
    packed = PackedTexts(texts)
    assert [packed[i] for i in range(len(packed))] == texts


def test_karpathys_training_splits_are_read_and_no_other(tmp_path: Path) -> None:
    def image(name: str, split: str, **more: str) -> dict[str, Any]:
        return {"filename": name, "split": split, "sentences": [{"raw": f"{name} {k}"} for k in range(2)], **more}

    (tmp_path / "val2014").mkdir()
    for place in ("red.jpg", "val2014/blue.jpg"):
        (tmp_path / place).write_bytes(jpeg("red"))
    listed = [
        image("red.jpg", "train"),
        image("green.jpg", "test"),
        image("blue.jpg", "restval", filepath="val2014"),
        image("../out.jpg", "train"),
    ]
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": listed}))
    config = DataConfig(name="k", source="karpathy", root=str(tmp_path), split=".", annotations="dataset_x.json")
    config.captions = "random"
    source = open_pair_source(config)
    assert [(source.where(i), source.captions(i)) for i in range(len(source))] == [
        ("red.jpg", ["red.jpg 0", "red.jpg 1"]),
        ("val2014/blue.jpg", ["blue.jpg 0", "blue.jpg 1"]),
    ]
    assert source.image(1) == jpeg("red")
    assert source.problems == [f"dataset_x.json: ../out.jpg is outside {tmp_path}, not read"]
