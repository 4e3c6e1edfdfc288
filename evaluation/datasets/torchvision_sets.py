"""Sets that torchvision reads and downloads.

The readers get `Path` as image loader, so that they list paths and labels without decoding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torchvision.datasets as tv


class LabelledSTL10(tv.STL10):  # type: ignore[misc]
    """STL-10 without its 2.6 GB of unlabelled images, whose checksum torchvision's reader would verify."""

    train_list = tv.STL10.train_list[:2]


READERS: dict[str, Callable[[str, str, bool], Any]] = {  # of root, split, and whether to download the set
    "cifar10": lambda root, part, get: tv.CIFAR10(root, train=part == "train", download=get),
    "cifar100": lambda root, part, get: tv.CIFAR100(root, train=part == "train", download=get),
    "stl10": lambda root, part, get: LabelledSTL10(root, part, download=get),
    "food101": lambda root, part, get: tv.Food101(root, part, download=get, loader=Path),
    "dtd": lambda root, part, get: tv.DTD(root, part, download=get, loader=Path),
    "flowers102": lambda root, part, get: tv.Flowers102(root, part, download=get, loader=Path),
    "cars": lambda root, part, get: tv.StanfordCars(root, part, loader=Path),  # can no longer be downloaded
    "aircraft": lambda root, part, get: tv.FGVCAircraft(root, part, download=get, loader=Path),
    "eurosat": lambda root, part, get: tv.EuroSAT(root, download=get, loader=Path),
    "sun397": lambda root, part, get: tv.SUN397(root, download=get, loader=Path),
    # only downloaded so, see labelled.py
    "pets": lambda root, part, get: tv.OxfordIIITPet(root, download=get),
    "caltech101": lambda root, part, get: tv.Caltech101(root, download=get),
    "clevr_count": lambda root, part, get: tv.CLEVRClassification(root, download=get),
}
