"""CLEVR counting: how many objects, 3 to 10 (CLEVR_v1.0: images/<split>, scenes/CLEVR_<split>_scenes.json)."""

from functools import partial
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.kinds import Labelled, Split
from evaluation.datasets.layouts.files import entries, read_json, split_of_files
from evaluation.types import Settings

FEWEST = 3  # objects in the first class


KEY = "clevr_count_all"  # of the prompt tables
PARTS = {"train": "train", "test": "val"}  # split -> CLEVR's name; CLEVR's own test has no scenes


def open_clevr(spec: str, folder: Path, settings: Settings) -> Labelled:
    """Counting on CLEVR; PLACE is the folder CLEVR_v1.0.

    Raises:
        UserError: its validation scenes are not there, or do not belong to its images.
    """
    if not _scenes(folder, "val").is_file():
        raise UserError(f"datasets={spec}: no {_scenes(folder, 'val')}; expected the folder CLEVR_v1.0 as published")
    names = prompts.classnames(KEY)
    readers = {
        split: partial(count, spec, folder, part, len(names))
        for split, part in PARTS.items()
        if _scenes(folder, part).is_file()
    }
    return Labelled(spec, "clevr_count", names, prompts.of(KEY), readers, settings)


def _scenes(folder: Path, part: str) -> Path:
    return folder / "scenes" / f"CLEVR_{part}_scenes.json"


def count(spec: str, folder: Path, part: str, classes: int) -> Split:
    """Images of `folder/images/<part>` in the order of their names, as torchvision's CLEVRClassification.

    Raises:
        UserError: an image without a scene, or a number of objects that is no class.
    """
    path = _scenes(folder, part)
    facts = read_json(spec, path, "a scene for every image, as CLEVR_v1.0 has it")
    scenes = entries(spec, path, facts, "scenes", {"image_filename": str, "objects": list})
    objects = {scene["image_filename"]: len(scene["objects"]) for scene in scenes}  # type: ignore[arg-type]
    images = sorted((folder / "images" / part).glob("*.png"))
    labels = []
    for image in images:
        if image.name not in objects:
            raise UserError(f"datasets={spec}: {path} has no scene for {image.name}")
        label = objects[image.name] - FEWEST
        if label not in range(classes):
            found = f"{objects[image.name]} objects, allowed {FEWEST}..{FEWEST + classes - 1}"
            raise UserError(f"datasets={spec}: {path}: {image.name} has {found}")
        labels.append(label)
    return split_of_files(spec, folder, images, labels)
