"""SogCLR: both forms of the global contrastive loss against plain loops from the paper, and against NUCLR."""

import math
from typing import Any

import pytest
import torch

from tests.helpers.table_steps import embeddings, fresh, pairs, progress, step

Matrix = list[list[float]]
GAMMA, TAU = 0.7, 0.15


class Loops:
    """SogCLR in plain loops over floats; the pair itself adds `own`, exp(0) or 0, to the sum over j."""

    def __init__(self, n: int, own: float) -> None:
        self.n, self.own = n, own
        self.u: dict[str, dict[int, float]] = {"image": {}, "text": {}}

    def step(self, s: Matrix, ids: list[int]) -> tuple[float, Matrix]:
        """Return the value, and the gradient with respect to the similarities s [B][B], images in the rows."""
        B = len(ids)
        value, gradient = 0.0, [[0.0] * B for _ in range(B)]
        for side, u in self.u.items():
            for i, k in enumerate(ids):
                others = [j for j in range(B) if j != i]
                e = {j: math.exp(((s[i][j] if side == "image" else s[j][i]) - s[i][i]) / TAU) for j in others}
                g = sum(e.values()) / (B - 1)
                u[k] = (1 - GAMMA) * u[k] + GAMMA * g if k in u else g
                d = u[k] + self.own / (self.n - 1)
                value += TAU * math.log(d) / B
                for j in others:
                    row, column = (i, j) if side == "image" else (j, i)
                    gradient[row][column] += e[j] / (B - 1) / d / B
                    gradient[i][i] -= e[j] / (B - 1) / d / B
        return value, gradient


@pytest.mark.parametrize("own_pair", [False, True])
def test_five_steps_match_plain_loops(own_pair: bool) -> None:
    n, B = 9, 4
    reference = Loops(n, own=math.exp(0) if own_pair else 0.0)
    objective, table = fresh({"sogclr": {"gamma": GAMMA, "own_pair": own_pair}}, n)
    for t in range(5):
        image, text = pairs(B, seed=t)
        ids = torch.randperm(n, generator=torch.Generator().manual_seed(t))[:B]
        value, gradient = reference.step((image @ text.T).tolist(), ids.tolist())
        loss = step(objective, table, embeddings(image, text, ids, TAU), progress(t))
        assert loss.total.item() == pytest.approx(value, rel=1e-12)
        M = torch.tensor(gradient, dtype=torch.float64)
        assert image.grad is not None and text.grad is not None
        assert torch.allclose(image.grad, M @ text, rtol=1e-10)
        assert torch.allclose(text.grad, M.T @ image, rtol=1e-10)
        for side, u in reference.u.items():
            found = table.whole()[f"sogclr_log_u_{side}"]
            assert {k: math.exp(found[k]) for k in u} == pytest.approx(u, rel=1e-11)
    assert any(len(u) < 5 * B for u in reference.u.values())  # some sample was visited twice


@pytest.mark.parametrize(("own_pair", "first"), [(True, 0), (False, 1)])
def test_with_all_pairs_in_one_batch_sogclr_is_the_global_contrastive_loss(own_pair: bool, first: int) -> None:
    """One batch of all n pairs against -tau/n sum_i log(exp(e_ii/tau) / sum_j exp(e_ij/tau)), with and without j = i.

    SogCLR's value is smaller by tau log(n - 1) per direction, because it divides the sum over j by n - 1.
    """
    n = 7
    objective, table = fresh({"sogclr": {"own_pair": own_pair}}, n)
    image, text = pairs(n)
    loss = step(objective, table, embeddings(image, text, torch.arange(n), TAU), progress())
    copies = [side.detach().clone().requires_grad_() for side in (image, text)]
    e = copies[0] @ copies[1].T
    expected = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        order = [i, *(j for j in range(n) if j != i)][first:]  # the pair itself, then all others
        for scores in (e[i], e[:, i]):
            denominator = torch.stack([(scores[j] / TAU).exp() for j in order]).sum()
            expected = expected - TAU / n * ((e[i, i] / TAU).exp() / denominator).log()
    expected.backward()  # type: ignore[no-untyped-call]
    assert loss.total.item() == pytest.approx(expected.item() - 2 * TAU * math.log(n - 1), rel=1e-12)
    for side, copy in zip((image, text), copies, strict=True):
        assert side.grad is not None and copy.grad is not None
        assert torch.allclose(side.grad, copy.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("own_pair", "xi0"), [(True, 0.0), (False, 1e3)])
def test_sogclr_is_nuclr_without_zeta(own_pair: bool, xi0: float) -> None:
    """SogCLR's term for the pair itself is NUCLR's xi term, exp(-xi/tau)/(n-1), at xi = 0; a large xi removes it."""
    terms: tuple[dict[str, Any], ...] = (
        {"sogclr": {"gamma": GAMMA, "own_pair": own_pair}},
        {"nuclr": {"gamma": GAMMA, "zeta0": 0.0, "xi0": xi0, "eta": 0.0}},
    )
    found = []
    for objective, table in (fresh(t, 8) for t in terms):
        for t in range(3):
            image, text = pairs(4, seed=t)
            loss = step(objective, table, embeddings(image, text, torch.tensor([t, 5, 6, 7]), 0.1), progress(t))
        assert image.grad is not None and text.grad is not None
        found.append(torch.cat([loss.total.detach().view(1), image.grad.flatten(), text.grad.flatten()]))
    assert torch.allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize(("own_pair", "vanishes"), [(True, True), (False, False)])
def test_a_separated_pair_has_no_gradient_only_with_own_pair(own_pair: bool, vanishes: bool) -> None:
    objective, table = fresh({"sogclr": {"own_pair": own_pair}}, 4)
    image = torch.eye(4, dtype=torch.float64).requires_grad_()
    text = torch.eye(4, dtype=torch.float64).requires_grad_()
    step(objective, table, embeddings(image, text, torch.arange(4), 0.01), progress())
    assert image.grad is not None
    assert (float(image.grad.norm()) < 1e-20) is vanishes


def test_the_first_visit_ignores_the_initial_value_of_u() -> None:
    objective, table = fresh({"sogclr": {"gamma": 0.1}}, 6)
    image, text = pairs(3)
    ids = torch.tensor([5, 0, 2])
    step(objective, table, embeddings(image, text, ids, 0.5), progress())
    columns = table.whole()
    assert columns["sogclr_seen"].tolist() == [1, 0, 1, 0, 0, 1]
    s = (image @ text.T).tolist()
    g = (math.exp((s[1][0] - s[1][1]) / 0.5) + math.exp((s[1][2] - s[1][1]) / 0.5)) / 2
    assert math.exp(columns["sogclr_log_u_image"][0]) == pytest.approx(g, rel=1e-12)
