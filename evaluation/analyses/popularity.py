"""Learned popularity (paper 3, claim 3.5): does NUCLR's zeta rise with the frequency of a concept?

Reads zeta from the sample table of a checkpoint and lists the captions with the largest and the smallest zeta. On
`scenes`, where the true popularity of each training sample is known, also computes Spearman's rank correlation.
"""

import json
import random
import sys
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
from evaluation.runs import results
from evaluation.types import Result

TASK = "popularity"
SIDES = ("text", "image")
MAX_CAPTIONS = 12  # with the largest zeta, and with the smallest
RESAMPLES = 500  # of the bootstrap
MAX_DRAWS = 4_000_000  # bootstrap indices in memory at once


def evaluate(checkpoint: Path, out: Path) -> list[Result]:
    """Write artifacts/popularity-DATA.json to `out`, add the correlations to its results, and return them.

    Samples that training never visited are ignored. Returns [] without zeta or true popularity. Prints a note and
    returns [] if the training data are missing.

    Args:
        checkpoint: a run directory or checkpoint folder.
        out: folder of the results.

    Raises:
        UserError: the checkpoint is missing or corrupt.
    """
    folder = checkpoints.resolve(checkpoint)
    manifest = checkpoints.verify(folder)
    sha = manifest["sha256"]
    columns = load_file(folder / checkpoints.TABLE) if checkpoints.TABLE in sha else {}
    if "nuclr_seen" not in columns:
        return []
    config = directory.load_config(folder.parent.parent)
    seen = columns["nuclr_seen"].nonzero().squeeze(1)
    zeta = {side: columns[f"nuclr_zeta_{side}"][seen] for side in SIDES}
    try:
        pairs, truth = open_pair_source(config.data), true_popularity(config)
    except UserError as error:
        print(f"popularity skipped, training data missing: {error}", file=sys.stderr)
        return []
    rows = []
    if truth is not None and len(truth) == len(columns["nuclr_seen"]):
        model = f"{config.name}/s{config.seed} step {manifest['step']}"
        hashes = {
            "checkpoint": sha[checkpoints.WEIGHTS][:16],
            "table": sha[checkpoints.TABLE][:16],
            "data": manifest["data"],
        }
        for side in SIDES:
            value, low, high = spearman_interval(zeta[side], truth[seen])
            names = TASK, config.data.name, config.data.split, f"zeta_{side}_spearman"
            rows.append(Result(*names, value, len(seen), low, high, 0.0, True, config.seed, model, hashes))
        results.add(out / "results.jsonl", rows)
        results.write_tables(out, results.read(out / "results.jsonl"))
        results.show(rows)
    artifact = _artifact(pairs, zeta, seen, truth)
    write_text(out / "artifacts" / f"{TASK}-{config.data.name}.json", json.dumps(artifact))
    return rows


def true_popularity(config: RunConfig) -> Tensor | None:
    """Return the probability of each training sample's main concept, float64 [n]; None if it is not known."""
    if config.data.source != "scenes" or not config.data.scenes.popularity_skew:
        return None
    shards = Shards.open(ensure_root_folder(config.data) / config.data.split, ("image", "txt", "json"))
    popularity = [json.loads(shards.read(i, "json"))["popularity"] for i in range(len(shards))]
    return torch.tensor(popularity, dtype=torch.float64)


def spearman_interval(x: Tensor, y: Tensor) -> tuple[float, float, float]:
    """Return Spearman's correlation of x [n] and y [n] with its 95% interval; 0 if one of them is constant.

    The interval is a bootstrap over samples; each sample keeps its rank among all samples.
    """
    from scipy.stats import rankdata  # slow import

    a, b = (torch.from_numpy(rankdata(values.numpy())) for values in (x, y))
    generator = torch.Generator().manual_seed(0)
    block = max(1, MAX_DRAWS // len(a))
    resampled = []
    for start in range(0, RESAMPLES, block):
        places = torch.randint(len(a), (min(block, RESAMPLES - start), len(a)), generator=generator)
        resampled.append(_pearson(a[places], b[places]))
    low, high = torch.cat(resampled).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return float(_pearson(a, b)), low, high


def _pearson(a: Tensor, b: Tensor) -> Tensor:
    """Return Pearson's correlation along the last dimension; 0 if one side is constant."""
    a, b = a - a.mean(dim=-1, keepdim=True), b - b.mean(dim=-1, keepdim=True)
    norm = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(norm > 0, (a * b).sum(dim=-1) / norm, 0.0)


def _artifact(pairs: PairSource, zeta: dict[str, Tensor], seen: Tensor, truth: Tensor | None) -> dict[str, Any]:
    """Return the report's data: captions with the largest and smallest zeta, mean zeta by true popularity."""
    order = zeta["text"].argsort(descending=True, stable=True)
    count = min(MAX_CAPTIONS, len(order) // 2)
    ends = {"most": order[:count], "least": order[len(order) - count :].flip(0)}
    captions = {}
    for end, places in ends.items():
        captions[end] = [
            {
                "caption": _caption(pairs, int(seen[place])),
                "popularity": None if truth is None else float(truth[seen[place]]),
                **{side: float(zeta[side][place]) for side in SIDES},
            }
            for place in places
        ]
    return {"kind": TASK, "captions": captions, "curve": {} if truth is None else _curve(zeta, truth[seen])}


def _curve(zeta: dict[str, Tensor], truth: Tensor) -> dict[str, list[float]]:
    """Return the mean zeta of the samples of each popularity, ascending."""
    values, group, count = truth.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    means = {side: torch.zeros(len(values)).index_add_(0, group, zeta[side]) / count for side in SIDES}
    return {"popularity": values.tolist(), **{side: mean.tolist() for side, mean in means.items()}}


def _caption(pairs: PairSource, sample_id: int) -> str:
    try:
        return pairs.pair(sample_id, random.Random(0))[1]
    except BadSample as error:  # damaged after training
        return f"({pairs.where(sample_id)}: {error})"
