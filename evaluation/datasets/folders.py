"""folder:DIR, images in folders, without an index: with classes (torchvision's ImageFolder), or with captions.

Classes: DIR/SPLIT/CLASS/IMAGE for the splits train, val and test, or DIR/CLASS/IMAGE for test alone. A class has the
name of its folder, with spaces for _, or that in DIR/classnames.txt, which has a line for each folder in their order:
by number if all names are numbers.

Captions: DIR/SPLIT or DIR holds images, each with a text file of its captions beside it: 7.jpg and 7.txt, a caption a
line. Of several splits the test split is scored.
"""

from functools import partial
from pathlib import Path

from clipx.data.sources import files
from clipx.data.sources.files import read_text
from clipx.errors import UserError
from evaluation.datasets import prompts
from evaluation.datasets.captioned import all_captions, source_config
from evaluation.datasets.files import SPLIT_NAMES, FileImages, short_name
from evaluation.datasets.kinds import Captioned, Labelled, Split
from evaluation.datasets.labelled import of_folders
from evaluation.types import Settings

TEST = "test"


def open_folder(spec: str, folder: Path, settings: Settings) -> Labelled | Captioned:
    """Open a folder of images with classes or captions.

    Raises UserError: no folder, no images, or another number of class names than folders.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    splits = {name: folder / name for name in SPLIT_NAMES if (folder / name).is_dir()} or {TEST: folder}
    scored = TEST if TEST in splits else next(reversed(splits))
    if any(map(files.text_beside, files.images_below(splits[scored]))):
        pairs = files.folder(splits[scored], source_config(settings, "folder"))
        if pairs.problems:
            raise UserError(f"{splits[scored]}: {pairs.problems[0]}")
        images = FileImages(splits[scored], [splits[scored] / pairs.where(i) for i in range(len(pairs))])
        return Captioned(spec, short_name(folder), scored, images, all_captions(pairs), settings)
    classes = _class_folders(splits[scored])
    names = [name.replace("_", " ") for name in classes]
    own = folder / "classnames.txt"
    if own.is_file():
        names = [line.strip() for line in read_text(own, "a class name a line").splitlines() if line.strip()]
    if len(names) != len(classes) or not classes:
        raise UserError(f"{splits[scored]} has {len(classes)} folders of classes, {own.name} {len(names)} names")
    plain = [*map(_plain, classes)]
    for name, of_folder in zip(names, classes, strict=True):
        if _plain(name) != _plain(of_folder) and _plain(name) in plain:
            order = ", ".join(classes)
            raise UserError(f"{own}: {name} stands for the folder {of_folder}; the folders in order: {order}")
    readers = {name: partial(_split, path, classes) for name, path in splits.items()}
    return Labelled(spec, short_name(folder), names, prompts.templates_of("imagenet1k"), readers, settings)


def _class_folders(folder: Path) -> list[str]:
    """Return the names of the folders of classes in their order: by number if all names are numbers."""
    found = [path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    found = [name for name in found if name != files.MACOS]
    return sorted(found, key=lambda name: (int(name), name)) if all(map(str.isdecimal, found)) else sorted(found)


def _plain(name: str) -> str:
    return name.casefold().replace("_", " ")


def _split(folder: Path, classes: list[str]) -> Split:
    if others := {*_class_folders(folder)} - {*classes}:
        raise UserError(f"{folder / min(others)} is no class of the scored split")
    if unread := [path for name in classes for path in files.images_below(folder / name, files.UNREAD)]:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        raise UserError(f"{unread[0]}{more}: {unread[0].suffix} is not read; convert to JPEG, PNG or WebP")
    return of_folders(folder, {label: folder / name for label, name in enumerate(classes)})
