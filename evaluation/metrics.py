"""Hits, ranks and intervals. The similarity of two embeddings is always their dot product.

Shapes: E is the width of the embeddings, N the number of images, T of texts, P of minimal pairs.

Ties and NaN count against the model. A collapsed model, whose embeddings are all equal, therefore scores 0 instead of
100 per cent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from clipx.errors import UserError
from clipx.utils.shapes import Shapes
from evaluation.statistics import binomial_interval

MISS = torch.iinfo(torch.int64).max  # rank of a NaN, and of an image without a caption: outside every top k
CHUNK = 512  # texts whose similarities are held at once: with 5,000 images 20 MB in float64
RESAMPLES = 1000
DRAWS = 4_000_000  # bootstrap indices drawn at once
KEPT_EXAMPLES = 10_000  # up to this number of examples, the bootstrap's draws are cached for other metrics (8 x 20 MB)


@dataclass
class Ranks:
    """Rank of the right answer to each query, 1 = best; see `MISS`."""

    image_to_text: Tensor  # int64 [N], rank of the image's best caption
    text_to_image: Tensor  # int64 [T], rank of the text's image


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot products float32 [n, m] of the rows of `a` [n, E] and `b` [m, E].

    Sum in double precision and round to single: then equal rows tie in practice, whatever the machine and the chunk
    size; after sums in single precision they often do not.
    """
    return (a.double() @ b.double().T).float()


def rank_of(scores: Tensor, own: Tensor) -> Tensor:
    """Return the rank int64 [n] of the right answer's score `own` [n] among `scores` [n, m], which include it.

    Other scores that are equal to it or NaN rank before it. If it is NaN itself, its rank is `MISS`.
    """
    rank = (~(scores < own[:, None])).sum(dim=1, dtype=torch.int32).long()  # faster than a sum in int64
    return rank.masked_fill(own.isnan(), MISS)


def retrieval_ranks(image: Tensor, text: Tensor, image_of_text: Tensor) -> Ranks:
    """Return the ranks in both directions, without storing the whole similarity matrix.

    Each image's best caption is ranked among the captions of all other images. An image without a caption is not a
    query (its rank is `MISS`), but it is still a wrong answer for the texts.

    `image_of_text`: int64 [T], the image of each caption. Captions may be in any order, any number per image.
    """
    shapes = Shapes()
    shapes.check("image", image, "N E")
    shapes.check("text", text, "T E")
    shapes.check("image_of_text", image_of_text, "T", integer=True)
    if not len(text):
        raise UserError("there is no text to rank: no image has a caption")
    if not 0 <= int(image_of_text.min()) <= int(image_of_text.max()) < len(image):
        raise ValueError(f"image_of_text names images outside 0..{len(image) - 1}")
    # With the scores of the right pairs known, one pass over the similarities gives the ranks in both directions.
    chunks = _chunks(len(text), CHUNK)
    products = (text[rows].double() * image[image_of_text[rows]].double() for rows in chunks)
    own = torch.cat([one.sum(dim=1).float() for one in products])
    lowest = float("-inf")
    best = torch.full((len(image),), lowest)
    best.scatter_reduce_(0, image_of_text, own.masked_fill(own.isnan(), lowest), "amax")
    text_to_image, image_to_text = [], torch.ones(len(image), dtype=torch.int64)
    images = image.double()  # once instead of in every chunk
    for rows in chunks:
        scores = similarity(text[rows], images)
        scores.scatter_(1, image_of_text[rows, None], own[rows, None])  # rarely, the two sums differ in the last digit
        text_to_image.append(rank_of(scores, own[rows]))
        ahead = ~(scores < best)
        ahead.scatter_(1, image_of_text[rows, None], False)  # an image's own captions are not wrong answers
        image_to_text += ahead.sum(dim=0, dtype=torch.int32)
    return Ranks(image_to_text.masked_fill(best == lowest, MISS), torch.cat(text_to_image))


def ranks_of(scores: Tensor, right: list[int]) -> Tensor:
    """Return the ranks of the right answers, int64 [R], ascending, among the scores [n] of all answers.

    Wrong answers that are equal to a right one or NaN rank before it.

    `right`: indices of the right answers. A NaN among them ranks behind all others.
    """
    lowest = float("-inf")
    own = scores[right].nan_to_num(nan=lowest).sort(descending=True).values
    others = scores.clone()
    others[right] = lowest
    return (~(others < own[:, None])).sum(dim=1) + torch.arange(1, len(own) + 1)


def positive_ranks(
    query: Tensor, answer: Tensor, positives: dict[int, list[int]], itself: dict[int, int]
) -> list[Tensor]:
    """Return `ranks_of` for each query of `positives`, in its order.

    Args:
        positives: query -> its R right answers.
        itself: query -> the answer that is the query itself, which has no rank.
    """
    ranks, answers = [], answer.double()
    listed = list(positives.items())
    for part in (listed[rows] for rows in _chunks(len(listed), CHUNK)):
        scores = similarity(query[[q for q, _ in part]], answers)
        for row, (q, right) in zip(scores, part, strict=True):
            row[itself[q]] = float("-inf")
            ranks.append(ranks_of(row, right))
    return ranks


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def hits(ranks: Tensor, k: int) -> Tensor:
    """Return 1.0 where the rank is at most k, else 0.0; float64, with the shape of `ranks`."""
    if k < 1:
        raise ValueError(f"k={k}: allowed are 1, 2, 3, ...")
    return (ranks <= k).double()


def recall_at_k(image: Tensor, text: Tensor, image_of_text: Tensor, k: int) -> dict[str, float]:
    """Return recall at k in both directions, as fractions; arguments as in `retrieval_ranks`.

    `image_to_text`: share of the images with at least one of their captions among the k nearest texts.
    `text_to_image`: share of the texts with their image among the k nearest images.
    """
    ranks = retrieval_ranks(image, text, image_of_text)
    queries = torch.unique(image_of_text)
    return {
        "image_to_text": float(hits(ranks.image_to_text[queries], k).mean()),
        "text_to_image": float(hits(ranks.text_to_image, k).mean()),
    }


def label_ranks(scores: Tensor, label: Tensor) -> Tensor:
    """Return the rank int64 [n] of the true class among the scores [n, classes]; label int64 [n]."""
    shapes = Shapes()
    shapes.check("scores", scores, "n classes")
    shapes.check("label", label, "n", integer=True)
    return rank_of(scores, scores.gather(1, label[:, None])[:, 0])


def predicted_class(scores: Tensor, label: Tensor) -> Tensor:
    """Return the predicted class int64 [n] of the scores [n, classes]: the true class only where its rank is 1.

    Elsewhere it is the highest other class: argmax alone may count ties and NaN as hits.
    """
    others = scores.scatter(1, label[:, None], float("-inf"))
    return torch.where(label_ranks(scores, label) == 1, label, others.argmax(dim=1))


def accuracy(scores: Tensor, label: Tensor, k: int = 1) -> float:
    """Return the fraction of rows with the true class among the k highest scores [n, classes]; label int64 [n]."""
    return float(hits(label_ranks(scores, label), k).mean())


def class_weights(label: Tensor) -> Tensor:
    """Return float64 [n] weights that give every class that occurs the same total weight."""
    return 1.0 / torch.bincount(label)[label].double()


def mean_per_class(scores: Tensor, label: Tensor) -> float:
    """Return the mean top-1 accuracy of the classes that occur; a fraction."""
    return weighted_mean(hits(label_ranks(scores, label), 1), class_weights(label))


def macro_f1(predicted: Tensor, label: Tensor) -> tuple[float, float, float]:
    """Return the mean F1 of the classes that occur among the labels, with the ends of its 95% bootstrap interval.

    The F1 of a class is 2 x hits / (images predicted as the class + images of the class).

    `predicted`, `label`: int64 [n].
    """
    classes = torch.unique(label)
    is_label, is_predicted = label[:, None] == classes, predicted[:, None] == classes
    summed = torch.cat([is_label & is_predicted, is_label, is_predicted], dim=1).double()

    def mean_f1(sums: Tensor) -> Tensor:
        """Return [resamples]; a class that a resample lacks is left out of its mean."""
        right, labels, predictions = sums.chunk(3, dim=1)
        return (2 * right / (labels + predictions).clamp(min=1)).sum(dim=1) / (labels > 0).sum(dim=1)

    draws = torch.cat([counts.double() @ summed for counts in _resamples(len(label))])
    return float(mean_f1(summed.sum(dim=0, keepdim=True))), *percentile_interval(mean_f1(draws))


def pair_hits(similarity: Tensor) -> Tensor:
    """Return 1.0 for each matched pair, else 0.0, float64 [P]; `pair_accuracy` defines `similarity` and "matched"."""
    Shapes().check("similarity", similarity, "P 2 2")
    first = similarity[:, 0, 0] > similarity[:, 1, 0]
    second = similarity[:, 1, 1] > similarity[:, 0, 1]
    return (first & second).double()


def pair_accuracy(similarity: Tensor) -> float:
    """Return the fraction of minimal pairs that are matched (MMVP-VLM, Tong et al. 2024; paper 4, appendix E).

    A pair is matched if each of its two statements is nearer to its own image than to the pair's other image. Chance
    is 1/4.

    Args:
        similarity: [P, 2, 2]; entry [p, i, t] is for image i and statement t of pair p. Statement t describes image t.
    """
    return float(pair_hits(similarity).mean())


def weighted_mean(values: Tensor, weights: Tensor) -> float:
    """Return sum(weights * values) / sum(weights)."""
    return float((values * weights).sum() / weights.sum())


def bootstrap_interval(values: Tensor, weights: Tensor | None = None) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of the (weighted) mean over examples.

    If all values are 0 or all are 1, a bootstrap interval would have no width: 0 hits of 1,000 would look clearly
    below a chance of 1 in 1,000. The exact binomial interval (Clopper and Pearson 1934) is returned instead.

    Args:
        values: [n], one per independent example. Captions of one image are not independent: pass their mean, with
            their number as its weight.
        weights: [n]; equal by default.
    """
    n = len(values)
    assert n > 0, "an interval needs at least one example"
    values = values.double()
    if bool((values == values[0]).all()) and float(values[0]) in (0.0, 1.0):
        return binomial_interval(n if float(values[0]) else 0, n)
    weights = torch.ones_like(values) if weights is None else weights.double()
    summed = torch.stack([values * weights, weights], dim=1)
    sums = torch.cat([counts.double() @ summed for counts in _resamples(n)])
    return percentile_interval(sums[:, 0] / sums[:, 1])


def _resamples(n: int) -> Iterable[Tensor]:
    return _kept_draws(n) if n <= KEPT_EXAMPLES else _draws(n)


def _draws(n: int) -> Iterable[Tensor]:
    """Yield blocks of resamples, int16 [block, n]: how often each resample draws each of the n examples."""
    generator = torch.Generator().manual_seed(0)
    for block in _chunks(RESAMPLES, max(1, DRAWS // n)):
        chosen = torch.randint(n, (block.stop - block.start, n), generator=generator)
        yield torch.zeros(chosen.shape, dtype=torch.int16).scatter_add_(1, chosen, torch.ones_like(chosen).short())


@lru_cache(maxsize=8)
def _kept_draws(n: int) -> list[Tensor]:
    return list(_draws(n))


def percentile_interval(resampled: Tensor) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of a statistic's bootstrap values `resampled`, float64 [resamples]."""
    low, high = resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
