"""Tasks on composition sets: minimal pairs, the choice of a caption, and images associated with a cue."""

from math import comb

import torch
from torch import Tensor

from evaluation.datasets.kinds import Associations, Choices, MinimalPairs
from evaluation.metrics import class_weights, hits, pair_hits, rank_of, ranks_of, similarity
from evaluation.tasks.rows import CaptionTask, by_category, category_labels, ranked_items, row, split_name
from evaluation.types import Device, Features, Items, Score

CHANCE = 0.25  # each of two statements finds its image with probability 1/2
GROUP_CHANCE = 1 / 6  # both right scores are above both wrong ones, in 4 of 24 orders (Thrush et al. 2022, table 3)


class PairAccuracy(CaptionTask):
    """Accuracy on minimal pairs: two images and two statements that differ in one detail (MMVP-VLM, Winoground).

    It is the share of the pairs in which each statement finds its image, over all pairs and by category.

    The metric `pair_accuracy` is Winoground's image score; by category it is, for example, `pair_accuracy/colour`. Sets
    with `both_ways` also get `text_score` (each image finds its statement) and `group_score` (both), also by category.
    """

    name = "pairs"
    kind = "pairs"
    version = 1

    def score(self, dataset: MinimalPairs, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        images, texts = images.view(-1, 2, images.shape[1]), texts.view(-1, 2, texts.shape[1])
        similarity = (images @ texts.mT).float()
        images_found = pair_hits(similarity)
        metrics: dict[str, tuple[Tensor, float]] = {"pair_accuracy": (images_found, CHANCE)}
        if dataset.both_ways:
            texts_found = pair_hits(similarity.mT)
            metrics |= {"text_score": (texts_found, CHANCE), "group_score": (images_found * texts_found, GROUP_CHANCE)}
        split, categories = dataset.splits[0], dataset.categories(dataset.splits[0])
        named = split_name(split, dataset.prompts)
        rows, items = [], []
        for metric, (matched, chance) in metrics.items():
            for name, mask in by_category(metric, categories).items():
                hits = matched[mask]
                rows.append(row(self.name, dataset.short, named, name, hits, torch.ones_like(hits), len(hits), chance))
            items.append(Items(named, metric, torch.arange(len(matched)), matched > 0))
        return Score(rows, items=items)


class CaptionChoice(CaptionTask):
    """Accuracy of the choice between captions of an image: one is right, the others are wrong (SugarCrepe, ARO).

    It is the share of the images whose right caption is nearer than every wrong one, over all images and by category.

    A tie counts against the model. Hsieh et al. 2023 report the categories; the mean over all images is our addition.
    Sets with `averaged` categories have a row with the mean over these: VALSE, and ARO, which has no row per category
    (Yuksekgonul et al. 2023).

    With two right captions, both must be nearer than the wrong one (ITT of SugarCrepe++, Dumpala et al. 2024). The rows
    `text_only_accuracy` are its TOT: the right captions are nearer to each other than either is to the wrong one.

    The rows of `groups` are shares of groups of images that are all right (What'sUp, Kamath et al. 2023).
    """

    name = "choices"
    kind = "choices"
    version = 1

    def score(self, dataset: Choices, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the row `accuracy`, and those of the categories, of their mean, of texts alone and of groups."""
        images, texts = (features[request].double() for request in self.requests(dataset))
        texts = texts.view(len(images), dataset.answers, -1)
        similarity = torch.einsum("ne,nae->na", images, texts).float()
        farthest = similarity[:, : dataset.right].amin(dim=1)  # of the right captions
        ranks = rank_of(torch.cat([farthest[:, None], similarity[:, dataset.right :]], dim=1), farthest)
        split, right = dataset.splits[0], hits(ranks, 1)
        categories = dataset.categories(split)
        counted = torch.tensor([category in dataset.averaged for category in categories])
        label, chance = category_labels(categories), 1 / comb(dataset.answers, dataset.right)
        scored = {"accuracy": right} | ({"text_only_accuracy": text_only_hits(texts)} if dataset.right == 2 else {})
        # metric -> hits, weights, chance
        metrics = {
            name: (part := values[mask], torch.ones_like(part), chance)
            for metric, values in scored.items()
            for name, mask in by_category(metric, categories).items()
            if dataset.by_category or name == metric
        }
        if counted.any():
            metrics["mean_per_category"] = right[counted], class_weights(label[counted]), chance
        for metric, size in dataset.groups:
            together = right.view(-1, size).amin(dim=1)
            metrics[metric] = together, torch.ones_like(together), chance**size
        rows = [
            row(self.name, dataset.short, split, metric, values, weights, len(values), by_chance)
            for metric, (values, weights, by_chance) in metrics.items()
        ]
        return Score(rows, items=ranked_items(split, "accuracy", ranks))


def text_only_hits(texts: Tensor) -> Tensor:
    """Return 1.0 where the first two texts are nearer to each other than either is to the third, else 0.0, float64 [n].

    `texts`: [n, 3, E]. Chance is 1/3.
    """
    similarity = (texts @ texts.mT).float()
    between = similarity[:, 0, 1]
    return ((between > similarity[:, 0, 2]) & (between > similarity[:, 1, 2])).double()


class CueAssociations(CaptionTask):
    """Jaccard index of the images chosen for a cue with those that a person chose (WinoGAViL).

    For a cue with k right images, the k nearest candidates are chosen; a tie counts against the model.

    Rows: `jaccard` over all cues, `jaccard/5-6` and `jaccard/10-12` by the number of candidates. DataComp (Gadre et
    al. 2023) reports the last.
    """

    name = "associations"
    kind = "associations"
    version = 1

    def score(self, dataset: Associations, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows."""
        images, cues = (features[request] for request in self.requests(dataset))
        values, chances, split = [], [], dataset.splits[0]
        for cue, candidates, right in zip(cues, dataset.candidates, dataset.right, strict=True):
            ranks = ranks_of(similarity(cue[None], images[candidates])[0], right)
            k = len(right)
            hits = int((ranks <= k).sum())
            values.append(hits / (2 * k - hits))
            chances.append(chance_jaccard(len(candidates), k))
        jaccard, chance = torch.tensor(values, dtype=torch.float64), torch.tensor(chances, dtype=torch.float64)
        sizes = ["5-6" if len(candidates) <= 6 else "10-12" for candidates in dataset.candidates]
        rows = [
            row(self.name, dataset.short, split, metric, jaccard[of], torch.ones(n), n, float(chance[of].mean()))
            for metric, of in by_category("jaccard", sizes).items()
            if (n := int(of.sum()))
        ]
        return Score(rows)


def chance_jaccard(candidates: int, k: int) -> float:
    """Return the expected Jaccard index of k random candidates with the k right ones."""
    ways = {hits: comb(k, hits) * comb(candidates - k, k - hits) for hits in range(k + 1)}
    return sum(hits / (2 * k - hits) * count for hits, count in ways.items()) / comb(candidates, k)
