"""Learned popularity (paper 3; claims 3.5, 3.10, 3.11): NUCLR's zeta against its optimum and the true popularity.

zeta is NUCLR's learned log-popularity of each training text and image, stored in the sample table of a checkpoint.
Computes Spearman's rank correlation, for SIDE text and image, of

    zeta_SIDE_sinkhorn_spearman   zeta with its optimum by eq. (5) for the model's final features
    zeta_SIDE_spearman            zeta with the true popularity
    sinkhorn_SIDE_spearman        the optimum with the true popularity

Only the data set `scenes` with a popularity_skew has a true popularity. Also lists the captions with the largest and
the smallest zeta.

The optimal zeta is the minimum of eq. (5). For n images o_i and n texts a_j with similarities e_ij, and with
z_j = zeta_j / tau, eq. (5) is, up to constants, the convex function

    f(z) = sum_i log sum_j exp(e_ij / tau - z_j) + sum_j z_j

Its gradient is 1 - sum_i p_ij with p_ij = exp(e_ij / tau - z_j) / P_i and P_i = sum_j exp(e_ij / tau - z_j). Setting
the gradient to 0 gives eq. (6) for the texts. Eq. (6) for the images has rows and columns exchanged; z_i = log P_i
solves it, so tau log P_i is the optimal zeta of image i.

`clipx theory popularity` solves eq. (6) by Sinkhorn's iteration, which scales rows and columns in turn. Here Sinkhorn's
iteration only gives a start for Newton's method: alone, it needs 10^5 sweeps or more where concepts hardly overlap. In
an example with clustered features, zeta had a rank correlation of 0.1 with popularity after 500 sweeps, and of 0.97 at
the optimum. Newton's method needs about five steps there, and 15 in hard cases.
"""

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import BadSample
from clipx.data.shards.reader import Shards
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import ensure_root_folder, open_pair_source
from clipx.errors import UserError
from clipx.models.temperature import TEMPERATURE_PREFIX, build_temperature
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import ARTIFACTS, RESULTS, RunFolder
from clipx.utils.files import write_text
from evaluation import metrics
from evaluation.datasets.files import SourceImages
from evaluation.datasets.kinds import Captioned, draw
from evaluation.embedding.features import Loading, extract
from evaluation.runs import results
from evaluation.types import DEFAULTS, Encoder, FeatureRequest, Result, View

Array = NDArray[np.float64]
TASK = "popularity"
SIDES = ("text", "image")
MAX_CAPTIONS = 12  # listed with the largest zeta, and as many with the smallest
RESAMPLES = 500  # of the bootstrap
MAX_PAIRS = 2_000  # drawn from larger data sets: a Newton step takes 3 MAX_PAIRS^3 operations, about a second
SWEEPS = 20  # of Sinkhorn's iteration
STEPS = 100  # largest number of Newton steps
TOLERANCE = 1e-11  # largest |1 - sum_i p_ij| at the optimum
LEAST_CONDITION = 1e-13  # smallest reciprocal condition number of `curvature` that float64 resolves
NAME = "training pairs"  # of the data set whose features are computed


def evaluate(checkpoint: Path, out: Path, encoder: Encoder, loading: Loading, force: bool = False) -> list[Result]:
    """Add the correlations to `out`/results.jsonl, write `out`/artifacts/popularity-DATA.json, and return the rows.

    Samples that training never visited are ignored. Returns [] for a run without zeta. Prints a note and returns [] if
    training data are missing, damaged or others than in training.

    Args:
        checkpoint: a run directory or checkpoint folder.
        out: folder of the results. If it stores rows with the same hashes, they are returned.
        force: measure even if `out` stores the rows; cached embeddings are still used.

    Raises UserError: the checkpoint is missing or corrupt.
    """
    folder = checkpoints.resolve(checkpoint)
    manifest = checkpoints.verify(folder, checkpoints.TABLE)
    if checkpoints.TABLE not in (sha := manifest["sha256"]):
        return []
    columns = load_file(folder / checkpoints.TABLE)
    seen = columns.get("nuclr_seen", torch.empty(0)).nonzero().squeeze(1)
    if len(seen) < 2:
        return []
    hashes = encoder.provenance | {"table": sha[checkpoints.TABLE][:16], "data": manifest["data"]}
    path = out / RESULTS
    stored = [row for row in results.read(path) if row.task == TASK and row.hashes == hashes]
    if stored and not force:
        return stored
    zeta = {side: columns[f"nuclr_zeta_{side}"] for side in SIDES}
    config = RunFolder.of_checkpoint(folder).load_config()
    try:
        pairs, tau = open_pair_source(config.data), final_tau(config, folder)
        if pairs.fingerprint != manifest["data"]:
            raise UserError(f"trained on other data (fingerprint {manifest['data']}, now {pairs.fingerprint})")
        rows, artifact = _measure(config, pairs, tau, zeta, seen, encoder, loading)
    except UserError as error:
        print(f"popularity skipped: {error}", file=sys.stderr)
        return []
    rows = [replace(row, model=encoder.name, seed=encoder.seed, hashes=hashes) for row in rows]
    results.add(path, rows)
    results.write_tables(out)
    results.show(rows)
    write_text(out / ARTIFACTS / f"{TASK}-{config.data.name}.json", json.dumps(artifact))
    return rows


def _measure(
    config: RunConfig,
    pairs: PairSource,
    tau: float,
    all_zeta: dict[str, Tensor],
    seen: Tensor,
    encoder: Encoder,
    loading: Loading,
) -> tuple[list[Result], dict[str, Any]]:
    """Return the rows and the artifact. Raises UserError: training data are missing or damaged."""
    truth = true_popularity(config)
    zeta = {side: column[seen] for side, column in all_zeta.items()}
    popularity = truth[seen] if truth is not None and len(truth) == len(all_zeta["text"]) else None
    compared = torch.tensor(draw(len(seen), MAX_PAIRS))
    features = training_features(encoder, pairs, seen[compared].tolist(), loading)
    try:
        optimum = optimal_zeta(*features, tau)
    except UserError as error:
        print(f"popularity: {error}", file=sys.stderr)
        optimum = {}
    found: list[tuple[str, Tensor, Tensor]] = []
    for side in SIDES:
        if popularity is not None:
            found.append((f"zeta_{side}_spearman", zeta[side], popularity))
        if side in optimum:
            found.append((f"zeta_{side}_sinkhorn_spearman", zeta[side][compared], optimum[side]))
            if popularity is not None:
                found.append((f"sinkhorn_{side}_spearman", optimum[side], popularity[compared]))
    rows = []
    for metric, x, y in found:
        value, low, high = spearman_interval(x, y)
        rows.append(Result(TASK, config.data.name, config.data.split, metric, value, len(x), low, high, 0.0, True))
    return rows, _artifact(pairs, zeta, seen, popularity)


def true_popularity(config: RunConfig) -> Tensor | None:
    """Return the probability of each training sample's main concept, float64 [n]; None if it is not known."""
    if config.data.source != "scenes" or not config.data.scenes.popularity_skew:
        return None
    shards = Shards.open(ensure_root_folder(config.data) / config.data.split, ("image", "txt", "json"))
    popularity = [json.loads(shards.read(i, "json"))["popularity"] for i in range(len(shards))]
    return torch.tensor(popularity, dtype=torch.float64)


def spearman_interval(x: Tensor, y: Tensor) -> tuple[float, float, float]:
    """Return Spearman's correlation of x [n] and y [n] with its 95% interval; 0 if x or y is constant.

    The interval is a bootstrap over samples; each sample keeps its rank among all samples.
    """
    from scipy.stats import rankdata  # slow import

    a, b = (torch.from_numpy(rankdata(values.numpy())) for values in (x, y))
    generator = torch.Generator().manual_seed(0)
    block = max(1, metrics.DRAWS // len(a))
    resampled = []
    for start in range(0, RESAMPLES, block):
        drawn = torch.randint(len(a), (min(block, RESAMPLES - start), len(a)), generator=generator)
        resampled.append(_pearson(a[drawn], b[drawn]))
    return float(_pearson(a, b)), *metrics.percentile_interval(torch.cat(resampled))


def _pearson(a: Tensor, b: Tensor) -> Tensor:
    """Return Pearson's correlation along the last dimension; 0 if a or b is constant."""
    a, b = a - a.mean(dim=-1, keepdim=True), b - b.mean(dim=-1, keepdim=True)
    norm = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(norm > 0, (a * b).sum(dim=-1) / norm, 0.0)


def _artifact(pairs: PairSource, zeta: dict[str, Tensor], seen: Tensor, popularity: Tensor | None) -> dict[str, Any]:
    """Return the report's data: captions with the largest and smallest zeta, mean zeta by true popularity.

    `zeta` and `popularity` [n] belong to the samples with the ids `seen` [n].
    """
    order = zeta["text"].argsort(descending=True, stable=True)
    count = min(MAX_CAPTIONS, len(order) // 2)
    ends = {"most": order[:count], "least": order[len(order) - count :].flip(0)}
    captions = {}
    for end, indices in ends.items():
        captions[end] = [
            {
                "caption": _caption(pairs, int(seen[index])),
                "popularity": None if popularity is None else float(popularity[index]),
                **{side: float(zeta[side][index]) for side in SIDES},
            }
            for index in indices
        ]
    return {"kind": TASK, "captions": captions, "curve": {} if popularity is None else _curve(zeta, popularity)}


def _curve(zeta: dict[str, Tensor], truth: Tensor) -> dict[str, list[float]]:
    """Return the true popularities in ascending order, each with the mean zeta of its samples."""
    values, group, count = truth.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    means = {side: torch.zeros(len(values)).index_add_(0, group, zeta[side]) / count for side in SIDES}
    return {"popularity": values.tolist(), **{side: mean.tolist() for side, mean in means.items()}}


def _caption(pairs: PairSource, sample_id: int) -> str:
    try:
        return pairs.pair(sample_id, random.Random(0))[1]
    except BadSample as error:  # damaged after training
        return f"({pairs.where(sample_id)}: {error})"


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
    own = [name for name in weights if name.startswith(TEMPERATURE_PREFIX)]
    temperature.load_state_dict({name.removeprefix(TEMPERATURE_PREFIX): weights[name] for name in own})
    return 1 / float(temperature(checkpoints.progress_of(checkpoint, config)).detach())


def training_features(
    encoder: Encoder, pairs: PairSource, ids: Sequence[int], loading: Loading
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
    dataset = Captioned(NAME, NAME, "train", SourceImages(pairs, list(ids)), captions, DEFAULTS)
    views: tuple[View, View] = ("images", "captions")
    requests = [FeatureRequest(NAME, "train", view) for view in views]
    features = extract(encoder, {NAME: dataset}, requests, loading, alone=True)
    return features[requests[0]], features[requests[1]]
