"""Heads: map the outputs of the towers to one vector per sample; dot products of these vectors are similarities."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.schema import PointsConfig
from clipx.models.kernels import embed, sample_frequencies
from clipx.types import PointSet, Progress
from clipx.utils import rng
from clipx.utils.device import to_device

STREAM = 0x575053  # separates the frequencies from other random draws with the same (seed, step)
DRAWS = 5  # draws of the random features that an evaluation compares (paper 5, table 5)
Embed = Callable[[Any], Tensor]  # output of a tower -> [b, E] float32


class SinglePointHead:
    """CLIP: one point per sample; `normalise` says when it gets unit length: "always", in "evaluation" or "never"."""

    draws = 1  # number of embedding functions that an evaluation compares

    def __init__(self, normalise: str) -> None:
        self.cosine = normalise != "never"  # True if an evaluation compares vectors of unit length
        self.normalise = normalise

    def training(self, progress: Progress) -> Embed:
        """Return the embedding function of a training step."""
        return _unit_length if self.normalise == "always" else Tensor.float

    def evaluation(self, draw: int) -> Embed:
        """Return the embedding function for evaluation, `draw` in 0..draws-1."""
        return _unit_length if self.cosine else Tensor.float

    def provenance(self) -> dict[str, str]:
        """Return the settings that change embeddings, besides weights and architecture; empty for cosine similarity."""
        return {} if self.cosine else {"similarity": "dot product"}


def _unit_length(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1)


class KernelHead:
    """Weighted point sets under a kernel, approximated by random Fourier features.

    Training draws new frequencies in each step from (seed, step). They are equal on all ranks without communication,
    and after a resume. Evaluation uses fixed frequencies, the same for all runs.
    """

    cosine = False

    def __init__(self, config: PointsConfig, d: int, seed: int) -> None:
        self.config, self.d, self.seed = config, d, seed
        self.linear = config.kernel == "linear"
        self.alpha = (1.0, 0.0) if self.linear else tuple(config.alpha)
        self.draws = 1 if self.linear else DRAWS

    def training(self, progress: Progress) -> Embed:
        return self._embed((self.seed, progress.step, STREAM), self.config.features_train)

    def evaluation(self, draw: int) -> Embed:
        return self._embed((draw, STREAM), self.config.features_eval)

    def provenance(self) -> dict[str, str]:
        settings = asdict(self.config)
        if self.config.weights == "sigmoid":
            settings["weights"] = "sigmoid,padding=0"  # masked padding had a weight in earlier versions
        return {"points": " ".join(f"{key}={value}" for key, value in settings.items())}

    def _embed(self, key: tuple[int, ...], count: int) -> Embed:
        config, alpha = self.config, self.alpha
        if self.linear:
            omega, beta = torch.empty(0, self.d), torch.empty(0)
        else:
            omega, beta = sample_frequencies(config.kernel, config.width, self.d, count, rng.generator(*key))

        def embed_sets(sets: PointSet) -> Tensor:
            device = sets.points.device
            with torch.autocast(device.type, enabled=False):  # phases span many periods and need float32
                sets = PointSet(sets.points.float(), sets.weights.float())
                return embed(sets, alpha, to_device(omega, device), to_device(beta, device), config.reduce)

        return embed_sets


Head = SinglePointHead | KernelHead
