"""SogCLR, FastCLIP v1 to v3, DRRho-CLIP and GloFND against plain loops over floats, step by step."""

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clipx import objectives
from clipx.objectives.fastclip import DrrhoTerm
from tests.helpers.pairs import embeddings, fresh, pairs, progress, step, teacher_of

Matrix = list[list[float]]
TAU, N, B, EPOCHS = 0.15, 9, 4, 6
SIDES = ("image", "text")


def gamma_of(epoch: int, gamma: float, decay_epochs: int) -> float:
    """adjust_gamma of Optimization-AI/fast_clip, src/fast_clip/loss.py at 6dcaa93818baba0181cd1c12240a51b448856056."""
    if epoch >= decay_epochs:
        return gamma
    return 0.5 * (1 + math.cos(math.pi * epoch / decay_epochs)) * (1 - gamma) + gamma


@dataclass
class Loops:
    """The estimator of GCL and RGCL-g; with `individual`, that of RGCL, which has a tau for each anchor."""

    eps: float
    rho: float = 0.0
    individual: bool = False
    eta: float = 0.0133
    of_negatives: float = 1.0  # their weight in the gradient of tau
    u: dict[tuple[str, int], float] = field(default_factory=dict)
    tau: dict[tuple[str, int], float] = field(default_factory=dict)
    m: dict[tuple[str, int], float] = field(default_factory=dict)
    v: dict[tuple[str, int], float] = field(default_factory=dict)

    def step(self, s: Matrix, ids: list[int], gamma: float, epoch: int) -> tuple[float, Matrix, float]:
        """Return the value, its gradient for s [B][B] (images in rows) and its gradient for the global tau."""
        B = len(ids)
        value, of_tau, gradient = 0.0, 0.0, [[0.0] * B for _ in range(B)]
        for side in SIDES:
            for i, number in enumerate(ids):
                k = side, number
                tau = self.tau.setdefault(k, 0.03) if self.individual else TAU
                others = {j: s[i][j] if side == "image" else s[j][i] for j in range(B) if j != i}
                D = {j: others[j] - s[i][i] for j in self.negatives(k, others, epoch)}
                e = {j: math.exp(d / tau) / len(D) for j, d in D.items()}
                g = sum(e.values())
                self.u[k] = (1 - gamma) * self.u[k] + gamma * g if k in self.u else g
                d = self.eps + self.u[k]
                value += tau * (math.log(d) + self.rho) / B
                G = math.log(d) + self.rho - self.of_negatives * sum(e[j] * D[j] / tau for j in D) / d
                of_tau += G / B
                for j in D:
                    row, column = (i, j) if side == "image" else (j, i)
                    gradient[row][column] += e[j] / d / B
                    gradient[i][i] -= e[j] / d / B
                if self.individual:
                    self.move_tau(k, G, epoch)
        return value, gradient, of_tau

    def negatives(self, k: tuple[str, int], others: dict[int, float], epoch: int) -> list[int]:
        """Return which of the others, given by their similarities to the anchor k, are its negatives."""
        return list(others)

    def move_tau(self, k: tuple[str, int], G: float, epoch: int) -> None:
        """FastCLIPLossIndividual.local at the commit named in `gamma_of`; its update divides by v, not by sqrt(v)."""
        beta1, beta2 = (0.9, 0.999) if epoch > 0 else (0.0, 0.0)
        G = max(-5.0, min(5.0, G))
        self.m[k] = beta1 * self.m.get(k, 0.0) + (1 - beta1) * G
        self.v[k] = beta2 * self.v.get(k, 0.0) + (1 - beta2) * G**2
        m, v = self.m[k] / (1 - beta1 ** (epoch + 1)), self.v[k] / (1 - beta2 ** (epoch + 1))
        self.tau[k] = max(0.01, min(1.0, self.tau[k] - self.eta * m / (v + 1e-8)))


@dataclass
class GlofndLoops(Loops):
    """Negatives below a learned threshold: vibalcam/GloFND at bc3ea9c4e7a7554fe336bec1e951d3b41dd6c0a8.

    Its bimodal/src/fast_clip/fnd.py and loss.py (FastCLIPLossGloFND); alpha = 0.4, eta = 0.6, start epoch 1.
    """

    threshold: dict[tuple[str, int], float] = field(default_factory=dict)
    left_out: int = 0

    def negatives(self, k: tuple[str, int], others: dict[int, float], epoch: int) -> list[int]:
        if epoch < 1:
            return list(others)
        old = self.threshold.get(k, 1.0)
        G = 0.4 - sum(x > old for x in others.values()) / len(others)
        self.m[k], self.v[k] = 0.9 * self.m.get(k, 0.0) + 0.1 * G, 0.98 * self.v.get(k, 0.0) + 0.02 * G**2
        m, v = self.m[k] / (1 - 0.9 ** (epoch + 1)), self.v[k] / (1 - 0.98 ** (epoch + 1))
        self.threshold[k] = min(1.0, max(-1.0, old - 0.6 * m / (math.sqrt(v) + 1e-8)))
        kept = [j for j, x in others.items() if x <= self.threshold[k]]
        self.left_out += len(others) - len(kept)
        return kept


GLOFND = {"gamma": 0.6, "gamma_decay_epochs": 0, "alpha": 0.4, "eta": 0.6, "start_epoch": 1}
# name -> term, its settings, loops, (final gamma, number of epochs in which gamma decays)
CASES: dict[str, tuple[str, dict[str, Any], Loops, tuple[float, int]]] = {
    "sogclr": ("sogclr", {"gamma": 0.7}, Loops(eps=0.0), (0.7, 0)),
    "sogclr own_pair": ("sogclr", {"gamma": 0.7, "own_pair": True}, Loops(eps=1 / (N - 1)), (0.7, 0)),
    "v1": ("fastclip_v1", {}, Loops(eps=1e-14), (0.2, EPOCHS // 2)),
    "v1 gamma": ("fastclip_v1", {"gamma": 0.6, "gamma_decay_epochs": 5}, Loops(eps=1e-14), (0.6, 5)),
    "v1 no decay": ("fastclip_v1", {"gamma": 0.6, "gamma_decay_epochs": 0}, Loops(eps=1e-14), (0.6, 0)),
    "v2": ("fastclip_v2", {}, Loops(eps=1e-14, rho=7.0, individual=True), (0.2, EPOCHS // 2)),
    "v2 eps": ("fastclip_v2", {"eps": 0.3, "eta": 0.1, "rho": 2.0}, Loops(0.3, 2.0, True, 0.1), (0.2, EPOCHS // 2)),
    "v3": ("fastclip_v3", {}, Loops(eps=1e-14, rho=6.5), (0.2, EPOCHS // 2)),
    "v3 eps": ("fastclip_v3", {"eps": 0.4, "rho": 1.0}, Loops(eps=0.4, rho=1.0), (0.2, EPOCHS // 2)),
    "v3 code": ("fastclip_v3", {"tau_gradient": "code"}, Loops(1e-14, 6.5, of_negatives=2.0), (0.2, EPOCHS // 2)),
    # the authors train with the class SogCLRLoss, whose u is (B-1)/B times ours: Optimization-AI/DRRho-CLIP,
    # src/fast_clip/loss.py and factory.py at 4c711d24e0dabd8c1396ca15c7b9a9b8419c541e
    "drrho": ("drrho", {"gamma": 0.5}, Loops(eps=1e-4, rho=11.0), (0.5, EPOCHS)),
    "glofnd": ("glofnd", GLOFND, GlofndLoops(eps=1e-14), (0.6, 0)),
}


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_six_epochs_match_plain_loops(name: str) -> None:
    term, settings, given, schedule = CASES[name]
    loops = deepcopy(given)
    objective, table = fresh({term: settings}, N)
    for t in range(EPOCHS):
        image, text = pairs(B, seed=t)
        ids = torch.randperm(N, generator=torch.Generator().manual_seed(t))[:B]
        batch = embeddings(image, text, ids, TAU)
        batch.scale.requires_grad_()
        teacher = teacher_of(image, text)
        s = image @ text.T - (teacher.image @ teacher.text.T if term == "drrho" else 0)
        value, gradient, of_tau = loops.step(s.tolist(), ids.tolist(), gamma_of(t, *schedule), t)
        loss = step(objective, table, replace(batch, teacher=teacher), progress(t, epoch=t, epochs=EPOCHS))
        assert loss.total.item() == pytest.approx(value, rel=1e-10)
        M = torch.tensor(gradient, dtype=torch.float64)
        assert image.grad is not None and text.grad is not None and batch.scale.grad is not None
        assert close(image.grad, M @ text) and close(text.grad, M.T @ image)
        expected = -of_tau * TAU**2 if objective.learns_temperature else 0.0  # d tau = -tau^2 d scale
        assert batch.scale.grad.item() == pytest.approx(expected, rel=1e-10)
        columns = table.whole()
        threshold = loops.threshold if isinstance(loops, GlofndLoops) else {}
        for column, values in (("tau", loops.tau), ("m", loops.m), ("v", loops.v), ("lambda", threshold)):
            for (side, k), expected in values.items():
                assert columns[f"{term}_{column}_{side}"][k].item() == pytest.approx(expected, rel=1e-9)
        for (side, k), u in loops.u.items():
            assert columns[f"{term}_log_u_{side}"][k].item() == pytest.approx(math.log(u), abs=1e-9)
    assert len(loops.u) < 2 * B * EPOCHS, "no sample was visited twice"
    assert not isinstance(loops, GlofndLoops) or 10 < loops.left_out < 100


def test_drrho_takes_gamma_from_the_number_of_epochs() -> None:
    """README of Optimization-AI/DRRho-CLIP at 035e3bfd2cf36b1bebed0e1bdc78c4216a9f8cec: min(1, 4.177 E^-0.7265)."""
    term = objectives.build({"drrho": {}}, N).terms["drrho"]
    assert isinstance(term, DrrhoTerm)
    assert [term.gamma_of(progress(0, epoch=E, epochs=E)) for E in (7, 30)] == pytest.approx([1.0, 0.3529], abs=1e-4)
