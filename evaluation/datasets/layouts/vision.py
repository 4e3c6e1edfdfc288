"""Sets that torchvision reads in their original layouts. Only DOWNLOADS uses the network.

torchvision's readers get `Path` as image loader, so that they list paths and labels without decoding. `part` is the
set's own name of a split.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.datasets as tv

from clipx.errors import UserError
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import ArrayImages
from evaluation.datasets.kinds import Split
from evaluation.datasets.layouts.files import SEED, split_of_files

# Sets without an official split, which we draw with a fixed seed: number of images in each split (paper 5, table 4),
# and in the whole set
SHARES = {
    "eurosat": ({"train": 10_000, "test": 5_000}, 27_000),
    "sun397": ({"train": 76_129, "val": 10_867, "test": 21_758}, 108_754),
}


def arrays(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """Read CIFAR-10, CIFAR-100 or STL-10 into memory."""
    reader = _read(spec, root, name, part)
    if name == "stl10":
        pixels, labels = reader.data.transpose(0, 2, 3, 1), reader.labels
    else:
        pixels, labels = reader.data, reader.targets
    pixels = np.ascontiguousarray(pixels)
    label = torch.as_tensor(np.asarray(labels), dtype=torch.int64)
    return Split(ArrayImages(pixels), label)


def files(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """List the files of one of a set's official splits."""
    reader = _read(spec, root, name, part)
    listed = [reader[i] for i in range(len(reader))]
    return split_of_files(spec, root, [Path(path) for path, _ in listed], [int(label) for _, label in listed])


def drawn(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """List the files of one of the splits that we draw, see SHARES."""
    reader = _read(spec, root, name, part)
    # sorted, because torchvision lists SUN397 in the file system's order
    listed = sorted((str(path), int(label)) for path, label in (reader[i] for i in range(len(reader))))
    chosen = share(len(listed), part, *SHARES[name])
    return split_of_files(spec, root, [Path(listed[i][0]) for i in chosen], [listed[i][1] for i in chosen])


def share(n: int, part: str, sizes: dict[str, int], total: int) -> list[int]:
    """Return the indices of a split among n sorted images.

    Splits are consecutive parts of a random permutation with a fixed seed; their sizes are n / total times `sizes`.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SEED)).tolist()
    start = 0
    for name, size in sizes.items():
        end = start + round(n * size / total)
        if name == part:
            return sorted(order[start:end])
        start = end
    raise AssertionError(part)


def pets(name: str, spec: str, root: Path, part: str, classes: int) -> Split:
    """List Oxford-IIIT Pet ourselves: torchvision's reader takes no loader and would decode every image."""
    folder = root / "oxford-iiit-pet"
    path = folder / "annotations" / ("trainval.txt" if part == "train" else "test.txt")
    rows = [line.split() for line in require_file(spec, path, "image, class and breed per line").splitlines()]
    if not all(len(row) == 4 and row[1].isdecimal() for row in rows):
        raise UserError(f"datasets={spec}: {path} is corrupt; expected lines like 'Abyssinian_100 1 1 1'")
    paths = [folder / "images" / f"{row[0]}.jpg" for row in rows]
    return split_of_files(spec, root, paths, [int(row[1]) - 1 for row in rows])


def classnames(spec: str, root: Path, name: str) -> list[str]:
    """Return the class names in the data set's files, with spaces for underscores."""
    if name == "stl10":
        found = require_file(spec, root / "stl10_binary" / "class_names.txt", "the class names").splitlines()
    elif name == "sun397":  # torchvision's reader would list all images; lines like /a/airport_terminal, /b/bakery/shop
        lines = require_file(spec, root / "SUN397" / "ClassName.txt", "the class names").splitlines()
        found = [line.strip()[3:].replace("/", " ") for line in lines]
    else:
        found = _read(spec, root, name, "test").classes
    return [line.replace("_", " ") for line in found]


class LabelledSTL10(tv.STL10):  # type: ignore[misc]
    """STL-10 without its 2.6 GB of unlabelled images, whose checksum torchvision's reader would verify."""

    @property
    def train_list(self) -> list[list[str]]:
        """Return the files of the labelled images."""
        return list(tv.STL10.train_list[:2])


READERS: dict[str, Callable[[str, str], Any]] = {
    "cifar10": lambda root, part: tv.CIFAR10(root, train=part == "train"),
    "cifar100": lambda root, part: tv.CIFAR100(root, train=part == "train"),
    "stl10": lambda root, part: LabelledSTL10(root, part),
    "food101": lambda root, part: tv.Food101(root, part, loader=Path),
    "dtd": lambda root, part: tv.DTD(root, part, loader=Path),
    "flowers102": lambda root, part: tv.Flowers102(root, part, loader=Path),
    "cars": lambda root, part: tv.StanfordCars(root, part, loader=Path),
    "aircraft": lambda root, part: tv.FGVCAircraft(root, part, loader=Path),
    "eurosat": lambda root, part: tv.EuroSAT(root, loader=Path),
    "sun397": lambda root, part: tv.SUN397(root, loader=Path),
}

DOWNLOADS: dict[str, Callable[[str], Any]] = {
    "cifar10": lambda root: tv.CIFAR10(root, download=True),
    "cifar100": lambda root: tv.CIFAR100(root, download=True),
    "stl10": lambda root: tv.STL10(root, download=True),
    "food101": lambda root: tv.Food101(root, download=True),
    "dtd": lambda root: tv.DTD(root, download=True),
    "flowers102": lambda root: tv.Flowers102(root, download=True),
    "pets": lambda root: tv.OxfordIIITPet(root, download=True),
    "caltech101": lambda root: tv.Caltech101(root, download=True),
    "aircraft": lambda root: tv.FGVCAircraft(root, download=True),
    "eurosat": lambda root: tv.EuroSAT(root, download=True),
    "sun397": lambda root: tv.SUN397(root, download=True),
    "clevr_count": lambda root: tv.CLEVRClassification(root, download=True),
}


def _read(spec: str, root: Path, name: str, part: str) -> Any:
    try:
        return READERS[name](str(root), part)
    except Exception as error:  # RuntimeError, OSError, KeyError, UnpicklingError and others
        problem = " ".join(str(error).split()).partition(" You can use")[0] or type(error).__name__
        raise UserError(f"datasets={spec}: {root} does not hold {name} as published ({problem})") from error
