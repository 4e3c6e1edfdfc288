"""Retrieval sets in Karpathy's JSON format: MSCOCO, Flickr30k, Flickr8k, with all captions of each image."""

from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Captioned
from evaluation.datasets.layouts.files import entries, read_json
from evaluation.types import Settings

SPLIT = "test"
FOLDERS = ("", "images", "Images", "flickr30k-images", "Flicker8k_Dataset", "Flickr8k_Dataset")  # usual image folders


def open_karpathy(spec: str, path: Path, settings: Settings) -> Captioned:
    """Open the test split of Karpathy's JSON at `path`.

    An image is at FOLDER/`filepath`/`filename`; FOLDER is the JSON's folder or a subfolder listed in FOLDERS.

    Raises UserError: the JSON is missing or corrupt or has no test split, or an image is missing.
    """
    content = read_json(spec, path, "Karpathy's splits")
    listed = entries(spec, path, content, "images", {"split": str, "filename": str, "sentences": list})
    chosen = [entry for entry in listed if entry["split"] == SPLIT]
    if not chosen:
        known = ", ".join(sorted({str(entry["split"]) for entry in listed})) or "none"
        raise UserError(f"datasets={spec}: {path} has no {SPLIT} split; it has {known}")
    names = [Path(str(entry.get("filepath", ""))) / str(entry["filename"]) for entry in chosen]
    folder = _folder(spec, path.parent, names[0])
    captions = [_sentences(spec, path, entry) for entry in chosen]
    images = FileImages(spec, folder, [folder / name for name in names])
    name = str(content.get("dataset", path.stem)).removeprefix("dataset_")
    return Captioned(spec, f"{name}/{SPLIT}", SPLIT, images, captions, settings)


def _sentences(spec: str, path: Path, entry: dict[str, object]) -> list[str]:
    found = entries(spec, path, entry, "sentences", {"raw": str})
    return [text for sentence in found if (text := str(sentence["raw"]).strip())]


def _folder(spec: str, base: Path, first: Path) -> Path:
    for name in FOLDERS:
        if (base / name / first).is_file():
            return base / name
    raise UserError(f"datasets={spec}: no image {first} in {base} or its {', '.join(FOLDERS[1:])}")
