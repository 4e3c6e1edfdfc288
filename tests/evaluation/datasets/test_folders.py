"""folder:DIR, and ImageNet's validation images in one folder."""

from pathlib import Path

import pytest

from clipx.errors import UserError
from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.datasets.labelled import SYNSETS
from evaluation.datasets.opening import open_dataset
from tests.helpers import fakes, replicas
from tests.helpers.folder import jpeg


def write(folder: Path, names: list[str]) -> None:
    for name in names:
        replicas.write(folder / name, jpeg("red") if name.endswith("jpg") else "a dog\na brown dog\n")


def labelled(spec: str) -> Labelled:
    return fakes.opened(spec, Labelled)


def test_class_folders_are_a_labelled_set(tmp_path: Path) -> None:
    write(tmp_path, ["cat/1.jpg", "cat/more/2.jpg", "sea_lion/1.jpg", ".git/x.jpg", "@eaDir/1.jpg"])
    opened = labelled(f"folder:{tmp_path}")
    assert opened.classnames == ["cat", "sea lion"] and opened.splits == ("test",)
    assert opened.labels("test").tolist() == [0, 0, 1] and len(opened.images("test")) == 3
    assert "a photo of a sea lion." in opened.texts("test", "prompts")


def test_a_class_whose_folder_is_not_named_in_utf_8_gets_a_question_mark(tmp_path: Path) -> None:
    write(tmp_path, ["dog/1.jpg", "caf\udce9/1.jpg"])  # as an archive from Windows is unpacked
    opened = labelled(f"folder:{tmp_path}")
    assert opened.classnames == ["caf?", "dog"] and opened.labels("test").tolist() == [0, 1]


def test_splits_share_their_classes_and_names_can_be_given(tmp_path: Path) -> None:
    write(tmp_path, ["train/n01/1.jpg", "train/n02/1.jpg", "test/n01/2.jpg", "test/n02/1.jpg"])
    (tmp_path / "classnames.txt").write_text("cat\nsea lion\n")
    opened = labelled(f"folder:{tmp_path}")
    assert opened.classnames == ["cat", "sea lion"] and opened.labels("train").tolist() == [0, 1]


def test_folders_with_numbers_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, [f"{number}/a.jpg" for number in range(11)])
    (tmp_path / "classnames.txt").write_text("".join(f"class {number}\n" for number in range(11)))
    paths = [Path(path).parent.name for path in labelled(f"folder:{tmp_path}").images("test").paths]  # type: ignore[attr-defined]
    assert paths == [str(number) for number in range(11)]


@pytest.mark.parametrize(
    ("files", "classnames", "message"),
    [
        (
            ["Zebra/1.jpg", "ant/1.jpg", "sea_lion/1.jpg"],
            "ant\nsea lion\nzebra\n",
            "ant stands for the folder Zebra; the folders in order: Zebra, ant, sea_lion",
        ),
        (["cat/1.jpg", "dog/1.jpg"], "cat\n", r"has 2 folders of classes, classnames.txt 1 names"),
        (["Train/cat/1.jpg", "Test/cat/2.jpg"], "", "the folder Test is no class; splits: train, val, dev, test"),
        (["1.jpg", "2.jpg"], "", r"has no folders of classes, and no captions beside images \(7\.txt"),
    ],
)
def test_folders_without_a_clear_class_are_refused(
    files: list[str], classnames: str, message: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    if classnames:
        (tmp_path / "classnames.txt").write_text(classnames)
    with pytest.raises(UserError, match=message):
        open_dataset(f"folder:{tmp_path}")


def test_captions_in_sub_folders_are_no_classes_and_no_image_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, ["2021/1.jpg", "2021/1.txt", "2022/2.jpg", "2022/2.txt"])
    assert isinstance(open_dataset(f"folder:{tmp_path}"), Captioned)
    write(tmp_path, ["2022/3.jpg"])
    with pytest.raises(UserError, match=r"2022/3\.jpg has no caption"):
        open_dataset(f"folder:{tmp_path}")


def test_imagenets_validation_images_in_one_folder_have_the_labels_of_the_list(tmp_path: Path) -> None:
    """test_named.py has the same with the list in the devkit."""
    order = [f"n{number:08d}" for number in reversed(range(1000))]
    (tmp_path / "imagenet" / "val").mkdir(parents=True)
    for number in range(len(order)):
        (tmp_path / "imagenet" / "val" / f"ILSVRC2012_val_{number + 1:08d}.JPEG").write_bytes(b"not read")
    with pytest.raises(UserError, match=rf"has no class folders, and its classes are not known: add .*{SYNSETS}"):
        labelled(f"imagenet:{tmp_path}").labels("test")
    (tmp_path / "imagenet" / SYNSETS).write_text("\n".join(order))
    assert labelled(f"imagenet:{tmp_path}").labels("test").tolist() == list(range(len(order)))[::-1]


def test_images_that_are_not_read_are_named_because_leaving_them_out_would_change_the_score(tmp_path: Path) -> None:
    write(tmp_path, ["cat/1.jpg", "dog/1.jpg"])
    replicas.write(tmp_path / "dog/2.HEIC", b"heic")
    replicas.write(tmp_path / "dog/3.gif", b"gif")
    with pytest.raises(UserError, match=r"dog/2.HEIC and 1 more: .HEIC is not read; convert to JPEG"):
        labelled(f"folder:{tmp_path}").labels("test")
