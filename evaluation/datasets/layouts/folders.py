"""Layouts with one folder per class: ImageNet and its variants, Caltech-101."""

from pathlib import Path
from typing import Any

import torch

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.kinds import Labelled, Split
from evaluation.datasets.layouts.files import SEED, split_of_files
from evaluation.types import Settings

IMAGENETV2 = "imagenetv2-matched-frequency-format-val"  # folder below root
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
TRAIN_PER_CLASS = 30  # the usual split of Caltech-101


def imagenet(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/imagenet/train` or `val`: one folder per WordNet id; labels follow the order of the ids.

    Raises UserError: the number of folders differs from the number of classes.
    """
    folders = _class_folders(spec, root / "imagenet" / part, classes)
    return _split(spec, root, {label: _images(spec, folder) for label, folder in enumerate(folders)})


def imagenetv2(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/IMAGENETV2`: one folder per class, named by the label.

    Raises UserError: a folder's name is not a class index.
    """
    folder = root / IMAGENETV2
    names = [path.name for path in folder.iterdir() if path.is_dir()]
    for name in names:
        if not (name.isdecimal() and int(name) < classes):
            raise UserError(f"datasets={spec}: {folder / name}: the name must be a class index in 0..{classes - 1}")
    return _split(spec, folder, {int(name): _images(spec, folder / name) for name in sorted(names, key=int)})


def open_variant(classes: int, spec: str, folder: Path, settings: Settings) -> Labelled:
    """Open ImageNet-A, -O, -R or Sketch: one folder per WordNet id.

    `classes` is the number of ImageNet's classes in the set. Only these can be predicted, as in the sets' papers
    (Hendrycks et al. 2021) and in CLIP-benchmark.

    Raises UserError: the number of folders is not `classes`, or a folder's name is not one of ImageNet's ids.
    """
    from timm.data.imagenet_info import ImageNetInfo

    ids: Any = ImageNetInfo("imagenet-1k")
    label_of = {name: label for label, name in enumerate(ids.label_names())}
    folders = _class_folders(spec, folder, classes)
    for path in folders:
        if path.name not in label_of:
            raise UserError(f"datasets={spec}: {path}: the name must be the WordNet id of one of ImageNet's classes")
    names = prompts.classnames("imagenet1k")
    chosen = [names[label_of[path.name]] for path in folders]
    # read on first use
    readers = {"test": lambda: _split(spec, folder, {label: _images(spec, path) for label, path in enumerate(folders)})}
    return Labelled(spec, folder.name, chosen, prompts.templates_of("imagenet1k"), readers, settings)


def caltech101(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/caltech101/101_ObjectCategories`: 102 classes with the background (as in VTAB and paper 5).

    There is no official split: 30 images per class, drawn with a fixed seed, are for training, all others for testing.

    Raises UserError: the number of folders differs from the number of classes, or a class has at most 30 images.
    """
    chosen: dict[int, list[Path]] = {}
    generator = torch.Generator().manual_seed(SEED)
    folders = _class_folders(spec, root / "caltech101" / "101_ObjectCategories", classes)
    for label, folder in enumerate(folders):
        found = _images(spec, folder)
        if len(found) <= TRAIN_PER_CLASS:
            problem = f"has {len(found)} images, but training alone takes {TRAIN_PER_CLASS}"
            raise UserError(f"datasets={spec}: {folder} {problem}")
        order = torch.randperm(len(found), generator=generator).tolist()
        kept = order[:TRAIN_PER_CLASS] if part == "train" else order[TRAIN_PER_CLASS:]
        chosen[label] = [found[i] for i in sorted(kept)]
    return _split(spec, root, chosen)


def _class_folders(spec: str, folder: Path, classes: int) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_dir())
    if len(found) != classes:
        problem = f"holds {len(found)} class folders, but there are {classes} class names"
        raise UserError(f"datasets={spec}: {folder} {problem}")
    return found


def _images(spec: str, folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        raise UserError(f"datasets={spec}: {folder} holds no images")
    return found


def _split(spec: str, root: Path, by_label: dict[int, list[Path]]) -> Split:
    paths = [path for of_class in by_label.values() for path in of_class]
    labels = [label for label, of_class in by_label.items() for _ in of_class]
    return split_of_files(spec, root, paths, labels)
