"""Learned zeta against how often a concept occurs: only `scenes` with a popularity skew know the truth."""

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from clipx.config import ScenesConfig
from clipx.data.scenes.samples import training_sample
from clipx.errors import UserError
from evaluation.runs import Run
from evaluation.student import spearman

TABLE = "table.safetensors"  # per-sample columns of a checkpoint
SAMPLES = 2000  # that are looked at, evenly spaced in id


@dataclass(frozen=True)
class ZetaPopularity:
    """Rank correlation over training samples of NUCLR's zeta with the probability of the sample's concept."""

    def read(self, run: Run) -> dict[str, float]:
        """Of the images' and of the texts' zeta; {} for a run without zeta, without scenes or without skew."""
        config = _scenes(run)
        tables = sorted(run.path.glob(f"checkpoints/step_*/{TABLE}"))
        if config is None or not tables:
            return {}
        columns = _columns(tables[-1])
        if not {"nuclr_seen", "nuclr_zeta_image", "nuclr_zeta_text"} <= set(columns):
            return {}
        visited = columns["nuclr_seen"].nonzero()[:, 0]
        chosen = visited[:: max(1, len(visited) // SAMPLES)]
        truth = [float(training_sample(config, int(index)).facts["popularity"]) for index in chosen]
        return {
            f"zeta of {side}s": spearman(columns[f"nuclr_zeta_{side}"][chosen].tolist(), truth)
            for side in ("image", "text")
        }


def _scenes(run: Run) -> ScenesConfig | None:
    data = run.config.get("data") or {}
    knobs = data.get("scenes") or {}
    if data.get("source") != "scenes" or not knobs.get("popularity_skew"):
        return None
    return ScenesConfig(**{field.name: knobs[field.name] for field in fields(ScenesConfig) if field.name in knobs})


def _columns(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            return {name: torch.as_tensor(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors' own kind
        raise UserError(f"{path} is damaged ({error}): resume the run from its other checkpoint") from error
