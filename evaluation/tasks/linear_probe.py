"""Linear probe: logistic regression on frozen image embeddings (Radford et al. 2021; paper 5).

Multinomial logistic regression by scipy's L-BFGS-B, and the search for its C:

    minimise  C sum_i -log softmax(W x_i + b)[y_i] + ||W||^2 / 2        (the bias b is not regularised)

This is scikit-learn's convention for C. Features are not standardised. E is the width of the features x_i.

scikit-learn itself is not used, because it works on the CPU only. Here the products are on the features' device.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from evaluation.datasets.kinds import Labelled
from evaluation.metrics import class_weights, hits, label_ranks
from evaluation.tasks.rows import ranked_items, row
from evaluation.types import SPLIT, Device, FeatureRequest, Features, Score, Task

GRID: list[float] = torch.logspace(-6, 6, 97, dtype=torch.float64).tolist()  # eight values of C per decade
STRIDES = (16, 8, 4, 2, 1)
MAX_ITERATIONS = 1000
NEGLIGIBLE = 1e-20  # probabilities below it count as 0: CPUs multiply denormal numbers many times slower
# relative decrease in an iteration below which the minimiser ends; rounding in single precision allows no smaller one
TOLERANCE = 1e-7
# scores (rows x classes) per chunk: they fit a CPU's cache; on a GPU, large chunks hide launch overhead
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
    """Logistic regression on one set of features, on their device.

    The minimiser works on centred features along their principal axes, in units in which all weights have about the
    same curvature at zero. The shift (which the bias absorbs), the rotation and the units do not change the minimum.
    They save most of the iterations, because embeddings have a large common mean and vary mostly along a few axes.
    """

    def __init__(self, features: Tensor, label: Tensor, classes: int) -> None:
        """`features` [n, E], `label` int64 [n] in 0..classes-1."""
        self.label, self.classes = label.to(features.device), classes
        self.mean = features.mean(dim=0)
        centred = features - self.mean
        _, self.axes = torch.linalg.eigh((centred.T @ centred).double())  # float64 [E, E]
        along_axes = centred @ self.axes.to(features.dtype)
        self.inputs = torch.cat([along_axes, torch.ones_like(along_axes[:, :1])], dim=1)  # [n, E + 1], last: bias
        # [E + 1], of the objective / C along each input if all weights are 0, but for a factor of 1 - 1 / classes
        self.curvature = self.inputs.norm(dim=0).double().cpu().square() / classes

    def fit(self, C: float, start: Linear | None = None) -> Linear:
        """Return the minimiser; a good `start` (default: zeros) saves time."""
        from scipy import optimize  # slow import

        decay = torch.full_like(self.curvature, 1 / C)  # weight decay in the objective / C
        decay[-1] = 0
        unit = (self.curvature + decay).rsqrt()

        def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            weight = torch.from_numpy(x).view(self.classes, -1) * unit
            loss, gradient = self._cross_entropy(weight)
            value = loss + 0.5 * float((decay * weight.square()).sum())
            return value, ((gradient + decay * weight) * unit).flatten().numpy()

        first = torch.zeros(self.classes, len(unit), dtype=torch.float64)
        if start is not None:
            bias = start.bias.double() + self.mean.double() @ start.weight.double()
            first = torch.cat([self.axes.T @ start.weight.double(), bias[None]]).T.cpu() / unit
        options = {"ftol": TOLERANCE, "gtol": 0.0, "maxiter": MAX_ITERATIONS}
        found = optimize.minimize(objective, first.flatten().numpy(), jac=True, method="L-BFGS-B", options=options).x
        minimum = (torch.from_numpy(found).view(self.classes, -1) * unit).to(self.inputs.device).T
        weight = self.axes @ minimum[:-1]
        bias = minimum[-1] - self.mean.double() @ weight
        return Linear(weight.to(self.inputs.dtype), bias.to(self.inputs.dtype))

    def _cross_entropy(self, weight: Tensor) -> tuple[float, Tensor]:
        """Return the sum of the losses and its gradient, float64 on the CPU.

        `weight`, gradient: [classes, E + 1]: CPUs multiply this layout up to 8 times as fast as its transpose. Products
        and softmax have the features' precision. The losses are summed in double precision: otherwise rounding errors
        would hide the decrease in the last steps.
        """
        weight = weight.to(self.inputs)
        loss, gradient = weight.new_zeros((), dtype=torch.float64), torch.zeros_like(weight)
        rows = max(1, CELLS[weight.device.type] // self.classes)
        for first in range(0, len(self.label), rows):
            inputs, label = self.inputs[first : first + rows], self.label[first : first + rows]
            log_p = (weight @ inputs.T).log_softmax(dim=0)
            own = log_p.gather(0, label[None])
            loss -= own.sum(dtype=torch.float64)
            p = torch.threshold_(log_p.exp_(), NEGLIGIBLE, 0.0)
            p.scatter_add_(0, label[None], torch.full_like(own, -1.0))
            gradient.addmm_(p, inputs)
        return float(loss), gradient.double().cpu()


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
        for index in around:
            if index not in range(len(GRID)):
                continue
            near = min(solved, key=lambda known: abs(known - index), default=index)
            solved[index] = train.fit(GRID[index], solved.get(near))
            scores = solved[index](features)
            accuracy = float((scores.argmax(dim=1) == label).double().mean())
            found[index] = accuracy, float(F.cross_entropy(scores.double(), label))
        best = min(found, key=lambda index: (-found[index][0], found[index][1]))
    return found, best


VALIDATION_SHARE = 10  # without an official validation split, one training row in ten is used to choose C


class LinearProbe(Task):
    """Linear probe: logistic regression, C chosen on a validation split, the last fit on all splits but test.

    With a `variant` (a key of Encoder.image_variants), the probe takes these image features instead of the embeddings,
    and the names of task and metrics end in the variant's name.
    """

    kind = "labelled"
    version = 3  # 2: another minimiser; 1: validation rows not by class, the smallest C among equally accurate ones
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
