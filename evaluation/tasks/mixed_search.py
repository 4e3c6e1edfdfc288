"""Search in a pool of images and texts together: NDCG@10 of a caption's image and its other captions."""

import torch
from torch import Tensor

from evaluation.datasets.kinds import Captioned
from evaluation.metrics import hits, positive_ranks
from evaluation.tasks.rows import CaptionTask, centred_note, protocol_hashes, row, sides
from evaluation.types import Device, Features, Score

K = 10


class MixedSearch(CaptionTask):
    """Search in a pool of images and texts together: NDCG@10 of a caption's image and its other captions.

    The query is the first caption of an image. The pool has all images and all other captions; the image and its other
    captions are relevant. If the modalities lie apart, captions of other images come before the image: NDCG then counts
    the captions only, and `image_recall@10` is low. Li et al. 2025 (arXiv 2507.19054) search such pools; each of their
    documents is an image, a text, or the mean of both, and has no second document of the same content. Ties count
    against the model.
    """

    name = "mixed_search"
    kind = "captioned"
    version = 1
    on_request = True

    def groups(self, dataset: Captioned) -> list[dict[str, str]]:
        return [protocol_hashes(dataset.protocol, dataset.splits[0])]

    def score(self, dataset: Captioned, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows `ndcg@10` and `image_recall@10` (the image is among the first ten); n: captioned images."""
        image, text = sides(self, dataset, features, dataset.protocol, cosine)
        split = dataset.splits[0]
        captions_of: dict[int, list[int]] = {}
        for caption, owner in enumerate(dataset.image_of_caption(split).tolist()):
            captions_of.setdefault(owner, []).append(caption)
        right = {own[0]: [owner, *(len(image) + c for c in own[1:])] for owner, own in captions_of.items()}
        itself = {query: len(image) + query for query in right}
        answers, pool = torch.cat([image, text]), len(image) + len(text) - 1
        ranks = positive_ranks(text, answers, right, itself)
        of_image = positive_ranks(text, answers, {query: own[:1] for query, own in right.items()}, itself)
        metrics = {
            "ndcg": (
                torch.stack([ndcg(one) for one in ranks]),
                sum(chance_ndcg(len(r), pool) for r in ranks) / len(ranks),
            ),
            "image_recall": (hits(torch.cat(of_image), K), min(1.0, K / pool)),
        }
        named = split + centred_note(dataset.protocol)
        rows = [
            row(self.name, dataset.short, named, f"{name}@{K}", values, torch.ones_like(values), len(values), chance)
            for name, (values, chance) in metrics.items()
        ]
        return Score(rows)


def gains(places: Tensor) -> Tensor:
    """Return 1 / log2(1 + place), float64, and 0 beyond K; places from 1."""
    return (1 / (1 + places.double()).log2()).where(places <= K, 0.0)


def ndcg(ranks: Tensor) -> Tensor:
    """Return the normalised discounted cumulative gain [] at K of the relevant answers' ranks, int64 [R]."""
    return gains(ranks).sum() / gains(torch.arange(1, len(ranks) + 1)).sum()


def chance_ndcg(relevant: int, pool: int) -> float:
    """Return the expected NDCG if the answers are in random order: each place is relevant with the same probability."""
    places = gains(torch.arange(1, min(K, pool) + 1)).sum()
    return float(relevant / pool * places / gains(torch.arange(1, relevant + 1)).sum())
