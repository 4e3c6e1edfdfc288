"""Multinomial logistic regression by L-BFGS, and the search for its C (Radford et al. 2021; paper 5).

    minimise  C sum_i -log softmax(W x_i + b)[y_i] + ||W||^2 / 2        (the bias is not regularised)

which is scikit-learn's convention for C. Features are not standardised.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

GRID: list[float] = torch.logspace(-6, 6, 97, dtype=torch.float64).tolist()  # eight values of C a decade
STRIDES = (16, 8, 4, 2, 1)
MAX_ITERATIONS = 1000
TOLERANCE = 1e-6  # on the largest entry of the gradient of the objective / (C n), preconditioned


@dataclass
class Linear:
    """Scores of classes."""

    weight: Tensor  # [E, classes]
    bias: Tensor  # [classes]

    def __call__(self, features: Tensor) -> Tensor:
        """Scores [n, classes] of features [n, E]."""
        return features @ self.weight + self.bias


class Regression:
    """The problem for one set of features; `fit` solves it for one C.

    L-BFGS works on centred features along their principal axes, each scaled by the curvature of the objective
    at W = 0. That is a change of variables, so the minimum is the stated one; it takes several times fewer
    iterations, as embeddings share a large mean and lie near a few of their axes.
    """

    def __init__(self, features: Tensor, label: Tensor, classes: int) -> None:
        """`features` [n, E], `label` int64 [n] in 0..classes-1."""
        self.label, self.classes = label, classes
        self.mean = features.mean(dim=0)
        centred = features - self.mean
        variance, self.axes = torch.linalg.eigh((centred.T @ centred / len(features)).double())
        self.variance = variance.clamp(min=0)  # [E], float64 as the axes [E, E]
        self.along_axes = centred @ self.axes.to(features.dtype)  # [n, E]

    def fit(self, C: float, start: Linear | None = None) -> Linear:
        """The minimiser; `start` is where to begin, for speed (zeros where absent)."""
        decay = 1.0 / (C * len(self.label))
        scale = (self.variance / self.classes + decay).rsqrt()[:, None]
        inputs = self.along_axes * scale.T.to(self.along_axes.dtype)
        penalty = 0.5 * decay * scale.square()
        scaled, bias = scale.new_zeros(len(scale), self.classes), scale.new_zeros(self.classes)
        if start is not None:
            scaled = self.axes.T @ start.weight.double() / scale
            bias = (start.bias + self.mean @ start.weight).double()
        scaled.requires_grad_()
        bias.requires_grad_()

        def objective() -> Tensor:
            # The large product in the features' precision; its sum over rows in double, or the line search
            # would stop at the rounding of a single-precision loss.
            scores = (inputs @ scaled.to(inputs.dtype)).double() + bias
            loss: Tensor = F.cross_entropy(scores, self.label) + (penalty * scaled.square()).sum()
            return loss

        _minimise(objective, [scaled, bias])
        weight = (self.axes @ (scale * scaled.detach())).to(inputs.dtype)
        return Linear(weight, bias.detach().to(inputs.dtype) - self.mean @ weight)


def _minimise(objective: Callable[[], Tensor], parameters: list[Tensor]) -> None:
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=MAX_ITERATIONS,
        max_eval=2 * MAX_ITERATIONS,
        tolerance_grad=TOLERANCE,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = objective()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]


@dataclass
class Search:
    """The parametric search for C on a validation split."""

    accuracy_of: dict[int, float]  # place in GRID -> validation accuracy
    best: int  # place in GRID

    @property
    def chosen(self) -> float:
        """The chosen C."""
        return GRID[self.best]


def search(train: Regression, features: Tensor, label: Tensor) -> Search:
    """C by CLIP's search: every 16th point of GRID, then the best one's neighbours at strides 8, 4, 2, 1.

    Args:
        train: the problem on the training rows.
        features: [n, E] of the validation rows.
        label: int64 [n] of the validation rows.

    Of equally accurate values the smallest is taken, the strongest regularisation.
    """
    solved: dict[int, Linear] = {}
    accuracy_of: dict[int, float] = {}
    best = 0
    for stride in STRIDES:
        first = stride == STRIDES[0]
        places = range(0, len(GRID), stride) if first else (best - stride, best + stride)
        for place in places:
            if place not in range(len(GRID)):
                continue
            near = min(solved, key=lambda known: abs(known - place), default=None)
            solved[place] = train.fit(GRID[place], None if near is None else solved[near])
            predicted = solved[place](features).argmax(dim=1)
            accuracy_of[place] = float((predicted == label).double().mean())
        best = min(accuracy_of, key=lambda place: (-accuracy_of[place], place))
    return Search(accuracy_of, best)
