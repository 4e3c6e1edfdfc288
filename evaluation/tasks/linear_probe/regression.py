"""Multinomial logistic regression by L-BFGS, and the search for its C (Radford et al. 2021; paper 5).

    minimise  C sum_i -log softmax(W x_i + b)[y_i] + ||W||^2 / 2        (the bias b is not regularised)

This is scikit-learn's convention for C. Features are not standardised. E is the width of the features x_i.

scikit-learn itself is not used, because it fits one C at a time, on the CPU. Here one matrix product with the features
serves all values of C, on the features' device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.tasks.linear_probe.lbfgs import minimise

GRID: list[float] = torch.logspace(-6, 6, 97, dtype=torch.float64).tolist()  # eight values of C per decade
STRIDES = (16, 8, 4, 2, 1)
MAX_ITERATIONS = 1000
NEGLIGIBLE = 1e-20  # probabilities below it count as 0: CPUs multiply denormal numbers many times slower
TOLERANCE = 2e-6  # bound on the largest gradient entry of objective / (C n); scikit-learn's default is 1e-4
# scores (rows x values of C x classes) per chunk: they fit a CPU's cache; on a GPU, large chunks hide launch overhead
CELLS = {"cpu": 2**19, "cuda": 2**27}


@dataclass
class Linear:
    """A linear classifier."""

    weight: Tensor  # [E, classes]
    bias: Tensor  # [classes]

    def __call__(self, features: Tensor) -> Tensor:
        """Return scores [n, classes] of features [n, E]."""
        return features @ self.weight + self.bias


class Regression:
    """Logistic regression on one set of features, on their device; `fit_all` solves it for several C at once.

    The minimiser works on centred features along their principal axes. The rotation and the shift (which the bias
    absorbs) do not change the minimum. They make the Hessian nearly diagonal, because embeddings have a large common
    mean and vary mostly along a few axes.
    """

    def __init__(self, features: Tensor, label: Tensor, classes: int) -> None:
        """`features` [n, E], `label` int64 [n] in 0..classes-1."""
        self.label, self.classes = label.to(features.device), classes
        self.mean = features.mean(dim=0)
        centred = features - self.mean
        _, self.axes = torch.linalg.eigh((centred.T @ centred).double())  # float64 [E, E]
        along_axes = centred @ self.axes.to(features.dtype)
        self.inputs = torch.cat([along_axes, torch.ones_like(along_axes[:, :1])], dim=1)  # [n, E + 1], last: bias

    def fit(self, C: float, start: Linear | None = None) -> Linear:
        """Return the minimiser; a good `start` (default: zeros) saves time."""
        return self.fit_all([C], [start])[0]

    def fit_all(self, Cs: Sequence[float], starts: Sequence[Linear | None]) -> list[Linear]:
        """Return the minimiser for each C, starting from `starts` (None: zeros)."""
        like, shape = self.inputs, (self.classes, self.inputs.shape[1])
        C = torch.tensor(Cs, dtype=torch.float64, device=like.device)
        decay = like.new_zeros(len(Cs), *shape)  # weight decay in the objective / (C n)
        decay[:, :, :-1] = (1 / (C * len(like))).to(like.dtype)[:, None, None]

        def objective(x: Tensor, problem: Tensor, diagonal: bool) -> tuple[Tensor, Tensor, Tensor | None]:
            weight, shrink = x.view(-1, *shape), decay[problem]
            loss, gradient, curvature = self._cross_entropy(weight, diagonal)
            value = loss + 0.5 * (shrink * weight.square()).flatten(1).sum(dim=1, dtype=torch.float64)
            tiny = torch.finfo(x.dtype).tiny  # lower bound: the bias of a class that never occurs has no curvature
            hessian = None if curvature is None else (curvature + shrink).clamp(min=tiny).flatten(1)
            return value, (gradient + shrink * weight).flatten(1), hessian

        start = torch.stack([self._to_axes(start) for start in starts]).flatten(1)
        found = minimise(objective, start, TOLERANCE, MAX_ITERATIONS)
        return [self._from_axes(weight) for weight in found.view(-1, *shape)]

    def _cross_entropy(self, weight: Tensor, diagonal: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return mean loss float64 [b], gradient and, if `diagonal`, the Hessian's diagonal for b values of C.

        `weight`, gradient and diagonal are [b, classes, E + 1]: CPUs multiply this layout up to 8 times as fast as its
        transpose. Products and softmax have the features' precision. The losses are summed in double precision:
        otherwise rounding errors would hide the decrease in the last steps.
        """
        problems = len(weight)
        stacked = weight.flatten(0, 1)
        loss = weight.new_zeros(problems, dtype=torch.float64)
        gradient = torch.zeros_like(stacked)
        curvature = torch.zeros_like(stacked) if diagonal else None
        rows = max(1, CELLS[weight.device.type] // len(stacked))
        for first in range(0, len(self.label), rows):
            inputs, label = self.inputs[first : first + rows], self.label[first : first + rows]
            scores = (stacked @ inputs.T).view(problems, self.classes, -1)
            own = label.expand(problems, 1, -1)
            scores -= scores.amax(dim=1, keepdim=True)
            own_score = scores.gather(1, own)
            p = scores.exp_()
            total = p.sum(dim=1, keepdim=True)
            p /= total
            torch.threshold_(p, NEGLIGIBLE, 0.0)
            loss += (total.log() - own_score).sum(dim=(1, 2), dtype=torch.float64)
            if curvature is not None:
                curvature.addmm_((p * (1 - p)).flatten(0, 1), inputs.square())
            p.scatter_add_(1, own, torch.full_like(own_score, -1.0))
            gradient.addmm_(p.flatten(0, 1), inputs)
        n = len(self.label)
        return (
            loss / n,
            gradient.view_as(weight) / n,
            None if curvature is None else curvature.view_as(weight) / n,
        )

    def _to_axes(self, linear: Linear | None) -> Tensor:
        """Return weights along the principal axes, then the bias, [classes, E + 1]."""
        if linear is None:
            return self.inputs.new_zeros(self.classes, self.inputs.shape[1])
        weight = linear.weight.double().T @ self.axes
        bias = linear.bias.double() + self.mean.double() @ linear.weight.double()
        return torch.cat([weight, bias[:, None]], dim=1).to(self.inputs.dtype)

    def _from_axes(self, found: Tensor) -> Linear:
        weight = self.axes @ found[:, :-1].double().T
        bias = found[:, -1].double() - self.mean.double() @ weight
        return Linear(weight.to(found.dtype), bias.to(found.dtype))


@dataclass
class Search:
    """Result of the search for C on a validation split."""

    accuracy_of: dict[int, float]  # index in GRID -> validation accuracy
    best: int  # index in GRID
    solutions: dict[int, Linear]  # index in GRID -> classifier fitted on the training rows

    @property
    def chosen(self) -> float:
        """The chosen C."""
        return GRID[self.best]


def search(train: Regression, features: Tensor, label: Tensor) -> Search:
    """Search C as CLIP does: every 16th point of GRID, then the neighbours of the best one at strides 8, 4, 2, 1.

    `train` has the training rows; `features` [n, E] and `label` int64 [n] are the validation rows. Among equally
    accurate values of C, the smallest (the strongest regularisation) is chosen.
    """
    solved: dict[int, Linear] = {}
    accuracy_of: dict[int, float] = {}
    best = 0
    for stride in STRIDES:
        first = stride == STRIDES[0]
        around = range(0, len(GRID), stride) if first else (best - stride, best + stride)
        indices = [index for index in around if index in range(len(GRID))]
        starts = [_nearest(solved, index) for index in indices]
        for index, linear in zip(indices, train.fit_all([GRID[i] for i in indices], starts), strict=True):
            solved[index] = linear
            accuracy_of[index] = float((linear(features).argmax(dim=1) == label).double().mean())
        best = min(accuracy_of, key=lambda index: (-accuracy_of[index], index))
    return Search(accuracy_of, best, solved)


def _nearest(solved: dict[int, Linear], index: int) -> Linear | None:
    near = min(solved, key=lambda known: abs(known - index), default=None)
    return None if near is None else solved[near]
