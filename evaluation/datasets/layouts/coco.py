"""COCO caption annotations: annotations/captions_<split>.json beside the image folder <split>."""

from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Captioned
from evaluation.datasets.layouts.files import entries, fingerprint, read_json
from evaluation.types import Settings


def open_coco(spec: str, path: Path, settings: Settings) -> Captioned:
    """COCO's caption JSON, PLACE; images in ../SPLIT of it.

    Raises:
        UserError: the JSON is missing or damaged, a caption has no image, or an image file is missing.
    """
    facts = read_json(spec, path, "COCO's caption annotations")
    images = entries(spec, path, facts, "images", {"id": int, "file_name": str})
    captions: dict[object, list[str]] = {image["id"]: [] for image in images}
    for note in entries(spec, path, facts, "annotations", {"image_id": int, "caption": str}):
        if note["image_id"] not in captions:
            raise UserError(f'datasets={spec}: {path}: a caption of image {note["image_id"]}, which "images" lacks')
        if text := str(note["caption"]).strip():
            captions[note["image_id"]].append(text)
    split = path.stem.removeprefix("captions_")
    folder = path.parent.parent / split
    if not folder.is_dir():
        raise UserError(f"datasets={spec}: no image folder {folder} (beside the folder of the JSON, named as it is)")
    paths = [folder / str(image["file_name"]) for image in images]
    found = fingerprint(spec, folder, paths)
    name = f"coco/{split}"
    return Captioned(spec, name, split, FileImages(spec, paths), list(captions.values()), found, settings)
