"""Learned popularity (paper 3; claims 3.5, 3.10, 3.11): NUCLR's zeta against its optimum and the true popularity.

zeta is NUCLR's learned log-popularity of each training text and image, stored in the sample table of a checkpoint.
Computes Spearman's rank correlation, for SIDE text and image, of

    zeta_SIDE_sinkhorn_spearman   zeta with its optimum by eq. (5) for the model's final features (zeta_optimum.py)
    zeta_SIDE_spearman            zeta with the true popularity
    sinkhorn_SIDE_spearman        the optimum with the true popularity

Only the data set `scenes` with a popularity_skew has a true popularity. Also lists the captions with the largest and
the smallest zeta.
"""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx.config.schema import RunConfig
from clipx.data.preprocess.images import BadSample
from clipx.data.shards.reader import Shards
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import ensure_root_folder, open_pair_source
from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run import directory
from clipx.utils.files import write_text
from evaluation import metrics
from evaluation.analyses import zeta_optimum
from evaluation.embedding.features import Loading
from evaluation.runs import results
from evaluation.types import Encoder, Result

TASK = "popularity"
SIDES = ("text", "image")
MAX_CAPTIONS = 12  # listed with the largest zeta, and as many with the smallest
RESAMPLES = 500  # of the bootstrap


def evaluate(
    checkpoint: Path, out: Path, encoder: Encoder, cache_dir: Path, loading: Loading, force: bool = False
) -> list[Result]:
    """Add the correlations to `out`/results.jsonl, write `out`/artifacts/popularity-DATA.json, and return the rows.

    Samples that training never visited are ignored. Returns [] for a run without zeta. Prints a note and returns [] if
    training data are missing or damaged.

    Args:
        checkpoint: a run directory or checkpoint folder.
        out: folder of the results. If it stores rows with the same hashes, they are returned.
        force: measure even if `out` stores the rows; cached embeddings are still used.

    Raises UserError: the checkpoint is missing or corrupt.
    """
    folder = checkpoints.resolve(checkpoint)
    sha = checkpoints.read_manifest(folder)["sha256"]
    if checkpoints.TABLE not in sha:
        return []
    manifest = checkpoints.verify(folder, checkpoints.TABLE)
    columns = load_file(folder / checkpoints.TABLE)
    seen = columns.get("nuclr_seen", torch.empty(0)).nonzero().squeeze(1)
    if len(seen) < 2:
        return []
    hashes = encoder.provenance | {"table": sha[checkpoints.TABLE][:16], "data": manifest["data"]}
    path = out / results.RESULTS
    stored = [row for row in results.read(path) if row.task == TASK and row.hashes == hashes]
    if stored and not force:
        return stored
    zeta = {side: columns[f"nuclr_zeta_{side}"] for side in SIDES}
    config = directory.load_config(checkpoints.run_of(folder))
    try:
        tau = zeta_optimum.final_tau(config, folder)
        rows, artifact = _measure(config, tau, zeta, seen, encoder, cache_dir, loading)
    except UserError as error:
        print(f"popularity skipped, training data missing or damaged: {error}", file=sys.stderr)
        return []
    rows = [replace(row, model=encoder.name, seed=encoder.seed, hashes=hashes) for row in rows]
    results.add(path, rows)
    results.write_tables(out)
    results.show(rows)
    write_text(out / "artifacts" / f"{TASK}-{config.data.name}.json", json.dumps(artifact))
    return rows


def _measure(
    config: RunConfig,
    tau: float,
    all_zeta: dict[str, Tensor],
    seen: Tensor,
    encoder: Encoder,
    cache_dir: Path,
    loading: Loading,
) -> tuple[list[Result], dict[str, Any]]:
    """Return the rows and the artifact. Raises UserError: training data are missing or damaged."""
    pairs, truth = open_pair_source(config.data), true_popularity(config)
    zeta = {side: column[seen] for side, column in all_zeta.items()}
    popularity = truth[seen] if truth is not None and len(truth) == len(all_zeta["text"]) else None
    compared = subset(len(seen))
    features = zeta_optimum.training_features(encoder, pairs, seen[compared].tolist(), cache_dir, loading)
    try:
        optimum = zeta_optimum.optimal_zeta(*features, tau)
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


def subset(n: int) -> Tensor:
    """Return the indices of the samples to compare with the optimum: all n, or MAX_PAIRS random ones, ascending."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return order[: zeta_optimum.MAX_PAIRS].sort().values


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
