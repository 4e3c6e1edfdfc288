"""folder:DIR, images in folders, without an index: with classes (torchvision's ImageFolder), or with captions.

Classes: DIR/SPLIT/CLASS/IMAGE for the splits train, val, dev and test, or DIR/CLASS/IMAGE for test alone. A class has
the name of its folder, with spaces for _, or that in DIR/classnames.txt, which has a line for each folder in their
order: by number if all names are numbers.

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
from evaluation.datasets.files import SPLIT_NAMES, FileImages, class_folders, short_name
from evaluation.datasets.kinds import Captioned, Labelled, Split
from evaluation.datasets.labelled import split_of_files
from evaluation.types import Settings, first_names

TEST = "test"


def open_folder(spec: str, folder: Path, settings: Settings) -> Labelled | Captioned:
    """Open a folder of images with classes or captions.

    Raises UserError: no folder, no images, or another number of class names than folders.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    splits = {name: folder / name for name in SPLIT_NAMES if (folder / name).is_dir()} or {TEST: folder}
    scored = TEST if TEST in splits else next(reversed(splits))
    if any(map(files.text_beside, files.files_below(splits[scored]))):
        pairs = files.folder(splits[scored], source_config(settings, "folder"))
        if pairs.problems:
            complete = "an evaluation set must be complete: add what is missing, or move these files away"
            raise UserError(f"{splits[scored]}: {first_names(pairs.problems, 1)}; {complete}")
        images = FileImages(splits[scored], [splits[scored] / pairs.where(i) for i in range(len(pairs))])
        return Captioned(spec, short_name(folder), scored, images, all_captions(pairs), settings)
    classes = [path.name for path in class_folders(splits[scored])]
    if others := [name for name in classes if name.lower() in files.NO_CLASSES]:
        raise UserError(f"{splits[scored]}: the folder {others[0]} is no class; splits: {', '.join(SPLIT_NAMES)}")
    names = [name.replace("_", " ") for name in classes]
    own = folder / "classnames.txt"
    if own.is_file():
        names = [line.strip() for line in read_text(own, "a class name a line").splitlines() if line.strip()]
    if not classes:
        raise UserError(f"{splits[scored]} has no folders of classes, and no captions beside images (7.txt for 7.jpg)")
    if len(names) != len(classes):
        raise UserError(f"{splits[scored]} has {len(classes)} folders of classes, {own.name} {len(names)} names")
    plain = [*map(_plain, classes)]
    for name, of_folder in zip(names, classes, strict=True):
        if _plain(name) != _plain(of_folder) and _plain(name) in plain:
            order = ", ".join(classes)
            raise UserError(f"{own}: {name} stands for the folder {of_folder}; the folders in order: {order}")
    readers = {name: partial(_split, path, classes) for name, path in splits.items()}
    return Labelled(spec, short_name(folder), names, prompts.templates_of("imagenet1k"), readers, settings)


def _plain(name: str) -> str:
    return name.casefold().replace("_", " ")


def _split(folder: Path, classes: list[str]) -> Split:
    if unread := [path for path in files.files_below(folder, files.UNREAD) if path.parent != folder]:
        names = first_names([*map(str, unread)], 1)
        raise UserError(f"{names}: {unread[0].suffix} is not read; convert to JPEG, PNG or WebP")
    if others := [path for path in class_folders(folder) if path.name not in classes]:
        raise UserError(f"{min(others)} is no class of the scored split")
    found = [files.files_below(folder / name) for name in classes]
    if [] in found:
        raise UserError(f"{folder / classes[found.index([])]} holds no images")
    labels = [label for label, paths in enumerate(found) for _ in paths]
    return split_of_files(folder, [path for paths in found for path in paths], labels)
