"""CLEVR counting, 3 to 10 objects. Layout of CLEVR_v1.0: images/<split>, scenes/CLEVR_<split>_scenes.json."""

from functools import partial
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.kinds import Labelled, Split
from evaluation.datasets.layouts.files import entries, read_json, split_of_files
from evaluation.types import Settings

FEWEST = 3  # objects in class 0
KEY = "clevr_count_all"  # in the prompt tables
PARTS = {"train": "train", "test": "val"}  # split -> CLEVR's split; CLEVR's test split has no scenes


def open_clevr(spec: str, folder: Path, settings: Settings) -> Labelled:
    """Open CLEVR for counting; `folder` is CLEVR_v1.0.

    Raises UserError: the validation scenes are missing.
    """
    if not _scenes(folder, "val").is_file():
        raise UserError(f"datasets={spec}: no {_scenes(folder, 'val')}; expected the folder CLEVR_v1.0 as published")
    names = prompts.classnames(KEY)
    readers = {
        split: partial(count, spec, folder, part, len(names))
        for split, part in PARTS.items()
        if _scenes(folder, part).is_file()
    }
    return Labelled(spec, "clevr_count", names, prompts.templates_of(KEY), readers, settings)


def _scenes(folder: Path, part: str) -> Path:
    return folder / "scenes" / f"CLEVR_{part}_scenes.json"


def count(spec: str, folder: Path, part: str, classes: int) -> Split:
    """Return the images of `folder/images/<part>`, sorted by name as in torchvision's CLEVRClassification.

    Raises UserError: an image has no scene, or its number of objects has no class.
    """
    path = _scenes(folder, part)
    content = read_json(spec, path, "a scene for every image, as CLEVR_v1.0 has it")
    scenes = entries(spec, path, content, "scenes", {"image_filename": str, "objects": list})
    objects = {scene["image_filename"]: len(scene["objects"]) for scene in scenes}  # type: ignore[arg-type]
    images = sorted((folder / "images" / part).glob("*.png"))
    labels = []
    for image in images:
        if image.name not in objects:
            raise UserError(f"datasets={spec}: {path} has no scene for {image.name}")
        label = objects[image.name] - FEWEST
        if label not in range(classes):
            allowed = f"{FEWEST}..{FEWEST + classes - 1}"
            raise UserError(
                f"datasets={spec}: {path}: {image.name} has {objects[image.name]} objects, allowed {allowed}"
            )
        labels.append(label)
    return split_of_files(spec, folder, images, labels)
