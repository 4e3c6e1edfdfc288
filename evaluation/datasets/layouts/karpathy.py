"""Retrieval sets in Karpathy's JSON format: MSCOCO, Flickr30k, Flickr8k, and COCO with ECCV Caption's positives."""

from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Captioned, ManyToMany, draw
from evaluation.datasets.layouts.files import entries, read_json
from evaluation.types import Settings

SPLIT = "test"
COCO = Path("mscoco") / "dataset_coco.json"
# direction -> name of its files in eccv-caption
DIRECTIONS = {"image_to_text": "image_to_caption", "text_to_image": "caption_to_image"}
FOLDERS = ("", "images", "Images", "flickr30k-images", "Flicker8k_Dataset", "Flickr8k_Dataset")  # usual image folders


def open_karpathy(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open the test split of Karpathy's JSON at `path`.

    An image is at FOLDER/`filepath`/`filename`; FOLDER is the JSON's folder or a subfolder listed in FOLDERS.

    Raises UserError: the JSON is missing or corrupt or has no test split, or an image is missing.
    """
    content, chosen, images = _test_split(spec, path, {})
    sentences = [entries(spec, path, entry, "sentences", {"raw": str}) for entry in chosen]
    captions = [[text for one in of_image if (text := str(one["raw"]).strip())] for of_image in sentences]
    name = str(content.get("dataset", path.stem)).removeprefix("dataset_")
    return Captioned(spec, f"{name}/{SPLIT}", SPLIT, images, captions, settings)


def open_eccv(spec: str, folder: Path, settings: Settings) -> ManyToMany:
    """Open COCO's test split with all right answers: ECCV Caption (Chun et al. 2022) and CxC (Parekh et al. 2021).

    `folder` has the files of eccv-caption, COCO lies next to it. As in eccv-caption, five captions of each image count.
    Two captions that ECCV counts as right are not among these, so no model can retrieve them.

    Raises UserError: a file is missing or corrupt, or a query is not in COCO's test split.
    """
    path = folder.parent / COCO
    _, chosen, images = _test_split(spec, path, {"cocoid": int})
    counted = {one for of_image in _ids(spec, folder / "original_image_to_caption.json").values() for one in of_image}
    sentences = [
        [
            one
            for one in entries(spec, path, entry, "sentences", {"raw": str, "sentid": int})
            if one["sentid"] in counted
        ]
        for entry in chosen
    ]
    kept = draw(len(chosen), settings.limit)
    image_at: dict[object, int] = {chosen[i]["cocoid"]: at for at, i in enumerate(kept)}
    caption_at: dict[object, int] = {
        one["sentid"]: at for at, one in enumerate(one for i in kept for one in sentences[i])
    }
    sides = {"image_to_text": (image_at, caption_at), "text_to_image": (caption_at, image_at)}
    positives = {
        source: {
            direction: _positives(spec, folder / f"{source}_{file}.json", *sides[direction], settings.limit is not None)
            for direction, file in DIRECTIONS.items()
        }
        for source in ("eccv", "cxc")
    }
    captions = [[str(one["raw"]).strip() for one in of_image] for of_image in sentences]
    return ManyToMany(spec, "eccv_caption", SPLIT, images, captions, settings, positives)


def _positives(
    spec: str, path: Path, queries: dict[object, int], answers: dict[object, int], limited: bool
) -> dict[int, list[int]]:
    """Return query -> right answers, as indices.

    With a limit, queries and answers that were not drawn are left out. Without one, -1 is an answer that the set lacks.
    """
    found = {}
    for query, right in _ids(spec, path).items():
        if query not in queries and not limited:
            raise UserError(f"datasets={spec}: {path}: the test split of {COCO} has no {query}")
        at = [answers.get(one, -1) for one in right if one in answers or not limited]
        if query in queries and at:
            found[queries[query]] = at
    return found


def _ids(spec: str, path: Path) -> dict[int, list[int]]:
    found = {}
    for query, right in read_json(spec, path, "right answers, a file of eccv-caption").items():
        if not (query.isdecimal() and isinstance(right, list) and right and all(type(one) is int for one in right)):
            raise UserError(f"datasets={spec}: {path}: entry {query} is not a list of ids")
        found[int(query)] = right
    return found


def _test_split(
    spec: str, path: Path, fields: dict[str, type]
) -> tuple[dict[str, object], list[dict[str, object]], FileImages]:
    """Return the content of Karpathy's JSON, its test entries, which must have `fields`, and their images."""
    content = read_json(spec, path, "Karpathy's splits")
    listed = entries(spec, path, content, "images", {"split": str, "filename": str, "sentences": list} | fields)
    chosen = [entry for entry in listed if entry["split"] == SPLIT]
    if not chosen:
        known = ", ".join(sorted({str(entry["split"]) for entry in listed})) or "none"
        raise UserError(f"datasets={spec}: {path} has no {SPLIT} split; it has {known}")
    names = [Path(str(entry.get("filepath", ""))) / str(entry["filename"]) for entry in chosen]
    folder = next((path.parent / name for name in FOLDERS if (path.parent / name / names[0]).is_file()), None)
    if folder is None:
        raise UserError(
            f"datasets={spec}: no image {names[0]} in {path.parent} or its folders {', '.join(FOLDERS[1:])}"
        )
    return content, chosen, FileImages(spec, folder, [folder / name for name in names])
