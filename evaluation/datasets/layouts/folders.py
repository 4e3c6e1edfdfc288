"""Layouts with a folder per class: ImageNet, ImageNetV2, Caltech-101."""

from pathlib import Path

import torch

from clipx.errors import UserError
from evaluation.datasets.kinds import Split
from evaluation.datasets.layouts.files import SEED, split_of_files

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
TRAIN_PER_CLASS = 30  # of Caltech-101, as everyone has it


def imagenet(spec: str, root: Path, part: str, classes: int) -> Split:
    """`root/imagenet/train` or `val`: a folder per WordNet id, the labels in the order of the ids.

    Raises:
        UserError: another number of folders than classes.
    """
    folder = root / "imagenet" / part
    paths, labels = _by_class(spec, folder, _class_folders(spec, folder, classes))
    return split_of_files(spec, root, paths, labels)


def imagenetv2(spec: str, folder: Path, classes: int) -> Split:
    """Folders that are named by the class index: 10 comes after 9, not after 1.

    Raises:
        UserError: a folder whose name is no class index.
    """
    paths, labels = [], []
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    for name in names:
        if not (name.isdecimal() and int(name) < classes):
            raise UserError(f"datasets={spec}: {folder / name}: the name is not a class index in 0..{classes - 1}")
    for name in sorted(names, key=int):
        found, _ = _by_class(spec, folder, [folder / name])
        paths += found
        labels += [int(name)] * len(found)
    return split_of_files(spec, folder, paths, labels)


def caltech101(spec: str, root: Path, part: str, classes: int) -> Split:
    """`root/caltech101/101_ObjectCategories`: 102 folders, the background is a class (as in VTAB and paper 5).

    There is no official split: 30 images of each class train, drawn with a fixed seed; all others test.

    Raises:
        UserError: another number of folders than classes, or a class with no image left for the test.
    """
    folder = root / "caltech101" / "101_ObjectCategories"
    chosen: list[Path] = []
    labels: list[int] = []
    generator = torch.Generator().manual_seed(SEED)
    for number, of_class in enumerate(_class_folders(spec, folder, classes)):
        found, _ = _by_class(spec, folder, [of_class])
        if len(found) <= TRAIN_PER_CLASS:
            raise UserError(f"datasets={spec}: {of_class} has {len(found)} images, {TRAIN_PER_CLASS} train alone")
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
