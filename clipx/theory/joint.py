"""A joint distribution of images and texts in which popularity, false negatives and label noise are known.

K concepts with popularity proportional to 1/k^skew, each with m images and m texts:

    p(x, y) = (1 - noise) sum_k pi_k p(x | k) p(y | k) + noise p(x) p(y),   uniform within a concept.

Pairs of one concept in a batch are false negatives; a share `noise` of the pairs is mismatched.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Joint:
    """The distribution and a training set drawn from it; N = K m instances a side, grouped by concept."""

    p: Tensor  # [N, N], images by texts
    concept: Tensor  # int64 [N], of image i and of text i
    popularity: Tensor  # [K]
    image: Tensor  # int64 [n], the training pairs
    text: Tensor  # int64 [n]
    label: Tensor  # int64 [n] concept + 1 where the text names it (every other instance), else 0

    @property
    def mutual_information(self) -> float:
        """I(X; Y) in nats."""
        return float((self.p * torch.log(self.p / torch.outer(self.p.sum(1), self.p.sum(0)))).sum())


def make(K: int, m: int, skew: float, noise: float, n: int, generator: torch.Generator) -> Joint:
    """n training pairs of the distribution above; `noise` > 0 keeps every probability positive."""
    popularity = torch.arange(1, K + 1, dtype=torch.float64) ** -skew
    popularity /= popularity.sum()
    concept = torch.arange(K).repeat_interleave(m)
    marginal = popularity[concept] / m
    same = concept[:, None] == concept
    p = (1 - noise) * torch.where(same, (marginal / m)[:, None], 0.0) + noise * torch.outer(marginal, marginal)
    drawn = torch.multinomial(p.flatten(), n, replacement=True, generator=generator)
    image, text = drawn // len(p), drawn % len(p)
    label = torch.where(text % m % 2 == 0, concept[text] + 1, 0)
    return Joint(p, concept, popularity, image, text, label)


def nce(g: Tensor, p: Tensor) -> Tensor:
    """The population form of the symmetric InfoNCE (paper 5, equation 2) of similarities g [N, N]."""
    over_x, over_y = g + p.sum(1, keepdim=True).log(), g + p.sum(0, keepdim=True).log()
    texts, images = p.sum(0) @ over_x.logsumexp(0), p.sum(1) @ over_y.logsumexp(1)
    return -(p * g).sum() + (texts + images) / 2
