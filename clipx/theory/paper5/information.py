"""Mutual information of a discrete joint distribution p(x, y) [N, N]."""

import numpy as np

from clipx.theory.experiment import Array


def pointwise_mutual_information(p: Array) -> Array:
    """Return PMI(x, y) = log(p(x, y) / (p(x) p(y))), [N, N], in nats."""
    return np.asarray(np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0))))


def mutual_information(p: Array) -> float:
    """Return I(X; Y) in nats."""
    return float((p * pointwise_mutual_information(p)).sum())
