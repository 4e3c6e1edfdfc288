"""Claims of our own, of no paper: what a higher tau and the positive term change in fine-tuning.

No direction is promised, so the claims are two-sided: a claim holds if its effect lies above s or below -s. The
smallest effect of interest s is 0.01, one percentage point of a mean score; nobody would choose a temperature or an
objective for less. The temperatures are those of paper 1, figure 3.

The gain is the rise of the scores on the new sets, those outside data.kept; the forgetting is the fall on the sets in
data.kept. Both arms of a claim start from the same weights, so the scores of these weights cancel: the arms differ in
gain by the difference of their scores on the new sets, and in forgetting by minus the difference on the kept sets.
"""

from evaluation.claims.comparisons import differs
from evaluation.claims.names import KEPT_SETS, NEW_SETS
from evaluation.claims.types import OWN, Claim, Measure

RECIPES = ("finetune_mscoco", "finetune_flickr30k", "finetune_mini")
LEAST = 0.01
TAU, TAU_ARMS = "A fixed tau of 0.07 instead of 0.01", ("tau_07", "tau_01")
POSITIVE, POSITIVE_ARMS = "The positive term", ("clip_reg", "clip")


def _changes(
    number: int, factor: str, arms: tuple[str, str], quantity: str, *measures: Measure, sign: int = 1
) -> Claim:
    """Return a claim on the difference between two arms. It compares `sign` times the sum of the measures."""
    comparison = differs(*arms, measures, LEAST, quantity, sign)
    statement = f"{factor} changes the {quantity} of fine-tuning"
    return Claim(f"{OWN}.{number}", statement, "our own claim, of no paper", RECIPES, (comparison,))


CLAIMS = (
    _changes(1, TAU, TAU_ARMS, "gain", NEW_SETS),
    _changes(2, TAU, TAU_ARMS, "forgetting", KEPT_SETS, sign=-1),
    _changes(3, TAU, TAU_ARMS, "gain minus forgetting", NEW_SETS, KEPT_SETS),
    _changes(4, POSITIVE, POSITIVE_ARMS, "gain", NEW_SETS),
    _changes(5, POSITIVE, POSITIVE_ARMS, "forgetting", KEPT_SETS, sign=-1),
    _changes(6, POSITIVE, POSITIVE_ARMS, "gain minus forgetting", NEW_SETS, KEPT_SETS),
)
