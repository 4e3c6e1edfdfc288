"""SogCLR: both forms of the global contrastive loss, with all pairs in one batch."""

import math

import pytest
import torch

from tests.helpers.table_steps import embeddings, fresh, pairs, progress, step

TAU = 0.15


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
