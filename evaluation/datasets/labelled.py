"""Layouts of images with classes: folders, CLEVR, and what torchvision reads."""

import shutil
import tarfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clipx.data.sources.files import entries, read_json, read_text
from clipx.errors import UserError, one_line
from evaluation.datasets import prompts
from evaluation.datasets.files import ArrayImages, File, FileImages, class_folders, scan
from evaluation.datasets.kinds import Labelled, Split
from evaluation.types import Settings

SEED = 0  # of the splits that we draw for sets without official ones
# Sets without an official split, which we draw with a fixed seed: number of images in each split (paper 5, table 4),
# and in the whole set
SHARES = {
    "eurosat": ({"train": 10_000, "test": 5_000}, 27_000),
    "sun397": ({"train": 76_129, "val": 10_867, "test": 21_758}, 108_754),
}


def split_of_files(root: Path, paths: Sequence[Path], labels: Sequence[int]) -> Split:
    """Return a split of image files with these labels. Raises UserError: a file is missing."""
    return Split(FileImages(root, paths), torch.tensor(labels, dtype=torch.int64))


def arrays(name: str, root: Path, part: str, classes: int) -> Split:
    """Read CIFAR-10, CIFAR-100 or STL-10 into memory."""
    reader = _read(root, name, part)
    if name == "stl10":
        pixels, labels = reader.data.transpose(0, 2, 3, 1), reader.labels
    else:
        pixels, labels = reader.data, reader.targets
    return Split(ArrayImages(np.ascontiguousarray(pixels)), torch.tensor(labels, dtype=torch.int64))


def listed(name: str, root: Path, part: str, classes: int) -> Split:
    """List the files of one of a set's official splits, or of those that we draw, see SHARES."""
    reader = _read(root, name, part)
    found = [(str(path), int(label)) for path, label in (reader[i] for i in range(len(reader)))]
    if name in SHARES:
        found.sort()  # torchvision lists SUN397 in the file system's order
        found = [found[i] for i in share(len(found), part, *SHARES[name])]
    return split_of_files(root, [Path(path) for path, _ in found], [label for _, label in found])


def share(n: int, part: str, sizes: dict[str, int], total: int) -> list[int]:
    """Return the indices of a split among n sorted images.

    Splits are consecutive parts of a random permutation with a fixed seed; their sizes are n / total times `sizes`.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SEED)).numpy()
    parts = np.split(order, np.cumsum([round(n * size / total) for size in sizes.values()]))
    return sorted(parts[[*sizes].index(part)].tolist())


def pets(name: str, root: Path, part: str, classes: int) -> Split:
    """List Oxford-IIIT Pet ourselves: torchvision's reader takes no loader and would decode every image."""
    folder = root / "oxford-iiit-pet"
    path = folder / "annotations" / ("trainval.txt" if part == "train" else "test.txt")
    rows = [line.split() for line in read_text(path, "image, class and breed per line").splitlines()]
    if not all(len(row) == 4 and row[1].isdecimal() for row in rows):
        raise UserError(f"{path} is corrupt; expected lines like 'Abyssinian_100 1 1 1'")
    paths = [folder / "images" / f"{row[0]}.jpg" for row in rows]
    return split_of_files(root, paths, [int(row[1]) - 1 for row in rows])


def classnames(root: Path, name: str) -> list[str]:
    """Return the class names in the data set's files, with spaces for underscores."""
    if name == "stl10":
        found = read_text(root / "stl10_binary" / "class_names.txt", "the class names").splitlines()
    elif name == "sun397":  # torchvision's reader would list all images; lines like /a/airport_terminal, /b/bakery/shop
        lines = read_text(root / "SUN397" / "ClassName.txt", "the class names").splitlines()
        found = [line.strip()[3:].replace("/", " ") for line in lines]
    else:
        found = _read(root, name, "test").classes
    return [line.replace("_", " ") for line in found]


def _read(root: Path, name: str, part: str) -> Any:
    from evaluation.datasets.torchvision_sets import READERS  # here, because torchvision imports slowly

    try:
        return READERS[name](str(root), part, False)
    except Exception as error:  # RuntimeError, OSError, KeyError, UnpicklingError and others
        problem = " ".join(str(error).split()).partition(" You can use")[0] or type(error).__name__
        raise UserError(f"{root} does not hold {name} as published ({problem})") from error


IMAGENETV2 = "imagenetv2-matched-frequency-format-val"  # folder below root
TRAIN_PER_CLASS = 30  # the usual split of Caltech-101


def imagenet(name: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/imagenet/train`, or `val` for testing: one folder per WordNet id; labels follow the order of the ids.

    The validation images may also lie in one folder, as published, with their ids in a file, see `_validation_ids`.

    Raises UserError: the number of folders differs from the number of classes, or validation images are missing.
    """
    part = part.replace("test", "val")
    folder = root / "imagenet" / part
    if part == "val" and not class_folders(folder):
        ids = _validation_ids(root / "imagenet")
        split = of_folders(root, {0: folder})
        if len(split.label) != len(ids) or len(set(ids)) != classes:
            problem = f"has {len(split.label)} images, the list of ids {len(ids)} of {len(set(ids))} classes"
            raise UserError(f"{folder} {problem}")
        order = {one: label for label, one in enumerate(sorted(set(ids)))}
        return Split(split.images, torch.tensor([order[one] for one in ids]))
    return of_folders(root, dict(enumerate(_class_folders(folder, classes))), equal=part == "val")


SYNSETS, DEVKIT = "imagenet_2012_validation_synset_labels.txt", "ILSVRC2012_devkit_t12/data"


def _validation_ids(folder: Path) -> list[str]:
    """Return the WordNet id of each validation image in the order of their names.

    They are in SYNSETS, an id a line, or in the devkit: class numbers in ILSVRC2012_validation_ground_truth.txt, and
    the id of each number in meta.mat.

    Raises UserError: neither is there, or a file is corrupt.
    """
    if (folder / SYNSETS).is_file():
        return read_text(folder / SYNSETS, "WordNet ids").split()
    truth = folder / DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    if not truth.is_file():
        known = f"{folder / SYNSETS}, or the devkit in {folder / DEVKIT}"
        raise UserError(f"{folder / 'val'} has no class folders, and its classes are not known: add {known}")
    from scipy.io import loadmat

    try:
        synsets = loadmat(folder / DEVKIT / "meta.mat", squeeze_me=True)["synsets"]
        id_of = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in synsets}
        return [id_of[int(number)] for number in truth.read_text().split()]
    except Exception as error:  # scipy's reader raises many types
        raise UserError(f"{folder / DEVKIT} does not hold the devkit as published ({one_line(error)})") from error


ARCHIVES = {  # folder of ILSVRC 2012 -> archive of image-net.org
    "val": "ILSVRC2012_img_val.tar",
    "ILSVRC2012_devkit_t12": "ILSVRC2012_devkit_t12.tar.gz",
    "train": "ILSVRC2012_img_train.tar",
}


def prepare_imagenet(root: Path) -> dict[str, int]:
    """Unpack the archives of ILSVRC 2012 in `root/imagenet` that are not yet; return the number of images per split.

    The archive of training images, which only the linear probe needs, may be missing.

    Raises UserError: an archive is missing or corrupt, or the set is not complete.
    """
    folder = root / "imagenet"
    for part, name in ARCHIVES.items():
        archive, unpacked = folder / name, folder / f".{part}"
        if (folder / part).exists() or (part == "train" and not archive.is_file()):
            continue
        if not archive.is_file():
            raise UserError(f"no {folder / part}, and no {archive} to unpack; it comes from image-net.org")
        shutil.rmtree(unpacked, ignore_errors=True)
        _unpack(archive, unpacked)
        inner = unpacked / part  # the devkit is in a folder of its name
        (inner if inner.is_dir() else unpacked).rename(folder / part)  # only when it is complete
        shutil.rmtree(unpacked, ignore_errors=True)
    splits = [part for part in ("val", "train") if (folder / part).exists()]
    return {part: len(imagenet("imagenet", root, part, 1000).label) for part in splits}


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar file, and each archive in it (n01440764.tar) into a folder (n01440764)."""
    try:
        with tarfile.open(archive) as members:
            for member in members:
                if not member.name.endswith(".tar"):
                    members.extract(member, folder, filter="data")
                    continue
                with tarfile.open(fileobj=members.extractfile(member)) as images:
                    images.extractall(folder / Path(member.name).stem, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{archive} cannot be unpacked: {one_line(error)}") from error


def imagenetv2(name: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/IMAGENETV2`: one folder per class, named by the label.

    Raises UserError: a folder's name is not a class index, or a class has no folder, or fewer images than others.
    """
    folder = root / IMAGENETV2
    folders = class_folders(folder)
    for path in folders:
        if not (path.name.isdecimal() and len(path.name) < 10 and int(path.name) < classes):
            raise UserError(f"{path}: the name must be a class index in 0..{classes - 1}")
    _class_folders(folder, classes)
    return of_folders(folder, {int(path.name): path for path in folders}, equal=True)


def open_variant(classes: int, spec: str, folder: Path, settings: Settings) -> Labelled:
    """Open ImageNet-A, -O, -R or Sketch: one folder per WordNet id.

    `classes` is the number of ImageNet's classes in the set. Only these can be predicted, as in the sets' papers
    (Hendrycks et al. 2021) and in CLIP-benchmark.

    Raises UserError: the number of folders is not `classes`, or a folder's name is not one of ImageNet's ids.
    """
    from timm.data.imagenet_info import ImageNetInfo

    ids: Any = ImageNetInfo("imagenet-1k")
    label_of = {name: label for label, name in enumerate(ids.label_names())}
    folders = _class_folders(folder, classes)
    for path in folders:
        if path.name not in label_of:
            raise UserError(f"{path}: the name must be the WordNet id of one of ImageNet's classes")
    names = prompts.classnames("imagenet1k")
    chosen = [names[label_of[path.name]] for path in folders]
    # read on first use
    readers = {"test": lambda: of_folders(folder, dict(enumerate(folders)))}
    return Labelled(spec, folder.name, chosen, prompts.templates_of("imagenet1k"), readers, settings)


def caltech101(name: str, root: Path, part: str, classes: int) -> Split:
    """Open `root/caltech101/101_ObjectCategories`: 102 classes with the background (as in VTAB and paper 5).

    There is no official split: 30 images per class, drawn with a fixed seed, are for training, all others for testing.

    Raises UserError: the number of folders differs from the number of classes, or a class has at most 30 images.
    """
    chosen = []
    generator = torch.Generator().manual_seed(SEED)
    folders = _class_folders(root / "caltech101" / "101_ObjectCategories", classes)
    for folder, found in zip(folders, scan(folders), strict=True):
        if len(found) <= TRAIN_PER_CLASS:
            raise UserError(f"{folder} has {len(found)} images, but training alone takes {TRAIN_PER_CLASS}")
        order = torch.randperm(len(found), generator=generator).tolist()
        kept = order[:TRAIN_PER_CLASS] if part == "train" else order[TRAIN_PER_CLASS:]
        chosen.append([found[i] for i in sorted(kept)])
    return _split(root, dict(enumerate(folders)), chosen)


def _class_folders(folder: Path, classes: int) -> list[Path]:
    found = class_folders(folder)
    if len(found) != classes:
        raise UserError(f"{folder} holds {len(found)} class folders, but there are {classes} class names")
    return found


def of_folders(root: Path, folders: dict[int, Path], equal: bool = False) -> Split:
    """Return the images in the folder of each label.

    Raises UserError: a folder has no images; with `equal`, folders have different numbers of images.
    """
    found = scan([*folders.values()])
    counts = list(zip(map(len, found), folders.values(), strict=True))
    (fewest, poor), (most, rich) = min(counts), max(counts)
    if equal and fewest < most:
        raise UserError(f"{poor} is not complete: it has {fewest} images, {rich} {most}")
    return _split(root, folders, found)


def _split(root: Path, folders: dict[int, Path], found: list[list[File]]) -> Split:
    """Return a split of the images `found` in the folder of each label."""
    below = [folder.relative_to(root).as_posix() for folder in folders.values()]
    parts = zip(below, found, strict=True)
    files = [(f"{folder}/{name}", size, changed) for folder, of in parts for name, size, changed in of]
    paths = [f"{root}/{name}" for name, *_ in files]  # texts, because a million Paths take a gigabyte
    label = torch.tensor([*folders]).repeat_interleave(torch.tensor([*map(len, found)]))
    return Split(FileImages(root, paths, files=files), label)


FEWEST = 3  # objects in class 0
CLEVR_KEY = "clevr_count_all"  # in clip-benchmark's tables of templates and class names
CLEVR_PARTS = {"train": "train", "test": "val"}  # split -> PART; CLEVR's own test images have no scenes


def open_clevr(spec: str, folder: Path, settings: Settings) -> Labelled:
    """Open CLEVR for counting its objects, 3 to 10, from CLEVR_v1.0: images/PART, scenes/CLEVR_PART_scenes.json.

    Raises UserError: the validation scenes are missing.
    """
    if not _clevr_scenes(folder, "val").is_file():
        raise UserError(f"no {_clevr_scenes(folder, 'val')}; expected the folder CLEVR_v1.0 as published")
    names = prompts.classnames(CLEVR_KEY)
    readers = {
        split: partial(_clevr_split, folder, part, len(names))
        for split, part in CLEVR_PARTS.items()
        if _clevr_scenes(folder, part).is_file()
    }
    return Labelled(spec, "clevr_count", names, prompts.templates_of(CLEVR_KEY), readers, settings)


def _clevr_scenes(folder: Path, part: str) -> Path:
    return folder / "scenes" / f"CLEVR_{part}_scenes.json"


def _clevr_split(folder: Path, part: str, classes: int) -> Split:
    """Return the images of `folder/images/<part>`, sorted by name as in torchvision's CLEVRClassification."""
    path = _clevr_scenes(folder, part)
    content = "a scene for every image, as in CLEVR_v1.0"
    scenes = entries(path, read_json(path, content), "scenes", {"image_filename": str, "objects": list}, content)
    count_of = {scene["image_filename"]: len(scene["objects"]) for scene in scenes}
    images = sorted((folder / "images" / part).glob("*.png"))
    for image in images:
        if image.name not in count_of:
            raise UserError(f"{path} has no scene for {image.name}")
        if (count := count_of[image.name]) not in range(FEWEST, FEWEST + classes):
            allowed = f"{FEWEST}..{FEWEST + classes - 1}"
            raise UserError(f"{path}: {image.name} has {count} objects, allowed {allowed}")
    if missing := count_of.keys() - {image.name for image in images}:
        raise UserError(f"{folder / 'images' / part / min(missing)} is missing")
    return split_of_files(folder, images, [count_of[image.name] - FEWEST for image in images])
