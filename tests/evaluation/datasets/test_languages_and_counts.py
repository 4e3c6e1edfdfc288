"""CountBench, XTD10, Multi30k and XM3600 are read from small copies of their layouts; test_faults.py damages them."""

from pathlib import Path

import pytest

from clipx.errors import UserError
from evaluation.datasets.composition import NUMBERS
from evaluation.datasets.kinds import Captioned, Choices
from evaluation.datasets.opening import open_dataset
from tests.helpers import replicas


def test_countbench_has_nine_captions_that_differ_in_the_first_number(tmp_path: Path) -> None:
    replicas.countbench(tmp_path, [2, 10], faulty=True)
    data = open_dataset(f"countbench:{tmp_path}")
    assert isinstance(data, Choices) and (data.short, data.answers) == ("countbench", 9)
    texts = data.texts("test", "captions")
    assert texts[0] == "Photo 0: Two cups and two spoons" and texts[9] == "Photo 1: Ten cups and ten spoons"
    # with the capital letter of the right caption: text towers that see case would find it without the image
    assert texts[1:9] == [f"Photo 0: {word.capitalize()} cups and two spoons" for word in NUMBERS[1:]]
    assert data.categories("test") == ["two", "ten"] and len(data.images("test")) == 2
    assert data.images("test")[1].size == (8, 8)


def test_xtd10_has_the_captions_of_the_language_in_the_order_of_the_images(tmp_path: Path) -> None:
    files = {
        "XTD10/test_1kcaptions_ko.txt": ["개", "고양이"],
        "MIC/test_1kcaptions_de.txt": ["ein Hund", "eine Katze "],
    }
    replicas.xtd10(tmp_path, files)
    for file, captions in zip(files, (["개", "고양이"], ["ein Hund", "eine Katze"]), strict=True):
        data, language = open_dataset(f"xtd10:{tmp_path}/xtd10/{file}"), file[-6:-4]
        assert isinstance(data, Captioned) and data.short == f"xtd10_{language}"
        assert data.texts("test", "captions") == captions
        assert data.image_of_caption("test").tolist() == [0, 1]
        assert Path(data.images("test").paths[1]).name == "COCO_train2014_000000000001.jpg"  # type: ignore[attr-defined]


def test_multi30k_has_five_captions_in_german_and_a_translation_in_french(tmp_path: Path) -> None:
    folder = replicas.multi30k(tmp_path, 2)
    for language, expected in (("de", [f"de {k} of {i}.jpg" for i in (1, 0) for k in range(1, 6)]), ("fr", None)):
        data = open_dataset(f"multi30k:{folder}/{language}")
        assert isinstance(data, Captioned) and data.short == f"multi30k_{language}"
        assert data.texts("test", "captions") == (expected or ["fr of 0.jpg", "fr of 1.jpg"])
        own = [Path(data.images("test").paths[i]).name for i in data.image_of_caption("test")]  # type: ignore[attr-defined]
        assert own == [text.split()[-1] for text in data.texts("test", "captions")]
    with pytest.raises(UserError, match="multi30k=it is not known; allowed: cs, de, en, fr"):
        open_dataset(f"multi30k:{folder}/it")
    (folder / "data/task2/raw/test_2016.3.de").write_text("one\n")
    with pytest.raises(UserError, match=r"test_2016.3.de has 1 captions, test_2016_images.txt has 2 images"):
        open_dataset(f"multi30k:{folder}/de")


def test_xm3600_has_all_captions_of_the_language(tmp_path: Path) -> None:
    replicas.xm3600(tmp_path, [{"fil": ["isa", "dalawa"], "en": ["one"]}, {"fil": ["tatlo"], "en": ["three", "3"]}])
    data = open_dataset(f"xm3600:{tmp_path}/xm3600/fil")
    assert isinstance(data, Captioned) and data.short == "xm3600_fil"
    assert data.texts("test", "captions") == ["isa", "dalawa", "tatlo"]
    assert data.image_of_caption("test").tolist() == [0, 0, 1]
    with pytest.raises(UserError, match=r"line 1 has no captions in 'zh'"):
        open_dataset(f"xm3600:{tmp_path}/xm3600/zh")
    replicas.xm3600(tmp_path, [{"fil": ["isa"]}, {"fil": [" "]}])
    with pytest.raises(UserError, match=r"line 2 has no captions in 'fil'"):
        open_dataset(f"xm3600:{tmp_path}/xm3600/fil")
