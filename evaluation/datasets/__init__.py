"""Evaluation data sets: a file per layout, one table of layouts and one of names.

wds hf captions pairs    shards.py     karpathy coco clevr      in files of their names
NAME                     named.py: vision.py (torchvision), folders.py, clevr.py, karpathy.py, mmvp.py
"""

from evaluation.datasets.kinds import AnyDataset, Captioned, Labelled, MinimalPairs
from evaluation.datasets.named import NAMED, pull
from evaluation.datasets.opening import KINDS, LAYOUTS, locate, open_dataset

__all__ = [
    "KINDS",
    "LAYOUTS",
    "NAMED",
    "AnyDataset",
    "Captioned",
    "Labelled",
    "MinimalPairs",
    "locate",
    "open_dataset",
    "pull",
]
