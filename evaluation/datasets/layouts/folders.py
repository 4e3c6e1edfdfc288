"""Layouts with one folder per class: ImageNet, ImageNetV2, Caltech-101."""

from pathlib import Path

import torch

from clipx.errors import UserError
from evaluation.datasets.kinds import Split
from evaluation.datasets.layouts.files import SEED, split_of_files

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
TRAIN_PER_CLASS = 30  # the usual split of Caltech-101


def imagenet(spec: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/imagenet/train` or `val`: one folder per WordNet id; labels follow the order of the ids.

    Raises:
        UserError: the number of folders differs from the number of classes.
    """
    folder = root / "imagenet" / part
    paths, labels = _by_class(spec, folder, _class_folders(spec, folder, classes))
    return split_of_files(spec, root, paths, labels)


def imagenetv2(spec: str, folder: Path, classes: int) -> Split:
    """Open folders named by class index, in numeric order.

    Raises:
        UserError: a folder name is not a class index.
    """
    paths, labels = [], []
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    for name in names:
        if not (name.isdecimal() and int(name) < classes):
            raise UserError(f"datasets={spec}: {folder / name}: the name must be a class index in 0..{classes - 1}")
    for name in sorted(names, key=int):
        found, _ = _by_class(spec, folder, [folder / name])
        paths += found
        labels += [int(name)] * len(found)
    return split_of_files(spec, folder, paths, labels)


def caltech101(spec: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/caltech101/101_ObjectCategories`: 102 folders; the background is a class (as in VTAB and paper 5).

    There is no official split: 30 images per class, drawn with a fixed seed, train; the others test.

    Raises:
        UserError: the number of folders differs from the number of classes, or a class has no test image.
    """
    folder = root / "caltech101" / "101_ObjectCategories"
    chosen: list[Path] = []
    labels: list[int] = []
    generator = torch.Generator().manual_seed(SEED)
    for number, of_class in enumerate(_class_folders(spec, folder, classes)):
        found, _ = _by_class(spec, folder, [of_class])
        if len(found) <= TRAIN_PER_CLASS:
            raise UserError(
                f"datasets={spec}: {of_class} has {len(found)} images, but training alone takes {TRAIN_PER_CLASS}"
            )
        order = torch.randperm(len(found), generator=generator).tolist()
        kept = order[:TRAIN_PER_CLASS] if part == "train" else order[TRAIN_PER_CLASS:]
        chosen += [found[i] for i in sorted(kept)]
        labels += [number] * len(kept)
    return split_of_files(spec, root, chosen, labels)


def _class_folders(spec: str, folder: Path, classes: int) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(found) != classes:
        raise UserError(
            f"datasets={spec}: {folder} holds {len(found)} class folders, but there are {classes} class names"
        )
    return found


def _by_class(spec: str, folder: Path, class_folders: list[Path]) -> tuple[list[Path], list[int]]:
    paths: list[Path] = []
    labels: list[int] = []
    for number, of_class in enumerate(class_folders):
        found = sorted(path for path in of_class.iterdir() if path.suffix.lower() in SUFFIXES)
        if not found:
            raise UserError(f"datasets={spec}: {of_class} holds no images")
        paths += found
        labels += [number] * len(found)
    return paths, labels
