"""Retrieval of captions by image and of images by caption; all captions of an image count."""

from math import lgamma
from typing import Any

import torch
from torch import Tensor

from evaluation.datasets import Captioned
from evaluation.metrics import hits, retrieval_ranks, similarity
from evaluation.tasks.rows import row
from evaluation.types import FeatureRequest, Features, Kind, Result, Score

KS = (1, 5, 10)
EXAMPLES = 8  # queries shown each way
SHOWN = 5  # answers shown a query


class Retrieval:
    """R@1, R@5, R@10 both ways; intervals over images, as the captions of one are not independent."""

    name = "retrieval"
    kind: Kind = "captioned"
    version = 1
    needs: tuple[str, ...] = ()

    def requests(self, dataset: Captioned) -> list[FeatureRequest]:
        """Images and captions."""
        split = dataset.splits[0]
        return [
            FeatureRequest(dataset.name, split, "images"),
            FeatureRequest(dataset.name, split, "captions"),
        ]

    def score(self, dataset: Captioned, features: Features) -> Score:
        """Rows, and examples in which the runner puts pictures for the `image` numbers."""
        image, text = (features[request] for request in self.requests(dataset))
        image_of_text = dataset.image_of_caption(dataset.splits[0])
        ranks = retrieval_ranks(image, text, image_of_text)
        captions = torch.bincount(image_of_text, minlength=len(image))
        queries = captions > 0
        rows = []
        for k in KS:
            chance = chance_image_to_text(captions[queries], k)
            found = hits(ranks.image_to_text, k)[queries]
            rows.append(self._row(dataset, "image_to_text", k, found, torch.ones_like(found), len(found), chance))
            found = torch.zeros(len(image), dtype=torch.float64)
            found.index_add_(0, image_of_text, hits(ranks.text_to_image, k))
            share, chance = (found / captions)[queries], min(1.0, k / len(image))
            rows.append(self._row(dataset, "text_to_image", k, share, captions[queries], len(text), chance))
        texts = dataset.texts(dataset.splits[0], "captions")
        artifact = {
            "kind": "retrieval",
            "text_to_image": _caption_examples(image, text, image_of_text, ranks.text_to_image, texts),
            "image_to_text": _image_examples(image, text, image_of_text, ranks.image_to_text, texts),
        }
        return Score(rows, artifact)

    def _row(
        self, dataset: Captioned, way: str, k: int, hits: Tensor, weights: Tensor, n: int, chance: float
    ) -> Result:
        metric = f"{way}_recall@{k}"
        return row(self.name, dataset.short, dataset.splits[0], metric, hits, weights, n, chance)


def chance_image_to_text(captions: Tensor, k: int) -> float:
    """Expected recall at k when all texts are in random order; `captions` int64 [N], how many each image has.

    An image with c of T captions is missed with probability C(T - c, k) / C(T, k).
    """
    total = int(captions.sum())
    missed = 0.0
    for count, images in zip(*torch.unique(captions, return_counts=True), strict=True):
        missed += int(images) * _none_drawn(total, int(count), k)
    return 1.0 - missed / len(captions)


def _none_drawn(total: int, marked: int, k: int) -> float:
    """Probability that k of `total` drawn without replacement hold none of the `marked`."""
    others = total - marked
    if k > others:
        return 0.0
    log = lgamma(others + 1) - lgamma(others - k + 1) - lgamma(total + 1) + lgamma(total - k + 1)
    return float(torch.tensor(log, dtype=torch.float64).exp())


def _drawn(queries: Tensor) -> list[int]:
    """Some of the queries at random: examples chosen by hand would flatter."""
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(0))
    chosen: list[int] = queries[order[:EXAMPLES]].sort().values.tolist()
    return chosen


def _caption_examples(
    image: Tensor, text: Tensor, image_of_text: Tensor, ranks: Tensor, texts: list[str]
) -> list[dict[str, Any]]:
    examples = []
    for query in _drawn(torch.arange(len(text))):
        top = similarity(text[query : query + 1], image)[0].topk(min(SHOWN, len(image)))
        own = int(image_of_text[query])
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        images = [{"image": i, "similarity": s, "correct": i == own} for i, s in found]
        examples.append({"caption": texts[query], "images": images, "rank": int(ranks[query])})
    return examples


def _image_examples(
    image: Tensor, text: Tensor, image_of_text: Tensor, ranks: Tensor, texts: list[str]
) -> list[dict[str, Any]]:
    examples = []
    for query in _drawn(torch.unique(image_of_text)):
        top = similarity(image[query : query + 1], text)[0].topk(min(SHOWN, len(text)))
        found = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        captions = [{"text": texts[t], "similarity": s, "correct": int(image_of_text[t]) == query} for t, s in found]
        examples.append({"image": query, "captions": captions, "rank": int(ranks[query])})
    return examples
