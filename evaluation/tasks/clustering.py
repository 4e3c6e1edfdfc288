"""Clustering of images and texts together by k-means, scored by the V-measure (Rosenberg and Hirschberg 2007).

Grassucci et al. 2026 (arXiv 2601.18525) report it: the modality gap splits the clusters by modality, while it leaves
retrieval almost unchanged. Groups are classes, or images with their captions:

    clustering           each image, and for each image a text of its class (the prompts of a class in turn)
    caption_clustering   each image, and all captions; an image and its captions form a group

k is the number of groups. Their code clusters the COCO images of a single category with one caption each (10 clusters),
and CIFAR-10 with the class names as texts.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.statistics import t_interval
from evaluation.tasks.rows import centred_note, protocol_hashes, sides, split_name
from evaluation.types import Device, FeatureRequest, Features, Kind, Result, Score, Task, View

TEST = "test"
SEEDS = 5  # starts of k-means
STEPS = 100  # largest number of passes of one start


class Clustering(Task):
    """V-measure of k-means on images and texts together; interval over five starts.

    Chance permutes the groups of the images, and those of the texts (copies of a text stay together). It is not 0: with
    many small groups it is near 1.
    """

    version = 2  # version 1 started k-means from other random points
    on_request = True

    def __init__(self, kind: Kind) -> None:
        self.kind, self.labelled = kind, kind == "labelled"
        self.name = "clustering" if self.labelled else "caption_clustering"
        self.needs = (TEST,) if self.labelled else ()
        self.view: View = "prompts" if self.labelled else "captions"

    def requests(self, dataset: Labelled | Captioned) -> list[FeatureRequest]:
        split = self._split(dataset)
        return [FeatureRequest(dataset.name, split, "images"), FeatureRequest(dataset.name, split, self.view)]

    def groups(self, dataset: Labelled | Captioned) -> list[dict[str, str]]:
        return [protocol_hashes(dataset.protocol, self._split(dataset))]

    def score(
        self, dataset: Labelled | Captioned, features: Features, device: Device = "cpu", cosine: bool = True
    ) -> Score:
        """Return the row `v_measure`; computed on the CPU."""
        from sklearn.metrics import v_measure_score  # slow import

        image, text = sides(self, dataset, features, dataset.protocol, cosine)
        split = self._split(dataset)
        if isinstance(dataset, Labelled):
            image_group, each = dataset.labels(split), len(text) // len(dataset.classnames)
            text_group = torch.arange(len(text)) // each
            chosen = image_group * each + torch.arange(len(image)) % each  # a text of the class for each image
            split = split_name(split, dataset.prompts)
        else:
            image_group, text_group = torch.arange(len(image)), dataset.image_of_caption(split)
            chosen = torch.arange(len(text))
        points = torch.cat([image, text[chosen]])
        group, k = torch.cat([image_group, text_group[chosen]]), len(torch.unique(image_group))
        values, chances = [], []
        for seed in range(SEEDS):
            cluster = k_means(points, k, seed)
            generator = torch.Generator().manual_seed(seed)
            mixed = [g[torch.randperm(len(g), generator=generator)] for g in (image_group, text_group)]
            values.append(v_measure_score(group, cluster))
            chances.append(v_measure_score(torch.cat([mixed[0], mixed[1][chosen]]), cluster))
        value, low, high = t_interval(values)
        named = split + centred_note(dataset.protocol)
        chance = sum(chances) / SEEDS
        low, high = max(low, 0.0), min(high, 1.0)
        row = Result(self.name, dataset.short, named, "v_measure", value, len(points), low, high, chance, True)
        return Score([row])

    def _split(self, dataset: Labelled | Captioned) -> str:
        return TEST if self.labelled else dataset.splits[0]


def k_means(points: Tensor, k: int, seed: int) -> NDArray[np.int32]:
    """Return the cluster of each of the points [n, E], int32 [n]."""
    from sklearn.cluster import KMeans  # slow import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
        fitted = KMeans(k, n_init=1, max_iter=STEPS, tol=0, random_state=seed).fit(points.double().numpy())
    found: NDArray[np.int32] = fitted.labels_
    return found
