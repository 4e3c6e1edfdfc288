"""Counting of CLEVR's objects, 3 to 10.

Layout of CLEVR_v1.0: images/PART, scenes/CLEVR_PART_scenes.json, with PART train or val.
"""

from functools import partial
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.kinds import Labelled, Split
from evaluation.datasets.layouts.files import entries, read_json, split_of_files
from evaluation.types import Settings

FEWEST = 3  # objects in class 0
KEY = "clevr_count_all"  # in clip-benchmark's tables of templates and class names
PARTS = {"train": "train", "test": "val"}  # split -> PART; CLEVR's own test images have no scenes


def open_clevr(spec: str, folder: Path, settings: Settings) -> Labelled:
    """Open CLEVR for counting, from its folder CLEVR_v1.0.

    Raises UserError: the validation scenes are missing.
    """
    if not _scenes(folder, "val").is_file():
        raise UserError(f"datasets={spec}: no {_scenes(folder, 'val')}; expected the folder CLEVR_v1.0 as published")
    names = prompts.classnames(KEY)
    readers = {
        split: partial(_split, spec, folder, part, len(names))
        for split, part in PARTS.items()
        if _scenes(folder, part).is_file()
    }
    return Labelled(spec, "clevr_count", names, prompts.templates_of(KEY), readers, settings)


def _scenes(folder: Path, part: str) -> Path:
    return folder / "scenes" / f"CLEVR_{part}_scenes.json"


def _split(spec: str, folder: Path, part: str, classes: int) -> Split:
    """Return the images of `folder/images/<part>`, sorted by name as in torchvision's CLEVRClassification."""
    path = _scenes(folder, part)
    content = read_json(spec, path, "a scene for every image, as in CLEVR_v1.0")
    scenes = entries(spec, path, content, "scenes", {"image_filename": str, "objects": list})
    count_of = {scene["image_filename"]: len(scene["objects"]) for scene in scenes}  # type: ignore[arg-type]
    images = sorted((folder / "images" / part).glob("*.png"))
    labels = []
    for image in images:
        if image.name not in count_of:
            raise UserError(f"datasets={spec}: {path} has no scene for {image.name}")
        count = count_of[image.name]
        label = count - FEWEST
        if label not in range(classes):
            allowed = f"{FEWEST}..{FEWEST + classes - 1}"
            raise UserError(f"datasets={spec}: {path}: {image.name} has {count} objects, allowed {allowed}")
        labels.append(label)
    return split_of_files(spec, folder, images, labels)
