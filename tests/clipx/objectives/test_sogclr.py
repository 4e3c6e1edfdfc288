"""SogCLR: both forms of the global contrastive loss against plain loops from the paper, and against NUCLR."""

import math

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
