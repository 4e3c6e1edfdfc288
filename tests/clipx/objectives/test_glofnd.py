"""GloFND against plain loops that follow the authors' code.

vibalcam/GloFND, bimodal/src/fast_clip/fnd.py and loss.py (FastCLIPLossGloFND) at
bc3ea9c4e7a7554fe336bec1e951d3b41dd6c0a8; settings of bimodal/scripts/train_glofnd.sh.
"""

import math

import pytest
import torch

from clipx import objectives
from tests.helpers.table_steps import embeddings, fresh, pairs, progress, step

Matrix = list[list[float]]
GAMMA, TAU, ALPHA, ETA, START = 0.6, 0.15, 0.4, 0.2, 1


class Loops:
    """GloFND in plain loops over floats, gamma already decayed."""

    def __init__(self) -> None:
        self.u: dict[str, dict[int, float]] = {"image": {}, "text": {}}
        self.threshold: dict[str, dict[int, float]] = {"image": {}, "text": {}}
        self.moments: dict[str, dict[int, tuple[float, float]]] = {"image": {}, "text": {}}
        self.left_out = 0

    def learn(self, side: str, k: int, others: list[float], epoch: int) -> float:
        """Take a step of lambda with the similarities of the anchor k to all others, and return it."""
        old = self.threshold[side].get(k, 1.0)
        m, v = self.moments[side].get(k, (0.0, 0.0))
        G = ALPHA - sum(x > old for x in others) / len(others)
        m, v = 0.9 * m + 0.1 * G, 0.98 * v + 0.02 * G**2
        self.moments[side][k] = m, v
        moved = ETA * m / (1 - 0.9 ** (epoch + 1)) / (math.sqrt(v / (1 - 0.98 ** (epoch + 1))) + 1e-8)
        self.threshold[side][k] = min(1.0, max(-1.0, old - moved))
        return self.threshold[side][k]

    def step(self, s: Matrix, ids: list[int], epoch: int) -> tuple[float, Matrix]:
        """Return the value, and the gradient with respect to the similarities s [B][B], images in the rows."""
        B, value = len(ids), 0.0
        gradient = [[0.0] * B for _ in range(B)]
        for side, u in self.u.items():
            for i, k in enumerate(ids):
                row = [s[i][j] if side == "image" else s[j][i] for j in range(B)]
                negatives = [j for j in range(B) if j != i]
                if epoch >= START:
                    limit = self.learn(side, k, [row[j] for j in negatives], epoch)
                    negatives = [j for j in negatives if row[j] <= limit]
                    self.left_out += B - 1 - len(negatives)
                e = {j: math.exp((row[j] - s[i][i]) / TAU) for j in negatives}
                g = sum(e.values()) / max(1, len(e))
                u[k] = (1 - GAMMA) * u[k] + GAMMA * g if k in u else g
                value += TAU * math.log(1e-14 + u[k]) / B
                for j in negatives:
                    at = (i, j) if side == "image" else (j, i)
                    share = e[j] / len(e) / (1e-14 + u[k]) / B
                    gradient[at[0]][at[1]] += share
                    gradient[i][i] -= share
        return value, gradient


def test_eight_steps_match_plain_loops() -> None:
    n, B = 9, 5
    reference = Loops()
    terms = {"glofnd": {"gamma": GAMMA, "gamma_decay_epochs": 0, "alpha": ALPHA, "eta": ETA, "start_epoch": START}}
    objective, table = fresh(terms, n)
    for t in range(8):
        image, text = pairs(B, seed=t)
        ids = torch.randperm(n, generator=torch.Generator().manual_seed(t))[:B]
        value, gradient = reference.step((image @ text.T).tolist(), ids.tolist(), epoch=t // 2)
        loss = step(objective, table, embeddings(image, text, ids, TAU), progress(t, epoch=t // 2))
        assert loss.total.item() == pytest.approx(value, rel=1e-11)
        M = torch.tensor(gradient, dtype=torch.float64)
        assert image.grad is not None and text.grad is not None
        assert (image.grad - M @ text).abs().max() < 1e-9
        assert (text.grad - M.T @ image).abs().max() < 1e-9
        found = table.whole()
        for side, threshold in reference.threshold.items():
            column = found[f"glofnd_lambda_{side}"]
            assert {k: float(column[k]) for k in threshold} == pytest.approx(threshold, rel=1e-11)
    assert 10 < reference.left_out < 100


def test_before_the_first_epoch_of_learning_it_is_fastclip_v1() -> None:
    image, text = pairs(6)
    batch = embeddings(image, text, torch.arange(6), TAU)
    at = progress(epoch=3, epochs=10)  # thresholds are learned from epoch 4 on
    found, expected = (
        objective(batch, table.read(torch.arange(6)), at)
        for objective, table in (fresh({name: {}}, 6) for name in ("glofnd", "fastclip_v1"))
    )
    assert found.total.item() == pytest.approx(expected.total.item(), rel=1e-14)
    assert float(found.rows["glofnd_lambda_image"].min()) == 1.0


def test_the_threshold_becomes_the_quantile_of_the_similarities() -> None:
    """All samples in each batch: the share above lambda is then alpha, up to one sample."""
    n, alpha = 41, 0.2
    objective, table = fresh({"glofnd": {"alpha": alpha, "eta": 0.01, "start_epoch": 0}}, n)
    image, text = pairs(n)
    for t in range(600):
        step(objective, table, embeddings(image, text, torch.arange(n), TAU), progress(t, epoch=9))
    s = (image @ text.T).detach()
    s.fill_diagonal_(-2)
    share = (s > table.whole()["glofnd_lambda_image"][:, None]).double().mean(dim=1) * n / (n - 1)
    assert (share - alpha).abs().max() < 0.1 and (share - alpha).abs().mean() < 0.03


def test_anchors_without_a_negative_left_add_no_gradient() -> None:
    """With alpha near 1, all thresholds fall below all similarities."""
    objective, table = fresh({"glofnd": {"alpha": 0.999, "eta": 9.0, "start_epoch": 0}}, 4)
    image, text = pairs(4)
    loss = step(objective, table, embeddings(image, text, torch.arange(4), TAU), progress())
    assert float(table.whole()["glofnd_lambda_image"].max()) == -1.0
    assert loss.total.item() == pytest.approx(2 * TAU * math.log(1e-14))
    assert image.grad is not None and image.grad.abs().max() == 0


def test_a_run_that_ends_before_learning_says_so() -> None:
    lines = objectives.build({"glofnd": {"start_epoch": 5}}, 10).notes(total_epochs=5)
    assert any("no threshold is learned" in line for line in lines)
    assert not objectives.build({"glofnd": {}}, 10).notes(total_epochs=5)
