"""NeuCLIP: steps against plain loops over floats, and what its network learns."""

import math
from dataclasses import dataclass, field

import pytest
import torch

from clipx import objectives
from clipx.objectives.sogclr import Contrast
from tests.helpers.pairs import embeddings, fresh, pairs, progress, step

TAU, B, E, M = 0.15, 3, 4, 5
RHO, EPS, ETA, UPDATES, RESTART = 2.0, 1e-3, 0.02, 2, 3
SETTINGS: dict[str, object] = {
    "rho": RHO,
    "eps": EPS,
    "prototypes": M,
    "updates": UPDATES,
    "restart": RESTART,
    "eta": ETA,
}
Matrix = list[list[float]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


@dataclass
class Network:
    """The prototypes of one direction; a row is None until a batch has filled it."""

    W: list[list[float] | None] = field(default_factory=lambda: [None] * M)
    squares: Matrix = field(default_factory=lambda: [[0.0] * E for _ in range(M)])

    def step(self, t: int, x: Matrix, others: Matrix) -> tuple[list[float], list[float]]:
        """Return alpha and exp(-alpha) (eps + g) of all anchors x, after the updates of step t."""
        for k, row in enumerate(others, t % RESTART * len(others)):
            if k < M:
                self.W[k], self.squares[k] = list(row), [0.0] * E
        g = []
        for i, a in enumerate(x):
            negatives = [dot(a, b) - dot(a, others[i]) for j, b in enumerate(others) if j != i]
            g.append(sum(math.exp(D / TAU) for D in negatives) / len(negatives))
        for _ in range(UPDATES):
            self.update(x, others, g)
        alpha = [self.alpha(a, b) for a, b in zip(x, others, strict=True)]
        return alpha, [math.exp(-a) * (EPS + value) for a, value in zip(alpha, g, strict=True)]

    def exponentials(self, a: list[float], own: list[float]) -> list[float]:
        filled = [w for w in self.W if w is not None]
        cosines = [dot(a, w) / math.sqrt(dot(w, w)) for w in filled]
        return [math.exp((c - dot(a, own)) / TAU) / len(filled) for c in cosines]

    def alpha(self, a: list[float], own: list[float]) -> float:
        return math.log(EPS + sum(self.exponentials(a, own)))

    def update(self, x: Matrix, others: Matrix, g: list[float]) -> None:
        filled = [k for k in range(M) if self.W[k] is not None]
        gradient = [[0.0] * E for _ in filled]
        for i, a in enumerate(x):
            weights = self.exponentials(a, others[i])
            alpha = self.alpha(a, others[i])
            of_alpha = (1 - math.exp(-alpha) * (EPS + g[i])) / len(x)
            for k in filled:
                w = self.W[k]
                assert w is not None
                norm = math.sqrt(dot(w, w))
                for d in range(E):
                    of_cosine = (a[d] - dot(a, w) * w[d] / norm**2) / norm
                    gradient[k][d] += of_alpha * weights[k] / math.exp(alpha) * of_cosine / TAU
        for k in filled:
            w = self.W[k]
            assert w is not None
            for d in range(E):
                self.squares[k][d] += gradient[k][d] ** 2
                w[d] -= ETA * gradient[k][d] / (math.sqrt(self.squares[k][d]) + 1e-10)


def test_seven_steps_with_two_restarts_match_plain_loops() -> None:
    objective, table = fresh({"neuclip": SETTINGS}, 20)
    networks = {"image": Network(), "text": Network()}
    for t in range(7):
        image, text = pairs(B, E, seed=t)
        batch = embeddings(image, text, torch.arange(B), TAU)
        batch.scale.requires_grad_()
        loss = step(objective, table, batch, progress(t))
        sides, s = {"image": image.tolist(), "text": text.tolist()}, (image @ text.T).tolist()
        value, of_tau, gradient = 0.0, 0.0, [[0.0] * B for _ in range(B)]
        for side, other in (("image", "text"), ("text", "image")):
            alpha, ratios = networks[side].step(t, sides[side], sides[other])
            for i in range(B):
                bracket = ratios[i] + alpha[i] - 1 + RHO
                value += TAU * bracket / B
                of_tau += bracket / B
                for j in [j for j in range(B) if j != i]:
                    row, column = (i, j) if side == "image" else (j, i)
                    D = s[row][column] - s[i][i]
                    weight = math.exp(D / TAU - alpha[i]) / (B - 1) / B
                    gradient[row][column] += weight
                    gradient[i][i] -= weight
                    of_tau -= weight * D / TAU
        assert loss.total.item() == pytest.approx(value, rel=1e-9)
        G = torch.tensor(gradient, dtype=torch.float64)
        assert image.grad is not None and text.grad is not None and batch.scale.grad is not None
        torch.testing.assert_close(image.grad, G @ text.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(text.grad, G.T @ image.detach(), rtol=1e-9, atol=1e-9)
        assert batch.scale.grad.item() == pytest.approx(-of_tau * TAU**2, rel=1e-9)


def test_many_updates_predict_the_normaliser_and_the_loss_is_then_the_global_one() -> None:
    objective, table = fresh({"neuclip": {"prototypes": 32, "updates": 100, "eta": 0.1}}, 64)
    image, text = pairs(16, 8)
    batch = embeddings(image, text, torch.arange(16), TAU)
    for t in range(2):
        loss = step(objective, table, batch, progress(t))
    log_g = Contrast(batch, "test").log_g
    expected = TAU * (log_g["image"].mean() + log_g["text"].mean() + 2 * 6.5)
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_step_without_finite_numbers_leaves_the_network() -> None:
    objective, table = fresh({"neuclip": SETTINGS}, 20)
    image, text = pairs(B, E)
    step(objective, table, embeddings(image, text, torch.arange(B), TAU), progress(0))
    before = objective.state()["neuclip"]
    step(objective, table, embeddings(image * torch.nan, text, torch.arange(B), TAU), progress(1))
    assert all(
        torch.equal(torch.as_tensor(before[k]), torch.as_tensor(v)) for k, v in objective.state()["neuclip"].items()
    )
    step(objective, table, embeddings(*pairs(B, E, seed=2), torch.arange(B), TAU), progress(2))
    W = torch.as_tensor(objective.state()["neuclip"]["W_image"])
    assert W[:B].all() and not W[B:].any(), "rows that the skipped step did not fill are trained"


def test_a_resumed_objective_goes_on_with_the_same_network() -> None:
    objective, table = fresh({"neuclip": SETTINGS}, 20)
    batches = [embeddings(*pairs(B, E, seed=t), torch.arange(B), TAU) for t in range(3)]
    for t in range(2):
        step(objective, table, batches[t], progress(t))
    resumed = objectives.build({"neuclip": SETTINGS}, 20)
    resumed.load_state(objective.state())
    assert resumed(batches[2], {}, progress(2)).total == objective(batches[2], {}, progress(2)).total
    assert (
        objectives.build({"neuclip": SETTINGS}, 20)(batches[2], {}, progress(2)).total
        != resumed(batches[2], {}, progress(2)).total
    )
