"""Clustering of images and texts together by k-means, scored by the V-measure (Rosenberg and Hirschberg 2007).

Grassucci et al. 2026 (arXiv 2601.18525) report it: the modality gap splits the clusters by modality, while it leaves
retrieval almost unchanged. Groups are classes, or images with their captions:

    clustering           each image, and for each image a text of its class (the prompts of a class in turn)
    caption_clustering   each image, and all captions; an image and its captions form a group

k is the number of groups. Their code clusters one caption per image of those COCO images that have a single category
(10 clusters), and of CIFAR-10 the class names as texts.

scikit-learn is no dependency; this k-means takes as many passes, and runs on the features' device.
"""

from dataclasses import replace

import torch
from torch import Tensor

from evaluation.datasets.kinds import Captioned, Labelled
from evaluation.statistics import t_interval
from evaluation.tasks.rows import centred_note, protocol_hashes, sides, split_name
from evaluation.types import Device, FeatureRequest, Features, Kind, Result, Score, Task, View

TEST = "test"
SEEDS = 5  # starts of k-means
STEPS = 100  # most passes of one start
CHUNK = 4096  # points whose distances to all centres are held at once


class Clustering(Task):
    """V-measure of k-means on images and texts together; interval over five starts.

    Chance is the value if the images, and the texts, are assigned to the groups at random. It is not 0: with many small
    groups it is near 1.
    """

    version = 1
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
        """Return the row `v_measure`."""
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
        points = torch.cat([image, text[chosen]]).to(device)
        group, k = torch.cat([image_group, text_group[chosen]]), len(torch.unique(image_group))
        values, chances = [], []
        for seed in range(SEEDS):
            cluster = k_means(points, k, seed)
            generator = torch.Generator().manual_seed(seed)
            mixed = [g[torch.randperm(len(g), generator=generator)] for g in (image_group, text_group)]
            values.append(v_measure(group, cluster))
            chances.append(v_measure(torch.cat([mixed[0], mixed[1][chosen]]), cluster))
        value, low, high = t_interval(values)
        named = split + centred_note(dataset.protocol)
        chance = sum(chances) / SEEDS
        low, high = max(low, 0.0), min(high, 1.0)
        found = Result(self.name, dataset.short, named, "v_measure", value, len(points), low, high, chance, True)
        return Score([replace(found, hashes=self.groups(dataset)[0])])

    def _split(self, dataset: Labelled | Captioned) -> str:
        return TEST if self.labelled else dataset.splits[0]


def k_means(points: Tensor, k: int, seed: int) -> Tensor:
    """Return the cluster of each point [n, E], int64 [n] in CPU memory: Lloyd's algorithm from a k-means++ start."""
    points = points.double()
    generator = torch.Generator().manual_seed(seed)
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    nearest = (points - centres).square().sum(dim=1)
    while len(centres) < k:
        weights = nearest.cpu() if float(nearest.sum()) > 0 else torch.ones(len(points))  # 0: fewer than k places
        new = points[torch.multinomial(weights, 1, generator=generator)]
        centres, nearest = torch.cat([centres, new]), nearest.minimum((points - new).square().sum(dim=1))
    cluster = torch.full((len(points),), -1, device=points.device)
    for _ in range(STEPS):
        lengths = centres.square().sum(dim=1)
        parts = (points[start : start + CHUNK] for start in range(0, len(points), CHUNK))
        found = torch.cat([(lengths - 2 * part @ centres.T).argmin(dim=1) for part in parts])
        if torch.equal(found, cluster):
            break
        cluster, counts = found, torch.bincount(found, minlength=k)
        means = torch.zeros_like(centres).index_add(0, cluster, points) / counts.clamp(min=1)[:, None]
        centres = means.where(counts[:, None] > 0, centres)  # a cluster without points stays where it is
    return cluster.cpu()


def v_measure(group: Tensor, cluster: Tensor) -> float:
    """Return 2 h c / (h + c), with h = 1 - H(group | cluster) / H(group) and c = 1 - H(cluster | group) / H(cluster).

    `group`, `cluster`: int64 [n]. An entropy H of 0 gives h = 1 or c = 1; h = c = 0 gives 0.
    """
    _, joint = torch.unique(group * (int(cluster.max()) + 1) + cluster, return_counts=True)
    H_group, H_cluster, H_joint = _entropy(torch.bincount(group)), _entropy(torch.bincount(cluster)), _entropy(joint)
    h = 1 - (H_joint - H_cluster) / H_group if H_group > 0 else 1.0
    c = 1 - (H_joint - H_group) / H_cluster if H_cluster > 0 else 1.0
    return max(0.0, 2 * h * c / (h + c)) if h + c > 0 else 0.0


def _entropy(counts: Tensor) -> float:
    """Return the entropy of the shares of `counts`, in nats."""
    p = counts[counts > 0].double() / counts.sum()
    return max(0.0, -float((p * p.log()).sum()))
