"""Linear probe: logistic regression on frozen image embeddings (Radford et al. 2021; paper 5).

Multinomial logistic regression by L-BFGS, and the search for its C:

    minimise  C sum_i -log softmax(W x_i + b)[y_i] + ||W||^2 / 2        (the bias b is not regularised)

This is scikit-learn's convention for C. Features are not standardised. E is the width of the features x_i.

scikit-learn itself is not used, because it fits one C at a time, on the CPU. Here one matrix product with the features
serves all values of C, on the features' device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.metrics import class_weights, hits, label_ranks
from evaluation.tasks.rows import ranked_items, row
from evaluation.types import Device, FeatureRequest, Features, Score, Task

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


def search(train: Regression, features: Tensor, label: Tensor) -> tuple[dict[int, tuple[float, float]], int]:
    """Search C as CLIP does: every 16th point of GRID, then the neighbours of the best one at strides 8, 4, 2, 1.

    `train` has the training rows; `features` [n, E] and `label` int64 [n] are the validation rows. Among equally
    accurate values of C, the one with the smallest cross-entropy is chosen: with few validation rows, many are equal.

    Returns index in GRID -> accuracy and mean cross-entropy on the validation rows, and the chosen index.
    """
    solved: dict[int, Linear] = {}
    found: dict[int, tuple[float, float]] = {}
    best = 0
    for stride in STRIDES:
        first = stride == STRIDES[0]
        around = range(0, len(GRID), stride) if first else (best - stride, best + stride)
        indices = [index for index in around if index in range(len(GRID))]
        starts = [_nearest(solved, index) for index in indices]
        for index, linear in zip(indices, train.fit_all([GRID[i] for i in indices], starts), strict=True):
            solved[index] = linear
            scores = linear(features)
            accuracy = float((scores.argmax(dim=1) == label).double().mean())
            found[index] = accuracy, float(F.cross_entropy(scores.double(), label))
        best = min(found, key=lambda index: (-found[index][0], found[index][1]))
    return found, best


def _nearest(solved: dict[int, Linear], index: int) -> Linear | None:
    near = min(solved, key=lambda known: abs(known - index), default=None)
    return None if near is None else solved[near]


# L-BFGS for several smooth convex problems at once (Nocedal and Wright 2006, algorithms 7.4 and 7.5). Not from a
# library: `torch.optim.LBFGS` and `scipy.optimize` solve one problem at a time. The probe fits many values of C on the
# same features, and one matrix product per round serves all of them. Each round evaluates the objectives of all
# unfinished problems once. Shapes: B problems, b of them unfinished, P parameters per problem.
# The two-loop recursion starts from the inverse of the Hessian's diagonal at a recent point. The usual start, a
# multiple of the identity, needs several times as many rounds if the diagonal entries differ much.
MEMORY = 10  # stored pairs of steps and gradient changes
REFRESH = 10  # rounds between updates of the Hessian's diagonal
DECREASE = 1e-4  # share of the predicted decrease that a step must reach (Armijo)
ROUNDING = 1e-7  # relative error of a value in single precision
GAP = 1e-3  # largest predicted decrease of a converged problem, as a share of the value
SHORTEST = 1e-6  # a problem ends if its step falls below this share of the direction: only rounding is left


# The objectives: points [b, P], indices of the unfinished problems int64 [b], and whether to return the diagonals
# -> values float64 [b], gradients [b, P], diagonals of the Hessians [b, P] > 0 or None
Problem = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor, Tensor | None]]


@dataclass
class _State:
    """Unfinished problems, one per row; s, y and rho as in Nocedal and Wright."""

    problem: Tensor  # int64 [b], index of the problem
    x: Tensor  # [b, P]
    value: Tensor  # float64 [b]
    gradient: Tensor  # [b, P]
    diagonal: Tensor  # [b, P]
    direction: Tensor  # [b, P]
    step: Tensor  # [b], share of the direction to try next
    moves: list[Tensor] = field(default_factory=list)  # s of the last rounds (changes of x), [b, P] each
    changes: list[Tensor] = field(default_factory=list)  # y of the last rounds (changes of the gradient), [b, P] each
    rho: list[Tensor] = field(default_factory=list)  # 1 / s.y of the last rounds, [b] each; 0 if rejected or s.y <= 0

    def keep(self, rows: Tensor) -> "_State":
        """Return the state of these rows (bool [b])."""
        kept: dict[str, Any] = {
            name: [tensor[rows] for tensor in value] if isinstance(value, list) else value[rows]
            for name, value in vars(self).items()
        }
        return _State(**kept)


def minimise(objective: Problem, start: Tensor, tolerance: float, rounds: int) -> Tensor:
    """Return the minimisers [B, P] found from `start` [B, P].

    A problem has converged if the largest entry of its gradient is at most `tolerance` and the quadratic model predicts
    a small decrease, see GAP. The gradient alone does not suffice: a loss near 0 has a small gradient far from its
    minimum. A problem also ends if its step is shorter than SHORTEST, or after `rounds` rounds.
    """
    found = start.clone()
    problem = torch.arange(len(start), device=start.device)
    value, gradient, diagonal = objective(start, problem, True)
    assert diagonal is not None
    state = _State(problem, start, value, gradient, diagonal, -gradient / diagonal, torch.ones_like(start[:, 0]))
    for number in range(1, rounds + 1):
        flat = state.gradient.abs().amax(dim=1) <= tolerance
        low = -0.5 * _dot(state.gradient, state.direction) <= GAP * state.value
        done = (flat & low) | (state.step < SHORTEST)
        found[state.problem[done]] = state.x[done]
        if bool(done.all()):
            return found
        if bool(done.any()):
            state = state.keep(~done)
        _advance(state, objective, refresh=number % REFRESH == 0)
    found[state.problem] = state.x
    return found


def _advance(state: _State, objective: Problem, refresh: bool) -> None:
    """Try each problem's step. Take the step if the value decreases enough, otherwise shorten it for the next round."""
    slope = _dot(state.gradient, state.direction)
    x = state.x + state.step[:, None] * state.direction
    value, gradient, diagonal = objective(x, state.problem, refresh)
    allowed = state.value + (DECREASE * state.step * slope).double() + ROUNDING * state.value.abs()
    taken = value <= allowed
    move, change = x - state.x, gradient - state.gradient
    curvature = _dot(move, change)
    state.moves.append(move)
    state.changes.append(change)
    state.rho.append(torch.where(taken & (curvature > 0), 1 / curvature, 0.0))
    if len(state.moves) > MEMORY:
        for history in (state.moves, state.changes, state.rho):
            history.pop(0)
    # A rejected step on a convex function went past a point with slope zero. The secant through the slopes at the
    # step's two ends estimates this point.
    shorter = state.step * (slope / (slope - _dot(gradient, state.direction))).clamp(0.1, 0.7)
    rows = taken[:, None]
    state.x = torch.where(rows, x, state.x)
    state.value = torch.where(taken, value, state.value)
    state.gradient = torch.where(rows, gradient, state.gradient)
    if diagonal is not None:
        state.diagonal = torch.where(rows, diagonal, state.diagonal)
    state.direction = torch.where(rows, _direction(state), state.direction)
    state.step = torch.where(taken, 1.0, shorter)


def _direction(state: _State) -> Tensor:
    """Return minus the estimated inverse Hessian times the gradient [b, P], by the two-loop recursion."""
    q = -state.gradient
    alphas = []
    history = list(zip(state.moves, state.changes, state.rho, strict=True))
    for s, y, rho in reversed(history):
        alphas.append(rho * _dot(s, q))
        q = q - alphas[-1][:, None] * y
    q = q / state.diagonal
    for (s, y, rho), alpha in zip(history, reversed(alphas), strict=True):
        q = q + (alpha - rho * _dot(y, q))[:, None] * s
    return q


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=1)


SPLIT = "test"  # split that is scored; never used to choose C
VALIDATION_SHARE = 10  # without an official validation split, one training row in ten is used to choose C


class LinearProbe(Task):
    """Linear probe: logistic regression, C chosen on a validation split, the last fit on all splits but test.

    With a `variant` (a key of Encoder.image_variants), the probe takes these image features instead of the embeddings,
    and the names of task and metrics end in the variant's name.
    """

    kind = "labelled"
    version = 2  # 1: validation rows not by class, the smallest C among equally accurate ones
    needs = ("train", SPLIT)

    def __init__(self, variant: str = "") -> None:
        self.variant = variant
        self.variants = (variant,) if variant else ()
        self.suffix = f"_{variant.replace(' ', '_')}" if variant else ""
        self.name = f"linear_probe{self.suffix}"

    def requests(self, dataset: Labelled) -> list[FeatureRequest]:
        splits = [split for split in ("train", "val", SPLIT) if split in dataset.splits]
        return [FeatureRequest(dataset.name, split, "images", self.variant) for split in splits]

    def score(self, dataset: Labelled, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return the rows; the artifact is the search for C. Run on `device`, or on the CPU if `device` is mps.

        mps has no double precision.
        """
        device = torch.device("cpu") if torch.device(device).type == "mps" else torch.device(device)
        *fitting, test = self.requests(dataset)
        known = torch.cat([features[request] for request in fitting]).to(device)
        labels = [dataset.labels(request.split) for request in fitting]
        label, classes = torch.cat(labels).to(device), len(dataset.classnames)
        train, validation = _split(labels)
        found, best = search(Regression(known[train], label[train], classes), known[validation], label[validation])
        probe = Regression(known, label, classes).fit(GRID[best])
        truth = dataset.labels(SPLIT)
        ranks = label_ranks(probe(features[test].to(device)).cpu(), truth)
        correct = hits(ranks, 1)
        # The chance level of top-1: on random features a probe always predicts the most frequent class.
        largest = torch.bincount(truth).max().item() / len(truth)
        rows = [
            row(self.name, dataset.short, SPLIT, f"{metric}{self.suffix}", correct, weights, len(truth), chance)
            for metric, weights, chance in (
                ("top1", torch.ones_like(correct), largest),
                ("mean_per_class", class_weights(truth), 1 / classes),
            )
        ]
        tried = sorted(found)
        artifact = {
            "kind": self.name,
            "C": [GRID[index] for index in tried],
            "validation_accuracy": [found[index][0] for index in tried],
            "chosen_C": GRID[best],
        }
        return Score(rows, artifact, ranked_items(SPLIT, f"top1{self.suffix}", ranks))


def _split(labels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the rows to fit on and the rows to choose C on: train and val, or a seeded 90/10 split of each class.

    A class's only row is fitted on. If all classes have one row, C is chosen on the same rows.
    """
    total = sum(len(label) for label in labels)
    if len(labels) == 2:
        return torch.arange(len(labels[0])), torch.arange(len(labels[0]), total)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    place = _place_in_class(labels[0], order)
    held_out = min(max(1, total // VALIDATION_SHARE), int((place < 1).sum()))
    ranked = order[place[order].argsort(stable=True)]  # the first rows have the classes in their proportions
    validation, train = ranked[:held_out].sort().values, ranked[held_out:].sort().values
    return train, validation if held_out else train


def _place_in_class(label: Tensor, order: Tensor) -> Tensor:
    """Return the place of each row in `order` among the rows of its class, from 0 to 1; 1 for the only row of a class.

    `label` and `order` int64 [n] -> float32 [n].
    """
    sizes = torch.bincount(label)
    by_class = order[label[order].argsort(stable=True)]
    first = (sizes.cumsum(0) - sizes)[label[by_class]]
    place = torch.empty(len(label))
    place[by_class] = (torch.arange(len(label)) - first + 0.5) / sizes[label[by_class]]
    return place.where(sizes[label] > 1, 1.0)
