"""Paper 3: NUCLR.

Smallest effects of interest: about a quarter of the published one. The paper gives no number for its negligible
overhead; three per cent of a step is our bound.
"""

from evaluation.claims.comparisons import level, more, no_slower
from evaluation.claims.measures import StepTime
from evaluation.claims.scores import RECALL_1_AND_ZEROSHOT, ZETA_POPULARITY
from evaluation.claims.types import Claim

ARMS = ("nuclr_cc3m", "nuclr_cc12m", "nuclr_mini")

CLAIMS = (
    Claim(
        "3.1",
        "SogCLR beats CLIP at the same small batch, mean of retrieval and zero-shot",
        "39.16 against 35.10 (CC3M), 42.28 against 38.79 (CC12M)",
        ARMS,
        (more("sogclr", "clip", RECALL_1_AND_ZEROSHOT, 0.009, "R@1 and zero-shot"),),
    ),
    Claim(
        "3.2",
        "NUCLR beats SogCLR, mean of retrieval and zero-shot",
        "40.26 against 39.16 (CC3M), 43.20 against 42.28 (CC12M)",
        ARMS,
        (more("nuclr", "sogclr", RECALL_1_AND_ZEROSHOT, 0.0025, "R@1 and zero-shot"),),
    ),
    Claim(
        "3.3",
        "Popularity q is recovered up to a constant",
        "Figure 2",
        (),
        program="clipx theory popularity",
    ),
    Claim(
        "3.4",
        "The global contrastive loss keeps an error, the method nearly matches maximum likelihood",
        "Figure 2",
        (),
        program="clipx theory popularity",
    ),
    Claim(
        "3.5",
        "Learned zeta rises with how often a concept occurs",
        "examples only",
        ("nuclr_mini",),
        (level("nuclr", ZETA_POPULARITY, 0.1, "rank correlation of zeta and popularity"),),
    ),
    Claim(
        "3.6",
        "The overhead is negligible: computing a step takes at most 1.03 of CLIP's time, waiting for data left out",
        "stated; no number",
        ARMS,
        (no_slower("nuclr", "clip", StepTime(), 1.03),),
    ),
)
