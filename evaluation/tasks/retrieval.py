"""Retrieval of captions by image and of images by caption; all captions of an image count."""

from dataclasses import replace
from math import lgamma
from typing import Any

import torch
from torch import Tensor

from evaluation.datasets.kinds import Captioned
from evaluation.metrics import Ranks, hits, retrieval_ranks, similarity
from evaluation.tasks.rows import row
from evaluation.types import FeatureRequest, Features, Kind, Result, Score

KS = (1, 5, 10)
EXAMPLES = 8  # queries shown each way
SHOWN = 5  # answers shown a query
POOL_SEED = 0  # of the choice of images


class Retrieval:
    """R@1, R@5, R@10 both ways; intervals over images, as the captions of one are not independent.

    `protocol=paper` reproduces the evaluator behind paper 1's tables, which writes the hits of text retrieval
    for one of an image's captions and leaves the others counted as hits. With five captions an image, random
    embeddings score 80%. The published columns show this floor, so they can only be compared with these rows;
    as a fraction of what was counted, the paper's values are (value - 0.8) / 0.2.
    """

    name = "retrieval"
    kind: Kind = "captioned"
    version = 2
    needs: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def requests(self, dataset: Captioned) -> list[FeatureRequest]:
        """Images and captions."""
        split = dataset.splits[0]
        return [
            FeatureRequest(dataset.name, split, "images"),
            FeatureRequest(dataset.name, split, "captions"),
        ]

    def groups(self, dataset: Captioned) -> list[dict[str, str]]:
        """All images, and each smaller pool; examples, which the report shows, depend on neither protocol nor pool."""
        protocol = {f"protocol/{dataset.splits[0]}": dataset.protocol}
        return [protocol, *(protocol | {"pool": str(size)} for size in sorted(set(dataset.pools)))]

    def score(
        self, dataset: Captioned, features: Features, device: torch.device | str = "cpu", cosine: bool = True
    ) -> Score:
        """Rows for all images and for each smaller pool, and examples with pictures for the `image` numbers."""
        image, text = (features[request] for request in self.requests(dataset))
        image_of_text = dataset.image_of_caption(dataset.splits[0])
        ranks = retrieval_ranks(image, text, image_of_text)
        whole, *pools = self.groups(dataset)
        rows = self._rows(dataset, ranks, image_of_text, len(image), "", whole)
        for own in pools:
            size = int(own["pool"])
            images, texts, owner = pool(image_of_text, len(image), size)
            found = retrieval_ranks(image[images], text[texts], owner)
            note = f", {size} of {len(image)} images (seed {POOL_SEED})"
            rows += self._rows(dataset, found, owner, size, note, own)
        texts_shown = dataset.texts(dataset.splits[0], "captions")
        artifact = {
            "kind": "retrieval",
            "text_to_image": _caption_examples(image, text, image_of_text, ranks.text_to_image, texts_shown),
            "image_to_text": _image_examples(image, text, image_of_text, ranks.image_to_text, texts_shown),
        }
        return Score(rows, artifact)

    def _rows(
        self, dataset: Captioned, ranks: Ranks, owner: Tensor, images: int, note: str, hashes: dict[str, str]
    ) -> list[Result]:
        """The rows of one pool of images, with its hashes; `owner` is the image of each text."""
        captions = torch.bincount(owner, minlength=images)
        queries = captions > 0
        counts = captions[queries].double()
        paper = dataset.protocol == "paper"
        split = dataset.splits[0] + note + (", paper protocol" if paper else "")
        rows = []
        for k in KS:
            found, weights = hits(ranks.image_to_text, k)[queries], torch.ones_like(counts)
            chance = chance_image_to_text(captions[queries], k)
            if paper:
                found, weights = with_floor(found, counts), counts
                chance = 1 - (1 - chance) * len(counts) / float(counts.sum())
            metric = f"image_to_text_recall@{k}"
            rows.append(row(self.name, dataset.short, split, metric, found, weights, len(found), chance))
            found = torch.zeros(images, dtype=torch.float64)
            found.index_add_(0, owner, hits(ranks.text_to_image, k))
            share, chance = found[queries] / counts, min(1.0, k / images)
            metric = f"text_to_image_recall@{k}"
            rows.append(row(self.name, dataset.short, split, metric, share, counts, len(owner), chance))
        return [replace(one, hashes=hashes) for one in rows]


def pool(image_of_text: Tensor, images: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """`size` of the images, drawn with a fixed seed, and all their texts.

    Returns:
        int64 numbers of the chosen images, of their texts, and for each of these the image's place in the pool.
    """
    chosen = torch.randperm(images, generator=torch.Generator().manual_seed(POOL_SEED))[:size].sort().values
    place = torch.full((images,), -1)
    place[chosen] = torch.arange(size)
    texts = (place[image_of_text] >= 0).nonzero()[:, 0]
    return chosen, texts, place[image_of_text[texts]]


def with_floor(found: Tensor, captions: Tensor) -> Tensor:
    """Hits by image as paper 1's evaluator has them: those of all captions but one count whatever was found.

    Args:
        found: [N], 0 or 1.
        captions: [N], how many each image has; also the image's weight in the mean.
    """
    return (captions - 1 + found) / captions


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
