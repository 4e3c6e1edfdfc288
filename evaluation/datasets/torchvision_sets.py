"""Sets that torchvision reads and downloads. Only DOWNLOADS uses the network.

The readers get `Path` as image loader, so that they list paths and labels without decoding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torchvision.datasets as tv


class LabelledSTL10(tv.STL10):  # type: ignore[misc]
    """STL-10 without its 2.6 GB of unlabelled images, whose checksum torchvision's reader would verify."""

    @property
    def train_list(self) -> list[list[str]]:
        """Return the files of the labelled images."""
        return list(tv.STL10.train_list[:2])


READERS: dict[str, Callable[[str, str], Any]] = {
    "cifar10": lambda root, part: tv.CIFAR10(root, train=part == "train"),
    "cifar100": lambda root, part: tv.CIFAR100(root, train=part == "train"),
    "stl10": LabelledSTL10,
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
