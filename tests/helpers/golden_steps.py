"""Replay the five reference steps of sogclr and nuclr (tests/golden)."""

import math
from typing import Any

import torch
from torch import Tensor

from clipx import objectives
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from tests.golden import GOLDEN

PARAMETERS = {"sogclr": ("gamma",), "nuclr": ("gamma", "zeta0", "xi0", "eta", "freeze_steps")}


def run_steps(name: str) -> dict[str, float]:
    """Return the largest error of gradients, u, zeta and xi in each step; relative for u, else absolute."""
    golden = GOLDEN[name]
    objective = objectives.build({name: {key: golden[key] for key in PARAMETERS[name]}}, golden["n"])
    table = SampleTable(objective.columns, golden["n"], dtype=torch.float64)
    scale = torch.tensor(1 / golden["tau"], dtype=torch.float64)
    errors: dict[str, float] = {}
    for step in golden["steps"]:
        ids = torch.tensor(step["sample_id"])
        image, text = (double(step[side]).requires_grad_() for side in ("image", "text"))
        batch = Embeddings(image, text, scale, ids, torch.zeros_like(ids))
        loss = objective(batch, table.read(ids), Progress(step["step"], 5, 0, 1))
        loss.total.backward()  # type: ignore[no-untyped-call]
        table.write(ids, loss.rows)
        objective.end_step(table)
        at = f"step {step['step']} "
        for side, leaf in (("image", image), ("text", text)):
            assert leaf.grad is not None
            errors[f"{at}grad_{side}"] = difference(leaf.grad, double(step[f"grad_{side}"]))
        whole = table.whole()
        for side in ("image", "text"):
            log_u, seen = whole[f"{name}_log_u_{side}"], whole[f"{name}_seen"]
            found = [math.exp(x) if s else None for x, s in zip(log_u.tolist(), seen.tolist(), strict=True)]
            expected = step[f"u_{side}"]
            assert [u is None for u in found] == [u is None for u in expected]
            relative = [abs(a / b - 1) for a, b in zip(found, expected, strict=True) if a is not None]
            errors[f"{at}u_{side}"] = max(relative)
            if name == "nuclr":
                errors[f"{at}zeta_{side}"] = difference(whole[f"nuclr_zeta_{side}"], double(step[f"zeta_{side}"]))
                errors[f"{at}xi_{side}"] = abs(objective.state()[name][f"xi_{side}"] - step[f"xi_{side}"])
    return errors


def double(numbers: list[Any]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())
