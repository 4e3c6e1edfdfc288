"""The zeta that NUCLR's objective asks for: the optimum of paper 3's eq. (5) for the final features of a model.

For images o_i and texts a_j with similarity e, the optimal zeta of the texts solves eq. (6),

    exp(zeta_j / tau) = sum_i exp(e_ij / tau) / sum_k exp((e_ik - zeta_k) / tau)

This is Sinkhorn's problem: 1/P_i and exp(-zeta_j / tau) scale rows and columns of exp(e / tau) to sums of 1. P_i, the
inner sum, is exp(zeta_i / tau) of the images, which solves (6) with rows and columns exchanged. One iteration gives
both sides, each up to a constant.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL.Image import Image
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import BadSample, decode
from clipx.data.sources.base import PairSource
from clipx.errors import UserError
from clipx.models.temperature import build_temperature
from clipx.run import checkpoint as checkpoints
from clipx.types import Progress
from clipx.utils.files import content_hash
from evaluation.datasets.images import Images
from evaluation.embedding.features import Loading, extract
from evaluation.types import Encoder, FeatureRequest, Kind, View

MAX_PAIRS = 10_000  # a random part of larger data sets: the kernel has MAX_PAIRS^2 float32 values, 400 MB
SWEEPS, TOLERANCE = 500, 1e-5  # of the iteration; float32 reaches about 1e-6
PREFIX = "temperature."  # of the temperature's weights in a checkpoint
END = Progress(step=1, total_steps=2, epoch=1, total_epochs=2)  # the last step of a run, for temperature schedules


def optimal_zeta(image: Tensor, text: Tensor, tau: float) -> dict[str, Tensor]:
    """Return the zeta [n] that solves (6) for the texts and the images, each up to a constant, in float64.

    Args:
        image, text: features [n, E] of n pairs; the similarity is their dot product.
        tau: temperature.
    """
    from clipx.theory.paper3.popularity import fixed_point  # slow import

    s = image.float() @ text.float().T
    # Kernel values of at most 1, with an exact 1 in every row and column: no overflow and no empty sum at any tau.
    row = s.amax(dim=1, keepdim=True)
    column = s.sub_(row).amax(dim=0, keepdim=True)
    kernel = s.sub_(column).div_(tau).exp_().numpy()
    q, _ = fixed_point(kernel, SWEEPS, TOLERANCE)
    P = kernel @ (1 / q)
    log_q, log_P = (torch.from_numpy(sums).double().log() for sums in (q, P))
    return {"text": tau * log_q + column[0].double(), "image": tau * log_P + row[:, 0].double()}


def final_tau(config: RunConfig, checkpoint: Path) -> float:
    """Return the temperature at the end of the run."""
    temperature = build_temperature(config.temperature)
    weights = load_file(checkpoint / checkpoints.WEIGHTS)
    own = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
    temperature.load_state_dict(own)
    return 1 / float(temperature(END))


def training_features(
    encoder: Encoder, pairs: PairSource, ids: Sequence[int], cache_dir: Path, loading: Loading
) -> tuple[Tensor, Tensor]:
    """Return the features [len(ids), E] of the images and captions of training samples, without augmentation.

    Raises UserError: a sample cannot be read, or a feature is not finite.
    """
    dataset = TrainingPairs(pairs, ids)
    views: tuple[View, View] = ("images", "captions")
    requests = [FeatureRequest(dataset.name, dataset.splits[0], view) for view in views]
    features = extract(encoder, {dataset.name: dataset}, requests, cache_dir, loading)
    return features[requests[0]], features[requests[1]]


class TrainingPairs:
    """Training samples as an evaluation set, each with one caption."""

    name = "training pairs"
    kind: Kind = "captioned"
    splits: tuple[str, ...] = ("train",)

    def __init__(self, pairs: PairSource, ids: Sequence[int]) -> None:
        self._images = _PairImages(pairs, ids)
        self._digest = content_hash([pairs.fingerprint, list(ids)])

    def images(self, split: str) -> Images:
        return self._images

    def texts(self, split: str, view: View) -> list[str]:
        return [self._images.pair(index)[1] for index in range(len(self._images))]

    def fingerprint(self, split: str, view: View) -> str:
        return self._digest


class _PairImages(Images):
    def __init__(self, pairs: PairSource, ids: Sequence[int]) -> None:
        self.pairs, self.ids = pairs, ids

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, index: int) -> Image:
        try:
            return decode(self.pair(index)[0])
        except BadSample as error:
            raise UserError(f"{self.pairs.where(self.ids[index])}: {error}") from error

    def pair(self, index: int) -> tuple[bytes, str]:
        """Return image and caption; the same caption in every call. Raises UserError if one is unusable."""
        try:
            return self.pairs.pair(self.ids[index], random.Random(self.ids[index]))
        except BadSample as error:
            raise UserError(f"{self.pairs.where(self.ids[index])}: {error}") from error
