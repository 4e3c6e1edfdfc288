"""Optimal zeta of NUCLR: the minimum of paper 3's eq. (5) for the final features of a model.

For n images o_i and n texts a_j with similarities e_ij, and with z_j = zeta_j / tau, eq. (5) is, up to constants, the
convex function

    f(z) = sum_i log sum_j exp(e_ij / tau - z_j) + sum_j z_j

Its gradient is 1 - sum_i p_ij with p_ij = exp(e_ij / tau - z_j) / P_i and P_i = sum_j exp(e_ij / tau - z_j). Setting
the gradient to 0 gives eq. (6) for the texts. Eq. (6) for the images has rows and columns exchanged; z_i = log P_i
solves it, so tau log P_i is the optimal zeta of image i.

`clipx theory popularity` solves eq. (6) by Sinkhorn's iteration, which scales rows and columns in turn. Here Sinkhorn's
iteration only gives a start for Newton's method: alone, it needs 10^5 sweeps or more where concepts hardly overlap. In
an example with clustered features, zeta had a rank correlation of 0.1 with popularity after 500 sweeps, and of 0.97 at
the optimum. Newton's method needs about five steps there, and 15 in hard cases.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import BadSample
from clipx.data.sources.base import PairSource
from clipx.errors import UserError
from clipx.models.temperature import TEMPERATURE_PREFIX, build_temperature
from clipx.run import checkpoint as checkpoints
from evaluation.datasets.captioned import SourceImages
from evaluation.datasets.kinds import Captioned
from evaluation.embedding.features import Loading, extract
from evaluation.types import DEFAULTS, Encoder, FeatureRequest, View

Array = NDArray[np.float64]
MAX_PAIRS = 2_000  # drawn from larger data sets: a Newton step takes 3 MAX_PAIRS^3 operations, about a second
SWEEPS = 20  # of Sinkhorn's iteration
STEPS = 100  # largest number of Newton steps
TOLERANCE = 1e-11  # largest |1 - sum_i p_ij| at the optimum
LEAST_CONDITION = 1e-13  # smallest reciprocal condition number of `curvature` that float64 resolves
NAME = "training pairs"  # of the data set whose features are computed


def optimal_zeta(image: Tensor, text: Tensor, tau: float) -> dict[str, Tensor]:
    """Return the optimal zeta [n] of the texts and of the images, each up to a constant, in float64.

    `image` and `text` are the features [n, E] of n pairs; their similarity is the dot product.

    Raises UserError: float64 does not determine the optimum, because samples hardly resemble each other at this tau.
    """
    from clipx.theory.paper3 import fixed_point  # slow import

    log_kernel = (image.double() @ text.double().T).numpy() / tau
    # Sinkhorn's kernel has values of at most 1, with a 1 in every row and column: no overflow and no empty sum.
    scaled = log_kernel - log_kernel.max(axis=1, keepdims=True)
    column = scaled.max(axis=0)
    q, _ = fixed_point(np.exp(scaled - column), SWEEPS)
    z, condition = minimise(log_kernel, np.log(q) + column)
    if condition < LEAST_CONDITION:
        raise UserError(f"the optimal zeta is not determined at tau={tau:g}: samples hardly resemble each other")
    _, log_P = probabilities(log_kernel, z)
    return {"text": torch.from_numpy(tau * z), "image": torch.from_numpy(tau * log_P)}


def minimise(log_kernel: Array, z: Array) -> tuple[Array, float]:
    """Minimise f by Newton's method, from e_ij / tau [n, n] and a start z [n].

    Returns the optimum [n], and the reciprocal condition number of `curvature` there; 0 if there is no convergence.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack  # slow import

    p, log_P = probabilities(log_kernel, z)
    value, condition = float(log_P.sum() + z.sum()), 0.0
    for _ in range(STEPS):
        gradient = 1 - p.sum(axis=0)
        # f is the same for z + constant, so its second derivatives are singular; 1/n fixes the constant.
        curvature = np.diag(p.sum(axis=0)) - p.T @ p + 1 / len(z)
        try:
            factor, lower = cho_factor(curvature, lower=True)
        except LinAlgError:
            return z, 0.0
        condition = float(lapack.dpocon(factor, np.abs(curvature).sum(axis=0).max(), uplo="L")[0])
        if np.abs(gradient).max() < TOLERANCE or condition < LEAST_CONDITION:
            break
        step = cho_solve((factor, lower), -gradient)
        least, length = 1e-4 * float(gradient @ step), 1.0  # Armijo's rule; `least` is negative
        while True:
            p, log_P = probabilities(log_kernel, z + length * step)
            reached = float(log_P.sum() + (z + length * step).sum())
            if reached <= value + length * least + 1e-12 * abs(value):  # the last term allows for rounding
                break
            length /= 2
        z, value = z + length * step, reached
    else:
        return z, 0.0
    return z, condition


def probabilities(log_kernel: Array, z: Array) -> tuple[Array, Array]:
    """Return p_ij [n, n] and log P_i [n]."""
    p = log_kernel - z
    largest = p.max(axis=1, keepdims=True)
    np.exp(p - largest, out=p)
    P = p.sum(axis=1, keepdims=True)
    p /= P
    return p, (np.log(P) + largest)[:, 0]


def final_tau(config: RunConfig, checkpoint: Path) -> float:
    """Return the temperature at the last step before a checkpoint."""
    temperature = build_temperature(config.temperature)
    weights = load_file(checkpoint / checkpoints.WEIGHTS)
    state = {
        name.removeprefix(TEMPERATURE_PREFIX): value
        for name, value in weights.items()
        if name.startswith(TEMPERATURE_PREFIX)
    }
    temperature.load_state_dict(state)
    return 1 / float(temperature(checkpoints.progress_of(checkpoint, config)).detach())


def training_features(
    encoder: Encoder, pairs: PairSource, ids: Sequence[int], cache_dir: Path, loading: Loading
) -> tuple[Tensor, Tensor]:
    """Return the features [len(ids), E] of the images and captions of training samples, without augmentation.

    Raises UserError: a sample cannot be read, or a feature is not finite.
    """
    captions = []
    for i in ids:
        try:
            captions.append([pairs.caption(i, random.Random(i))])
        except BadSample as error:
            raise UserError(f"{pairs.where(i)}: {error}") from error
    dataset = Captioned(NAME, NAME, "train", SourceImages(NAME, pairs, list(ids)), captions, DEFAULTS)
    views: tuple[View, View] = ("images", "captions")
    requests = [FeatureRequest(NAME, "train", view) for view in views]
    features = extract(encoder, {NAME: dataset}, requests, cache_dir, loading)
    return features[requests[0]], features[requests[1]]
