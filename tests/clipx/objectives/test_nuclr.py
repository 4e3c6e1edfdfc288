"""SogCLR and NUCLR against golden traces, NUCLR against plain loops of Algorithm 1, and both in float32."""

import itertools
import math
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from clipx import objectives
from clipx.objectives.nuclr import NuclrTerm, eta_factor
from clipx.objectives.sogclr import SIDES
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from tests.golden import GOLDEN
from tests.helpers.pairs import embeddings, fresh, pairs, progress, step, teacher_of

PARAMETERS = {"sogclr": ("gamma",), "nuclr": ("gamma", "zeta0", "xi0", "eta", "freeze_steps")}


def double(numbers: list[Any]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


@pytest.mark.parametrize("name", ["sogclr", "nuclr"])
def test_five_steps_match_the_golden_trace(name: str) -> None:
    """Errors of gradients, zeta and xi are absolute, those of u relative."""
    golden = GOLDEN[name]
    objective = objectives.build({name: {key: golden[key] for key in PARAMETERS[name]}}, golden["n"])
    table = SampleTable(objective.columns, golden["n"], dtype=torch.float64)
    scale = torch.tensor(1 / golden["tau"], dtype=torch.float64)
    errors: dict[str, float] = {}
    for recorded in golden["steps"]:
        ids = torch.tensor(recorded["sample_id"])
        image, text = (double(recorded[side]).requires_grad_() for side in ("image", "text"))
        batch = Embeddings(image, text, scale, ids, torch.zeros_like(ids))
        loss = objective(batch, table.read(ids), Progress(recorded["step"], 5, 0, 1))
        loss.total.backward()  # type: ignore[no-untyped-call]
        table.write(ids, loss.rows)
        objective.end_step(table)
        at = f"step {recorded['step']} "
        for side, leaf in (("image", image), ("text", text)):
            assert leaf.grad is not None
            errors[f"{at}grad_{side}"] = difference(leaf.grad, double(recorded[f"grad_{side}"]))
        whole = table.whole()
        for side in ("image", "text"):
            log_u, seen = whole[f"{name}_log_u_{side}"], whole[f"{name}_seen"]
            found = [math.exp(x) if s else None for x, s in zip(log_u.tolist(), seen.tolist(), strict=True)]
            expected = recorded[f"u_{side}"]
            assert [u is None for u in found] == [u is None for u in expected]
            relative = [abs(a / b - 1) for a, b in zip(found, expected, strict=True) if a is not None]
            errors[f"{at}u_{side}"] = max(relative)
            if name == "nuclr":
                errors[f"{at}zeta_{side}"] = difference(whole[f"nuclr_zeta_{side}"], double(recorded[f"zeta_{side}"]))
                errors[f"{at}xi_{side}"] = abs(objective.state()[name][f"xi_{side}"] - recorded[f"xi_{side}"])
    assert len(errors) >= 5 * 4
    assert max(errors.values()) < 1e-9, errors


class Loops:
    """Algorithm 1 in plain loops over floats, with u itself instead of log u."""

    def __init__(self, n: int, tau: float, gamma: float, zeta0: float, xi0: float, eta: float) -> None:
        self.n, self.tau, self.gamma, self.xi0, self.eta = n, tau, gamma, xi0, eta
        self.u: dict[str, dict[int, float]] = {"image": {}, "text": {}}
        self.zeta = {side: [zeta0] * n for side in ("image", "text")}
        self.xi = {"image": xi0, "text": xi0}

    def step(self, s: list[list[float]], ids: list[int]) -> list[list[float]]:
        """Return the gradient of both directions with respect to the similarities s [B][B]."""
        B, tau, n = len(ids), self.tau, self.n
        gradient = [[0.0] * B for _ in range(B)]
        new_zeta = {}
        for anchor, other in SIDES:
            D = [[(s[i][j] if anchor == "image" else s[j][i]) - s[i][i] for j in range(B)] for i in range(B)]
            zeta = [self.zeta[other][k] for k in ids]
            e = [[math.exp((D[i][j] - zeta[j]) / tau) for j in range(B)] for i in range(B)]
            for i, k in enumerate(ids):
                g = sum(e[i][j] for j in range(B) if j != i) / (B - 1)
                u = self.u[anchor]
                u[k] = (1 - self.gamma) * u[k] + self.gamma * g if k in u else g
                factor = 1 / (u[k] + math.exp(-self.xi[other] / tau) / (n - 1)) / (B - 1) / B
                for j in range(B):
                    if j != i:
                        row, column = (i, j) if anchor == "image" else (j, i)
                        gradient[row][column] += factor * e[i][j]
                        gradient[i][i] -= factor * e[i][j]
            new_zeta[other] = list(self.zeta[other])
            for j, k in enumerate(ids):
                total = 0.0
                for i, m in enumerate(ids):
                    total += e[i][j] / (self.u[anchor][m] + math.exp(-zeta[i] / tau) / (n - 1))
                new_zeta[other][k] -= self.eta * (1 / n - total / B / (n - 1))
        self.zeta = new_zeta
        self.xi = {side: max(self.xi0, max(self.zeta[side])) for side in self.zeta}
        return gradient


def test_steps_match_plain_loops_of_algorithm_1() -> None:
    n, tau, B = 11, 0.2, 5
    reference = Loops(n, tau, gamma=0.6, zeta0=-0.1, xi0=-0.09, eta=1.5)
    objective, table = fresh({"nuclr": {"gamma": 0.6, "zeta0": -0.1, "xi0": -0.09, "eta": 1.5}}, n)
    for t in range(6):
        image, text = pairs(B, seed=t)
        ids = torch.randperm(n, generator=torch.Generator().manual_seed(t))[:B]
        gradient = torch.tensor(reference.step((image @ text.T).tolist(), ids.tolist()), dtype=torch.float64)
        step(objective, table, embeddings(image, text, ids, tau), progress(t))
        assert image.grad is not None and text.grad is not None
        assert torch.allclose(image.grad, gradient @ text, rtol=1e-10)
        assert torch.allclose(text.grad, gradient.T @ image, rtol=1e-10)
        columns = table.whole()
        for side in ("image", "text"):
            assert columns[f"nuclr_zeta_{side}"].tolist() == pytest.approx(reference.zeta[side], abs=1e-12)
            for k, u in reference.u[side].items():
                assert math.exp(columns[f"nuclr_log_u_{side}"][k]) == pytest.approx(u, rel=1e-11)
        xi = objective.state()["nuclr"]
        assert xi == pytest.approx({"xi_image": reference.xi["image"], "xi_text": reference.xi["text"]}, abs=1e-12)
    assert max(xi.values()) > -0.09  # some zeta exceeded xi0, so the maximum over zeta was tested


@pytest.mark.parametrize(
    "terms",
    [
        {"sogclr": {}},
        {"sogclr": {"own_pair": True}},
        {"nuclr": {}},
        {"nuclr": {"variant": "code", "eta": 5e-6}},
        *({name: {"gamma": 0.8}} for name in ("fastclip_v1", "fastclip_v2", "fastclip_v3", "drrho")),
    ],
)
def test_float32_does_not_overflow_at_similarity_differences_of_two(terms: dict[str, Any]) -> None:
    objective, table = fresh(terms, 12, torch.float32)
    for t in range(6):
        image, text = pairs(6, seed=t, dtype=torch.float32)
        sign = 1 - 2 * (t % 2)  # every D_ij changes sign from step to step; the largest |D_ij| is 1.9
        with torch.no_grad():
            text.copy_(sign * image)
            text[1:3] *= -1
        batch = replace(embeddings(image, text, torch.arange(6), 0.005), teacher=teacher_of(image, text))
        loss = step(objective, table, batch, progress(t))
        objective.end_epoch(table)
        assert image.grad is not None and text.grad is not None
        assert torch.isfinite(loss.total)
        assert all(torch.isfinite(x).all() for x in (image.grad, text.grad, table.values))
        # Each direction adds at most 2/gamma to the norm: g_i/d_i <= 1/gamma (d_i as in sogclr.py), and two
        # unit vectors differ by at most 2
        assert image.grad.norm(dim=1).max() <= 2 * 2 / 0.8 + 1e-3


@pytest.mark.parametrize("terms", [{"sogclr": {"own_pair": True}}, {"nuclr": {"eta": 0.01}}])
def test_float32_follows_float64_where_exp_would_overflow(terms: dict[str, Any]) -> None:
    found = {}
    for dtype in (torch.float32, torch.float64):
        objective, table = fresh(terms, 12, dtype)
        for t in range(4):
            image, text = pairs(6, seed=t, dtype=dtype)
            step(objective, table, embeddings(image, text, torch.arange(t, t + 6), 0.01), progress(t))
        assert image.grad is not None
        found[dtype] = (image.grad.double(), table.values.double())
    assert found[torch.float64][1].abs().max() > math.log(torch.finfo(torch.float32).max)
    for single, double in zip(*found.values(), strict=True):
        assert torch.allclose(single, double, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("freeze", "steps"), [({"freeze_steps": 3}, 3), ({"freeze_epochs": 2}, 4), ({}, 0)])
def test_zeta_is_constant_during_the_freeze_period(freeze: dict[str, int], steps: int) -> None:
    objective, table = fresh({"nuclr": freeze}, 6)
    image, text = pairs(4)
    for t in range(steps + 1):  # two steps per epoch; the last step is after the freeze period
        assert bool((table.whole()["nuclr_zeta_text"] == torch.tensor(-0.05, dtype=torch.float64)).all())
        step(objective, table, embeddings(image, text, torch.arange(4), 0.1), progress(t, epoch=t // 2))
    columns = table.whole()
    for side in ("image", "text"):
        assert bool((columns[f"nuclr_zeta_{side}"][:4] != -0.05).all())
        assert columns[f"nuclr_zeta_{side}"][4:].tolist() == [-0.05, -0.05]


def test_the_default_eta_is_that_of_the_authors() -> None:
    n = 1000
    for variant, expected in (("paper", 5e-3), ("unbiased", 5e-3), ("code", 5e-6)):
        assert NuclrTerm(n, variant=variant).eta == pytest.approx(expected, rel=1e-12)
    assert NuclrTerm(n, eta=0.3).eta == 0.3


def test_variant_code_updates_zeta_as_the_authors_script_does() -> None:
    """zeta moves against a moving average of its gradient n G: the first is n G, then the new n G has weight 0.9.

    The images' zeta takes steps a tenth as large as the texts' zeta.
    """
    n, eta, image, text = 9, 1e-3, *pairs(4)
    ids = torch.arange(4)
    paper, paper_table = fresh({"nuclr": {"eta": 1.0}}, n)
    code, code_table = fresh({"nuclr": {"eta": eta, "variant": "code"}}, n)
    step(paper, paper_table, embeddings(image, text, ids, 0.1), progress())
    step(code, code_table, embeddings(image, text, ids, 0.1), progress(epoch=3, epochs=10))
    cosine = 0.5 * (1 + math.cos(math.pi * 3 / 9))  # the last of ten epochs is epoch 9
    for side, factor in (("image", 0.1), ("text", 1.0)):
        G = -0.05 - paper_table.whole()[f"nuclr_zeta_{side}"]
        columns = code_table.whole()
        average = columns[f"nuclr_gradient_{side}"]
        assert torch.allclose(average, n * G, rtol=1e-9, atol=1e-12)
        assert torch.allclose(columns[f"nuclr_zeta_{side}"], -0.05 - eta * factor * cosine * average, rtol=1e-12)
    before = code_table.whole()["nuclr_gradient_text"]
    zeta = code_table.whole()["nuclr_zeta_text"]
    paper_table.write(ids, {c: code_table.read(ids)[c] for c in paper.columns})
    step(paper, paper_table, embeddings(image, text, ids, 0.1), progress())
    G = zeta - paper_table.whole()["nuclr_zeta_text"]
    step(code, code_table, embeddings(image, text, ids, 0.1), progress())
    expected = 0.1 * before[:4] + 0.9 * n * G[:4]
    assert torch.allclose(code_table.whole()["nuclr_gradient_text"][:4], expected, rtol=1e-9)


@pytest.mark.parametrize(("variant", "unbiased"), [("unbiased", True), ("paper", False)])
def test_only_variant_unbiased_gives_the_gradient_of_the_objective_on_average(variant: str, unbiased: bool) -> None:
    """Compare the mean zeta step over all batches with the gradient of eq. (5), at exact u.

    Algorithm 1 gives the positive pair n/B times its weight in eq. (5).
    """
    n, B, tau, eta = 6, 3, 0.3, 1.0
    image, text = (side.detach() for side in pairs(n))
    zeta = torch.linspace(-0.2, 0.3, n, dtype=torch.float64).requires_grad_()
    D = image @ text.T - (image * text).sum(dim=1, keepdim=True)
    (tau * torch.logsumexp((D - zeta) / tau, dim=1) + zeta).mean().backward()  # type: ignore[no-untyped-call]
    off = ((D - zeta) / tau).exp().fill_diagonal_(0).detach()
    objective, table = fresh({"nuclr": {"variant": variant, "gamma": 1e-9, "eta": eta}}, n)
    every = torch.arange(n)
    rows = table.read(every) | {"nuclr_seen": torch.ones(n).double(), "nuclr_zeta_text": zeta.detach()}
    rows["nuclr_log_u_image"] = (off.sum(dim=1) / (n - 1)).log()
    steps: list[list[float]] = [[] for _ in range(n)]
    for ids in itertools.combinations(range(n), B):
        at = torch.tensor(ids)
        loss = objective(embeddings(image[at], text[at], at, tau), {c: r[at] for c, r in rows.items()}, progress())
        for j, new in zip(ids, loss.rows["nuclr_zeta_text"], strict=True):
            steps[j].append(float(zeta[j].detach() - new) / eta)
    mean = torch.tensor([sum(of_j) / len(of_j) for of_j in steps], dtype=torch.float64)
    assert torch.allclose(mean, zeta.grad, atol=1e-8) == unbiased  # type: ignore[arg-type]


def test_the_cosine_of_variant_code_starts_after_the_freeze_period_as_in_the_authors_script() -> None:
    """Their models/losses.py has (epoch - start) / (max_epoch - 1 - start) with 30 epochs, of which 5 are frozen."""
    factors = [eta_factor(progress(epoch=epoch, epochs=30), 5) for epoch in (5, 10, 15, 20)]
    assert factors == pytest.approx([1.0, 0.897, 0.0629, 0.0309], abs=5e-4)  # 0.629 and 0.309, divided by 10 after half
    assert eta_factor(progress(epoch=5, epochs=6), 5) == pytest.approx(0.01)  # a single epoch after the freeze


@pytest.mark.parametrize(("variant", "after_step"), [("paper", True), ("code", False)])
def test_xi_is_updated_per_step_or_per_epoch_depending_on_the_variant(variant: str, after_step: bool) -> None:
    parameters = {"variant": variant, "zeta0": -0.2, "xi0": -0.19}
    objective, table = fresh({"nuclr": parameters}, 6)
    assert objective.state() == {"nuclr": {"xi_image": -0.19, "xi_text": -0.19}}
    rows = {name: row + 0.5 if "zeta" in name else row for name, row in table.read(torch.tensor([4])).items()}
    table.write(torch.tensor([4]), rows)
    objective.end_step(table)
    assert (objective.state()["nuclr"]["xi_text"] > 0) is after_step
    objective.end_epoch(table)
    assert objective.state()["nuclr"]["xi_text"] == pytest.approx(0.3)
    other = objectives.build({"nuclr": parameters}, 6)
    other.load_state(objective.state())
    assert other.state() == objective.state()


def test_xi_takes_the_maximum_of_a_table_that_returns_numbers() -> None:
    objective, _ = fresh({"nuclr": {"xi0": 0.1}}, 6)
    objective.end_step(MagicMock(max={"nuclr_zeta_image": 0.3, "nuclr_zeta_text": -0.2}.__getitem__))
    assert objective.state()["nuclr"] == pytest.approx({"xi_image": 0.3, "xi_text": 0.1})


def test_inputs_are_not_modified_and_the_value_is_logged() -> None:
    objective, table = fresh({"nuclr": {"weight": 0.5}, "sogclr": {}}, 5)
    image, text = pairs(4)
    ids = torch.arange(4)
    rows = table.read(ids)
    before = {name: row.clone() for name, row in rows.items()}
    loss = objective(embeddings(image, text, ids, 0.1), rows, progress())
    assert rows.keys() == before.keys() == loss.rows.keys()
    assert all(torch.equal(rows[name], before[name]) for name in rows)
    assert not any(value.requires_grad for value in (*loss.rows.values(), *loss.terms.values()))
    assert torch.allclose(loss.total, 0.5 * loss.terms["nuclr"] + loss.terms["sogclr"])
    log_u = loss.rows["sogclr_log_u_image"] + loss.rows["sogclr_log_u_text"]
    assert torch.allclose(loss.terms["sogclr"], 0.1 * log_u.mean())
