"""Paper 3: NUCLR, which learns a log-popularity zeta of each image and text.

Smallest effects of interest: about a quarter of the published effect, of the smaller one if the paper has two. Bounds
that the paper does not give are ours; (5) is the paper's equation:

  3.5, 3.10  zeta follows the optimum of (5) if their rank correlation is above 0.5, half-way between unrelated (0) and
             the same order (1).
  3.11       zeta rises with popularity if their rank correlation is above 0.1; even at the optimum of (5), this
             correlation can be low.
  3.6        "can be ignored" means at most 3% of a step.

The paper's global contrastive loss contains the own (positive) pair in its denominator (appendix A). SogCLR's released
code leaves the own pair out. The paper does not say which form its SogCLR runs used. Arm `sogclr` follows the code, arm
`gcl` the formula. NUCLR's loss contains the own pair: `nuclr` against `gcl` measures the effect of zeta alone, `nuclr`
against `sogclr` the effects of zeta and the own pair together.
"""

from dataclasses import replace

from evaluation.claims.measures import RECALL_1_AND_ZEROSHOT, ZETA_OPTIMUM, ZETA_POPULARITY
from evaluation.claims.types import Claim, Comparison, last_blocks, level, more

RECIPES = ("nuclr_cc3m", "nuclr_cc12m", "nuclr_photos", "nuclr_mini")
OPTIMUM = "rank correlation of zeta and the optimum of (5)"
POPULARITY = "rank correlation of zeta and popularity"


def beats(better: str, worse: str, least: float) -> tuple[Comparison, ...]:
    """Compare two arms by the mean of retrieval and zero-shot."""
    return (more(better, worse, RECALL_1_AND_ZEROSHOT, least, "R@1 and zero-shot"),)


CLAIMS = (
    Claim(
        "3.1",
        "SogCLR (as in its code, without the own pair) beats CLIP at the same small batch size (mean of retrieval and "
        "zero-shot)",
        "39.16 against 35.10 (CC3M), 42.28 against 38.79 (CC12M) (Table 1)",
        RECIPES,
        beats("sogclr", "clip", 0.009),
        controls=(last_blocks("nuclr_photos"),),
    ),
    Claim(
        "3.2",
        "NUCLR beats SogCLR (as in its code, without the own pair; mean of retrieval and zero-shot)",
        "40.26 against 39.16 (CC3M), 43.20 against 42.28 (CC12M) (Table 1)",
        RECIPES,
        beats("nuclr", "sogclr", 0.0025),
        controls=(last_blocks("nuclr_photos"),),
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
        "The zeta of Algorithm 1 follows the optimum of (5) on the final features",
        '"q is proportional to exp(zeta / tau) when zeta is optimized" (appendix G); no number',
        ("nuclr_mini",),
        (level("nuclr", ZETA_OPTIMUM, 0.5, OPTIMUM),),
    ),
    Claim(
        "3.6",
        "NUCLR's overhead is negligible: its step takes at most 1.03 times CLIP's on the paper's towers",
        '"can be ignored" (appendix G); no number',
        program="clipx bench nuclr",
    ),
    Claim(
        "3.7",
        "The global contrastive loss with the own pair beats CLIP at the same small batch size (mean of retrieval and "
        "zero-shot)",
        "as 3.1 (one SogCLR row in Table 1)",
        RECIPES,
        beats("gcl", "clip", 0.009),
    ),
    Claim(
        "3.8",
        "NUCLR beats the global contrastive loss with the own pair (mean of retrieval and zero-shot)",
        "as 3.2 (one SogCLR row in Table 1)",
        RECIPES,
        beats("nuclr", "gcl", 0.0025),
    ),
    Claim(
        "3.9",
        "NUCLR beats CLIP, SigLIP and CyCLIP (mean of retrieval and zero-shot)",
        "40.26 against 35.10, 35.35, 36.37 (CC3M), 43.20 against 38.79, 39.56, 39.15 (CC12M) (Table 1)",
        RECIPES,
        (*beats("nuclr", "clip", 0.011), *beats("nuclr", "siglip", 0.009), *beats("nuclr", "cyclip", 0.0095)),
    ),
    Claim(
        "3.10",
        "With weight 1/n for the own pair in zeta's gradient, zeta follows the optimum of (5) on the final features",
        "as 3.5; eq. (7) has the weight 1/n, Algorithm 1 has 1/B",
        ("nuclr_mini",),
        (replace(level("nuclr_unbiased", ZETA_OPTIMUM, 0.5, OPTIMUM), at_bound="nuclr_mini"),),
    ),
    Claim(
        "3.11",
        "The learned zeta is larger for concepts that occur more often, in Algorithm 1 and with the weight 1/n",
        '"can also serve as a measure of the popularity" (appendix G); no number',
        ("nuclr_mini",),
        (
            level("nuclr", ZETA_POPULARITY, 0.1, f"{POPULARITY}, nuclr"),
            level("nuclr_unbiased", ZETA_POPULARITY, 0.1, f"{POPULARITY}, nuclr_unbiased"),
        ),
    ),
    Claim(
        "3.12",
        "The error term of Theorem 2 does not vanish for the global contrastive loss and vanishes for NUCLR's q",
        "Theorem 2; Remark 4 (global contrastive loss), Figure 2 (NUCLR's q)",
        program="clipx theory popularity",
    ),
    Claim(
        "3.13",
        "The state that NUCLR adds to SogCLR's takes less than 100 MB for 12 million pairs (images and texts)",
        '"less than 100MB" (appendix G)',
        program="clipx bench nuclr",
    ),
)
