"""Hits, ranks and their intervals. Embeddings go in; the similarity is always their dot product.

Nothing here gives the benefit of the doubt: a tie counts against the model and a NaN is never a hit, so a
collapsed model scores 0 and not 100 per cent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.statistics import binomial_interval

MISS = torch.iinfo(torch.int64).max  # the rank of what has no rank: within no top k
CHUNK = 512  # texts whose similarities are held at once: with 5,000 images 20 MB in float64
RESAMPLES = 1000
DRAWS = 4_000_000  # bootstrap indices drawn at once


@dataclass
class Ranks:
    """Rank of the right answer to each query, 1 = found first; `MISS` where it has none."""

    image_to_text: Tensor  # int64 [images]: of the best of the image's captions
    text_to_image: Tensor  # int64 [texts]


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Dot products float32 [n, m] of the rows of `a` [n, E] and `b` [m, E].

    Summed in double and compared in single precision: rows that are equal tie on every machine and at every
    chunk size, which the rounding of a single-precision product does not promise.
    """
    return (a.double() @ b.double().T).float()


def rank_of(scores: Tensor, own: Tensor) -> Tensor:
    """Rank int64 [n] of `own` [n] among `scores` [n, m], which hold it; ties and NaN count against it."""
    rank = (~(scores < own[:, None])).sum(dim=1)
    return rank.masked_fill(own.isnan(), MISS)


def retrieval_ranks(image: Tensor, text: Tensor, image_of_text: Tensor, chunk: int = CHUNK) -> Ranks:
    """Ranks both ways; the similarity is never stored whole.

    Args:
        image: [N, E].
        text: [T, E].
        image_of_text: int64 [T], the image that each caption belongs to, in any order and number.
        chunk: texts whose similarities are held at once; does not change the result.

    An image's rank is that of its best caption among the captions of all other images; an image without a
    caption is no query (`MISS`) but stays a distractor. The scores of the right pairs come first, so that one
    pass over the similarity serves both ways.
    """
    if image_of_text.shape != text.shape[:1]:
        raise ValueError(f"image_of_text has shape {list(image_of_text.shape)}, not one entry per text")
    if len(text) and not 0 <= int(image_of_text.min()) <= int(image_of_text.max()) < len(image):
        raise ValueError(f"image_of_text names images outside 0..{len(image) - 1}")
    own = torch.cat([_own_scores(text[rows], image, image_of_text[rows]) for rows in _chunks(len(text), chunk)])
    lowest = float("-inf")
    best = torch.full((len(image),), lowest)
    best.scatter_reduce_(0, image_of_text, own.masked_fill(own.isnan(), lowest), "amax")
    text_to_image, image_to_text = [], torch.ones(len(image), dtype=torch.int64)
    images = image.double()  # once, not at every chunk
    for rows in _chunks(len(text), chunk):
        scores = similarity(text[rows], images)
        scores.scatter_(1, image_of_text[rows, None], own[rows, None])  # the same number, not the same rounding
        text_to_image.append(rank_of(scores, own[rows]))
        ahead = ~(scores < best)
        ahead.scatter_(1, image_of_text[rows, None], False)  # its own captions do not stand in an image's way
        image_to_text += ahead.sum(dim=0)
    return Ranks(image_to_text.masked_fill(best == lowest, MISS), torch.cat(text_to_image))


def _own_scores(text: Tensor, image: Tensor, own: Tensor) -> Tensor:
    """float32 [n], of each text [n, E] and its image; `own` int64 [n]. Rounded as in `similarity`."""
    return (text.double() * image[own].double()).sum(dim=1).float()


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def hits(ranks: Tensor, k: int) -> Tensor:
    """1.0 where the rank is among the first k; float64, the shape of `ranks`."""
    if k < 1:
        raise ValueError(f"k={k}: allowed are 1, 2, 3, ...")
    return (ranks <= k).double()


def recall_at_k(image: Tensor, text: Tensor, image_of_text: Tensor, k: int) -> dict[str, float]:
    """Recall at k both ways, as fractions.

    `image_to_text`: share of the images that have ANY of their captions among the k nearest texts.
    `text_to_image`: share of the texts that have their image among the k nearest images.

    Args:
        image: [N, E].
        text: [T, E].
        image_of_text: int64 [T].
        k: 1, 2, ...
    """
    ranks = retrieval_ranks(image, text, image_of_text)
    queries = torch.unique(image_of_text)
    return {
        "image_to_text": float(hits(ranks.image_to_text[queries], k).mean()),
        "text_to_image": float(hits(ranks.text_to_image, k).mean()),
    }


def label_ranks(scores: Tensor, label: Tensor) -> Tensor:
    """Rank int64 [n] of the true class among the scores [n, classes]; label int64 [n]."""
    return rank_of(scores, scores.gather(1, label[:, None])[:, 0])


def accuracy(scores: Tensor, label: Tensor, k: int = 1) -> float:
    """Fraction of rows whose true class is among the k highest scores [n, classes]; label int64 [n]."""
    return float(hits(label_ranks(scores, label), k).mean())


def class_weights(label: Tensor) -> Tensor:
    """float64 [n] weights under which every class that occurs counts alike."""
    return 1.0 / torch.bincount(label)[label].double()


def mean_per_class(scores: Tensor, label: Tensor) -> float:
    """Top-1 accuracy of each class that occurs, averaged over these classes; a fraction."""
    return weighted_mean(hits(label_ranks(scores, label), 1), class_weights(label))


def pair_hits(similarity: Tensor) -> Tensor:
    """1.0 for each matched pair; float64 [P]. See `pair_accuracy`."""
    first = similarity[:, 0, 0] > similarity[:, 1, 0]
    second = similarity[:, 1, 1] > similarity[:, 0, 1]
    return (first & second).double()


def pair_accuracy(similarity: Tensor) -> float:
    """Fraction of minimal pairs that are matched (MMVP-VLM, Tong et al. 2024; paper 4, appendix E).

    `similarity[p, i, t]` is that of image i and statement t of pair p; i and t belong together where equal.
    A pair counts when each of its two statements is nearer to its own image than to the other one; chance
    is 1/4. Ties count against the model.

    Args:
        similarity: [P, 2, 2].
    """
    return float(pair_hits(similarity).mean())


def weighted_mean(values: Tensor, weights: Tensor) -> float:
    """sum(w v) / sum(w)."""
    return float((values * weights).sum() / weights.sum())


def bootstrap_interval(
    values: Tensor, weights: Tensor | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """95% percentile bootstrap interval of the (weighted) mean, resampling examples.

    Args:
        values: [n], one per independent example. Captions of one image are not independent: give the
            image's mean and the number of captions as its weight.
        weights: [n]; equal where absent.

    Hits that are all 0 or all 1 would give an interval of no width, from which 0 of 1,000 looks surely below
    a chance of 1 in 1,000. There the exact binomial bound (Clopper and Pearson 1934) takes its place.
    """
    n = len(values)
    assert n > 0, "an interval of no examples"
    values = values.double()
    if bool((values == values[0]).all()) and float(values[0]) in (0.0, 1.0):
        return binomial_interval(n if float(values[0]) else 0, n)
    weights = torch.ones_like(values) if weights is None else weights.double()
    generator = torch.Generator().manual_seed(seed)
    means = []
    for block in _chunks(resamples, max(1, DRAWS // n)):
        chosen = torch.randint(n, (block.stop - block.start, n), generator=generator)
        drawn = weights[chosen]
        means.append((values[chosen] * drawn).sum(dim=1) / drawn.sum(dim=1))
    low, high = torch.cat(means).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
