"""RankCLIP's list-wise loss against a plain double loop, and the schedule of its weight."""

import pytest
from torch import Tensor

from clipx import objectives
from clipx.objectives.rank import ramp
from clipx.types import Progress
from tests.helpers.pairs import Terms, embed, loss_of, random_pairs

SCALE = 4.0


def list_mle(scores: Tensor, ranked_by: Tensor) -> Tensor:
    """Row mean. From Jam1ezhang/RankCLIP, rankclip/rank_losses.py at 7b7ccd316ee644f6a648b86b0e749a9fa1ebf250.

    The authors' code adds 1e-10 inside the logarithm; this does not.
    """
    total = scores.new_zeros(())
    for score, by in zip(scores, ranked_by.tolist(), strict=True):
        order = sorted(range(len(by)), key=lambda j: -by[j])
        for k, j in enumerate(order):
            total = total + score[order[k:]].exp().sum().log() - score[j]
    return total / len(scores)


def by_loops(image: Tensor, text: Tensor, crossmodal: bool, inmodal: bool) -> Tensor:
    """From rankclip/train.py of the same commit, with rank_weight = 1: both losses divided by 32 and by batch_size."""
    s, x, y = (SCALE * a @ b.T for a, b in ((image, text), (image, image), (text, text)))
    total = image.new_zeros(())
    for one, other, used in ((s, s.T, crossmodal), (x, y, inmodal)):
        if used:
            total = total + (list_mle(one, other) + list_mle(other, one)) / 32 / len(image)
    return total


@pytest.mark.parametrize("B", [1, 7])
@pytest.mark.parametrize(("crossmodal", "inmodal"), [(True, True), (True, False), (False, True)])
def test_loss_matches_the_double_loop(B: int, crossmodal: bool, inmodal: bool) -> None:
    image, text = random_pairs(B, 4)
    found = loss_of({"rank": {"crossmodal": crossmodal, "inmodal": inmodal}}, embed(image, text, SCALE)).total
    assert abs(found - by_loops(image, text, crossmodal, inmodal)) < 1e-9


def test_the_weight_grows_over_the_epochs_as_in_the_authors_code() -> None:
    # rank_weight = min(2, max(0, 3 (epoch - 1) / (max_epochs - 1))) with epochs from 1
    weights = [ramp(Progress(step=0, total_steps=1, epoch=e - 1, total_epochs=7)) for e in range(1, 8)]
    assert weights == pytest.approx([0, 0.5, 1, 1.5, 2, 2, 2])
    terms: Terms = {"rank": {"ramp": True}}
    assert loss_of(terms, embed(*random_pairs(5, 4), SCALE)).total.item() == 0  # in the first epoch
    objective = objectives.build(terms, 5)
    second = objective(embed(*random_pairs(5, 4), SCALE), {}, Progress(1, 7, 1, 7)).total.item()
    assert second == pytest.approx(0.5 * loss_of({"rank": {}}, embed(*random_pairs(5, 4), SCALE)).total.item())
    assert "weight 0" in objective.notes(1)[0] and objective.notes(2) == []
