"""Learned popularities (paper 3): do NUCLR's zeta rise with how often a concept occurs? (claim 3.5)

Reads zeta from the sample table of a run's checkpoint. On `scenes`, where the true popularity of each
training sample is known, gives Spearman's rank correlation; on any data, the captions with most and least.
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
from clipx.run import checkpoint as state
from clipx.run import directory
from clipx.utils.files import write_text
from evaluation.runs import results
from evaluation.types import Result

TASK = "popularity"
SIDES = ("text", "image")
SHOWN = 12  # captions of either end
RESAMPLES = 500
DRAWS = 4_000_000  # bootstrap indices drawn at once


def evaluate(checkpoint: Path, out: Path) -> list[Result]:
    """Adds rows to the results of `out` (scenes) and writes artifacts/popularity-<data>.json; [] without zeta.

    Samples that were never visited are left out. Where the training data are not there, says so and does nothing.

    Args:
        checkpoint: a run directory or checkpoint folder.
        out: where the results go.

    Raises:
        UserError: no or a damaged checkpoint.
    """
    folder = state.resolve(checkpoint)
    manifest = state.verify(folder)
    columns = load_file(folder / state.TABLE) if state.TABLE in manifest["sha256"] else {}
    if "nuclr_seen" not in columns:
        return []
    config = directory.load_config(folder.parent.parent)
    seen = columns["nuclr_seen"].nonzero().squeeze(1)
    zeta = {side: columns[f"nuclr_zeta_{side}"][seen] for side in SIDES}
    try:
        pairs, truth = open_pair_source(config.data), true_popularity(config)
    except UserError as error:
        print(f"popularity is left out, as the training data are not here: {error}", file=sys.stderr)
        return []
    rows = []
    if truth is not None and len(truth) == len(columns["nuclr_seen"]):
        model = f"{config.name}/s{config.seed} step {manifest['step']}"
        sha = manifest["sha256"]
        hashes = {"checkpoint": sha[state.WEIGHTS][:16], "table": sha[state.TABLE][:16], "data": manifest["data"]}
        rows = [_row(config, side, zeta[side], truth[seen], model, hashes) for side in SIDES]
        results.add(out / "results.jsonl", rows)
        results.write_tables(out, results.read(out / "results.jsonl"))
        results.show(rows)
    artifact = _artifact(pairs, zeta, seen, truth)
    write_text(out / "artifacts" / f"{TASK}-{config.data.name}.json", json.dumps(artifact))
    return rows


def true_popularity(config: RunConfig) -> Tensor | None:
    """float64 [n]: the probability of each training sample's main concept; None if the data do not say."""
    if config.data.source != "scenes" or not config.data.scenes.popularity_skew:
        return None
    shards = Shards.open(ensure_root_folder(config.data) / config.data.split, ("image", "txt", "json"))
    truth = [json.loads(shards.read(i, "json"))["popularity"] for i in range(len(shards))]
    return torch.tensor(truth, dtype=torch.float64)


def ranks(values: Tensor) -> Tensor:
    """float64 [n]: 0 for the smallest; ties share the mean of their places."""
    _, group, count = values.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    last = count.cumsum(0).double()
    return ((last - count + last - 1) / 2)[group]  # type: ignore[no-any-return]


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's along the last dimension; 0 where one of them is constant."""
    a, b = a - a.mean(dim=-1, keepdim=True), b - b.mean(dim=-1, keepdim=True)
    norm = a.norm(dim=-1) * b.norm(dim=-1)
    return torch.where(norm > 0, (a * b).sum(dim=-1) / norm, 0.0)


def _row(config: RunConfig, side: str, zeta: Tensor, truth: Tensor, model: str, hashes: dict[str, str]) -> Result:
    """Spearman's correlation with a bootstrap interval over samples, whose ranks are kept."""
    a, b = ranks(zeta), ranks(truth)
    generator = torch.Generator().manual_seed(0)
    block = max(1, DRAWS // len(a))
    drawn = []
    for start in range(0, RESAMPLES, block):
        chosen = torch.randint(len(a), (min(block, RESAMPLES - start), len(a)), generator=generator)
        drawn.append(correlation(a[chosen], b[chosen]))
    low, high = torch.cat(drawn).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Result(
        task=TASK,
        dataset=config.data.name,
        split=config.data.split,
        metric=f"zeta_{side}_spearman",
        value=float(correlation(a, b)),
        n=len(a),
        low=low,
        high=high,
        chance=0.0,
        higher_is_better=True,
        seed=config.seed,
        model=model,
        hashes=hashes,
    )


def _artifact(pairs: PairSource, zeta: dict[str, Tensor], seen: Tensor, truth: Tensor | None) -> dict[str, Any]:
    """What the report draws: captions of either end, and mean zeta by true popularity."""
    order = zeta["text"].argsort(descending=True, stable=True)
    few = min(SHOWN, len(order) // 2)
    ends = {"most": order[:few], "least": order[len(order) - few :].flip(0)}
    captions = {}
    for end, chosen in ends.items():
        captions[end] = [
            {
                "caption": _caption(pairs, int(seen[k])),
                "popularity": None if truth is None else float(truth[seen[k]]),
                **{side: float(zeta[side][k]) for side in SIDES},
            }
            for k in chosen
        ]
    return {"kind": TASK, "captions": captions, "curve": {} if truth is None else _curve(zeta, truth[seen])}


def _curve(zeta: dict[str, Tensor], truth: Tensor) -> dict[str, list[float]]:
    """Mean zeta of the samples of each popularity, ascending."""
    values, group, count = truth.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    means = {side: torch.zeros(len(values)).index_add_(0, group, zeta[side]) / count for side in SIDES}
    return {"popularity": values.tolist(), **{side: mean.tolist() for side, mean in means.items()}}


def _caption(pairs: PairSource, sample_id: int) -> str:
    try:
        return pairs.pair(sample_id, random.Random(0))[1]
    except BadSample as error:  # visited in training, damaged since
        return f"({pairs.where(sample_id)}: {error})"
