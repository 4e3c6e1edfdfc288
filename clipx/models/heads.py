"""From what the towers give to one vector a sample, whose dot product is the similarity."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.schema import PointsConfig
from clipx.errors import UserError
from clipx.models.kernels import REDUCTIONS, embed, sample_frequencies
from clipx.types import PointSet, Progress
from clipx.utils import rng as draws
from clipx.utils.registry import lookup

STREAM = 0x575053  # keeps the frequencies apart from other draws of (seed, step)
DRAWS = 5  # draws of the random features that an evaluation compares (paper 5, table 5)
Embed = Callable[[Any], Tensor]  # a tower's output -> [b, E] float32


class Head(Protocol):
    """How a model embeds; the same for images and texts of a batch."""

    cosine: bool  # vectors are of unit length
    draws: int  # evaluations that differ by chance; 1 where nothing is random

    def training(self, progress: Progress) -> Embed:
        """For a training step."""
        ...

    def evaluation(self, draw: int) -> Embed:
        """For evaluation, `draw` in 0..draws-1."""
        ...

    def provenance(self) -> dict[str, str]:
        """What embeddings depend on beside weights and architecture; empty for cosine similarity."""
        ...


class OnePoint:
    """CLIP: one point a sample, of unit length unless `normalise` is off."""

    draws = 1

    def __init__(self, normalise: bool) -> None:
        self.cosine = normalise

    def training(self, progress: Progress) -> Embed:
        """Nothing depends on the step."""
        return self._embed

    def evaluation(self, draw: int) -> Embed:
        """As in training."""
        return self._embed

    def provenance(self) -> dict[str, str]:
        """Whether the similarity is the cosine."""
        return {} if self.cosine else {"similarity": "dot product"}

    def _embed(self, features: Tensor) -> Tensor:
        return F.normalize(features.float(), dim=-1) if self.cosine else features.float()


class KernelHead:
    """Weighted point sets under a kernel, in random Fourier features.

    Training draws new frequencies each step, from (seed, step): equal on all ranks without a broadcast, and after a
    resume. Evaluation has fixed ones, the same for all runs.
    """

    cosine = False

    def __init__(self, config: PointsConfig, d: int, seed: int) -> None:
        self.config, self.d, self.seed = config, d, seed
        self.linear = config.kernel == "linear"
        self.alpha = (1.0, 0.0) if self.linear else tuple(config.alpha)
        self.draws = 1 if self.linear else DRAWS
        if len(self.alpha) != 2 or min(self.alpha) < 0 or not sum(self.alpha):
            raise UserError(
                f"model.points.alpha={config.alpha} is not [alpha1, alpha2], two numbers of 0 or more, one above 0"
            )
        lookup(REDUCTIONS, config.reduce, "model.points.reduce")
        self.evaluation(0)  # names a kernel that is not known

    def training(self, progress: Progress) -> Embed:
        """The frequencies of (seed, step)."""
        return self._embed((self.seed, progress.step, STREAM), self.config.features_train)

    def evaluation(self, draw: int) -> Embed:
        """The frequencies of a draw."""
        return self._embed((draw, STREAM), self.config.features_eval)

    def provenance(self) -> dict[str, str]:
        """The kernel and its features."""
        return {"points": " ".join(f"{key}={value}" for key, value in asdict(self.config).items())}

    def _embed(self, key: tuple[int, ...], count: int) -> Embed:
        config, alpha = self.config, self.alpha
        if self.linear:
            omega, beta = torch.empty(0, self.d), torch.empty(0)
        else:
            omega, beta = sample_frequencies(config.kernel, config.width, self.d, count, draws.generator(*key))

        def embedded(sets: PointSet) -> Tensor:
            points = sets.points
            with torch.autocast(points.device.type, enabled=False):  # phases of many turns need float32
                whole = PointSet(points.float(), sets.weights.float())
                return embed(whole, alpha, omega.to(points.device), beta.to(points.device), config.reduce)

        return embedded
