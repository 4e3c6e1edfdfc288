"""COCO captions. Layout: annotations/captions_SPLIT.json and an image folder SPLIT next to annotations/."""

from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Captioned
from evaluation.datasets.layouts.files import entries, read_json
from evaluation.types import Settings


def open_coco(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open COCO's caption JSON at `path`; its images are in ../SPLIT.

    Raises UserError: the JSON is missing or corrupt, a caption has no image, or an image file is missing.
    """
    content = read_json(spec, path, "COCO's caption annotations")
    images = entries(spec, path, content, "images", {"id": int, "file_name": str})
    captions: dict[object, list[str]] = {image["id"]: [] for image in images}
    for annotation in entries(spec, path, content, "annotations", {"image_id": int, "caption": str}):
        image_id = annotation["image_id"]
        if image_id not in captions:
            raise UserError(f'datasets={spec}: {path}: a caption belongs to image {image_id}, which "images" lacks')
        if text := str(annotation["caption"]).strip():
            captions[image_id].append(text)
    split = path.stem.removeprefix("captions_")
    folder = path.parent.parent / split
    if not folder.is_dir():
        raise UserError(f"datasets={spec}: no image folder {folder}; the images of {path.name} belong there")
    images_of_split = FileImages(spec, folder, [folder / str(image["file_name"]) for image in images])
    return Captioned(spec, f"coco/{split}", split, images_of_split, list(captions.values()), settings)
