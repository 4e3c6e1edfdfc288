"""Paper 3: NUCLR.

Smallest effects of interest: about a quarter of the published effect. The paper calls its overhead negligible, without
a number; our bound is 3% of a step.
"""

from evaluation.claims.comparisons import level, more
from evaluation.claims.names import RECALL_1_AND_ZEROSHOT, ZETA_POPULARITY
from evaluation.claims.types import Claim

ARMS = ("nuclr_cc3m", "nuclr_cc12m", "nuclr_mini")

CLAIMS = (
    Claim(
        "3.1",
        "SogCLR beats CLIP at the same small batch size (mean of retrieval and zero-shot)",
        "39.16 against 35.10 (CC3M), 42.28 against 38.79 (CC12M)",
        ARMS,
        (more("sogclr", "clip", RECALL_1_AND_ZEROSHOT, 0.009, "R@1 and zero-shot"),),
    ),
    Claim(
        "3.2",
        "NUCLR beats SogCLR (mean of retrieval and zero-shot)",
        "40.26 against 39.16 (CC3M), 43.20 against 42.28 (CC12M)",
        ARMS,
        (more("nuclr", "sogclr", RECALL_1_AND_ZEROSHOT, 0.0025, "R@1 and zero-shot"),),
    ),
    Claim("3.3", "The popularity q is recovered up to a constant", "Figure 2", program="clipx theory popularity"),
    Claim(
        "3.4",
        "The global contrastive loss keeps an error; NUCLR nearly matches maximum likelihood",
        "Figure 2",
        program="clipx theory popularity",
    ),
    Claim(
        "3.5",
        "The learned zeta is larger for concepts that occur more often",
        "examples only",
        ("nuclr_mini",),
        (level("nuclr", ZETA_POPULARITY, 0.1, "rank correlation of zeta and popularity"),),
    ),
    Claim(
        "3.6",
        "NUCLR's overhead is negligible: its step takes at most 1.03 times CLIP's, without waiting for data",
        "stated; no number",
        program="clipx bench nuclr",
    ),
)
