"""Replay the five reference steps of sogclr and nuclr (tests/golden), on one process or as one rank of several."""

import math

import torch
from torch import Tensor

from clipx import distributed, objectives
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from tests.golden import GOLDEN

PARAMETERS = {"sogclr": ("gamma",), "nuclr": ("gamma", "zeta0", "xi0", "eta", "freeze_steps")}


def golden_objective(name: str) -> Objective:
    golden = GOLDEN[name]
    return objectives.build({name: {key: golden[key] for key in PARAMETERS[name]}}, golden["n"])


def run_steps(name: str) -> dict[str, float]:
    """Return the largest error of each quantity in each step: gradients of this rank's part, u, zeta and xi.

    Errors of u are relative, the others absolute. u and zeta are gathered on rank 0, so only rank 0 returns their
    errors.
    """
    golden, objective = GOLDEN[name], golden_objective(name)
    table = SampleTable(objective.columns, golden["n"], dtype=torch.float64)
    scale = torch.tensor(1 / golden["tau"], dtype=torch.float64)
    errors: dict[str, float] = {}
    for step in golden["steps"]:
        ids = torch.tensor(step["sample_id"])
        image, text = (local_part(step[side]).requires_grad_() for side in ("image", "text"))
        batch = Embeddings(distributed.gather(image), distributed.gather(text), scale, ids, torch.zeros_like(ids))
        loss = objective(batch, table.read(ids), Progress(step["step"], 5, 0, 1))
        loss.total.backward()  # type: ignore[no-untyped-call]
        table.write(ids, loss.rows)
        objective.end_step(table)
        at = f"step {step['step']} "
        for side, leaf in (("image", image), ("text", text)):
            assert leaf.grad is not None
            gradient = leaf.grad / distributed.world_size()  # as DDP averages
            errors[f"{at}grad_{side}"] = difference(gradient, local_part(step[f"grad_{side}"]))
        whole = table.whole()
        for side in ("image", "text") if whole else ():
            log_u, seen = whole[f"{name}_log_u_{side}"], whole[f"{name}_seen"]
            found = [math.exp(x) if s else None for x, s in zip(log_u.tolist(), seen.tolist(), strict=True)]
            expected = step[f"u_{side}"]
            assert [u is None for u in found] == [u is None for u in expected]
            relative = [abs(a / b - 1) for a, b in zip(found, expected, strict=True) if a is not None]
            errors[f"{at}u_{side}"] = max(relative)
            if name == "nuclr":
                zeta = torch.tensor(step[f"zeta_{side}"], dtype=torch.float64)
                errors[f"{at}zeta_{side}"] = difference(whole[f"nuclr_zeta_{side}"], zeta)
        for side in ("image", "text") if name == "nuclr" else ():
            errors[f"{at}xi_{side}"] = abs(objective.state()[name][f"xi_{side}"] - step[f"xi_{side}"])
    return errors


def local_part(rows: list[list[float]]) -> Tensor:
    """Return this rank's part of the global batch."""
    return torch.tensor(rows, dtype=torch.float64).chunk(distributed.world_size())[distributed.rank()].clone()


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())
