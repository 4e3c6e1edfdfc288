"""Paper 5: weighted point set embedding.

Smallest effects of interest: about a quarter of the published effect. Bounds that the paper does not give are ours:
"little" (5.5) means half a point; no "significant change" means at most 10% more time per step (5.7) and 1% more
parameters (5.11).
"""

from evaluation.claims.measures import PER_CLASS, PER_CLASS_BEFORE, PER_CLASS_PROBE, PER_CLASS_ZEROSHOT, SpreadOfMean
from evaluation.claims.types import Claim, below, more, more_or_diverged

RECIPES = ("wpse_cc3m", "wpse_cc12m", "wpse_photos", "wpse_mini")
# recipes that train the towers, so that features before the projection differ
BEFORE = ("wpse_cc3m", "wpse_cc12m", "wpse_mini")
KERNELS = ("gaussian", "imq")
# recipe -> the arm that uses the same kernel as the arms positive_weights and nonlinear
SAME_KERNEL = {"wpse_cc3m": "imq", "wpse_cc12m": "gaussian", "wpse_photos": "imq", "wpse_mini": "imq"}
SPREAD = SpreadOfMean(PER_CLASS)

CLAIMS = (
    Claim(
        "5.1",
        "WPSE beats CLIP in zero-shot (mean of the data sets)",
        "26.75, 27.04 against 25.03 (CC3M); 46.12, 45.71 against 43.78 (CC12M) (Table 1)",
        RECIPES,
        tuple(more(arm, "clip", PER_CLASS_ZEROSHOT, 0.004, "zero-shot") for arm in KERNELS),
    ),
    Claim(
        "5.2",
        "WPSE beats CLIP in linear probing, after and before the projection (mean of the data sets)",
        "after: 69.01, 68.23 against 67.00 (CC3M), 79.08, 78.90 against 77.89 (CC12M); before: 73.77, 73.81 against "
        "72.14 (CC3M), 82.52, 82.71 against 81.03 (CC12M) (Table 2)",
        BEFORE,
        (
            *(more(arm, "clip", PER_CLASS_PROBE, 0.003, "linear probe") for arm in KERNELS),
            *(more(arm, "clip", PER_CLASS_BEFORE, 0.003, "linear probe before the projection") for arm in KERNELS),
        ),
    ),
    Claim(
        "5.3",
        "Signed weights are needed: without them zero-shot is far lower (mean of the data sets) or training diverges",
        "4.22 with positive weights against 27.04 (CC3M, Table 3); NaN against 46.12 (CC12M, appendix A.4)",
        RECIPES,
        tuple(
            more_or_diverged(arm, "positive_weights", PER_CLASS_ZEROSHOT, 0.05, "zero-shot", recipe)
            for recipe, arm in SAME_KERNEL.items()
        ),
    ),
    Claim(
        "5.4",
        "The nonlinear kernel improves linear probing (mean of the data sets)",
        "68.23 (IMQ) against 67.40 (CC3M, Table 3); 79.08 (Gaussian) against 78.61 (CC12M, Table 6); with the other "
        "kernel 69.01 and 78.90 (Table 2)",
        RECIPES,
        tuple(more(arm, "linear", PER_CLASS_PROBE, 0.0015, "linear probe") for arm in KERNELS),
    ),
    Claim(
        "5.5",
        "The draw of the random features changes zero-shot little (mean of the data sets)",
        'no "significant impact on the overall performance" (section 6.2); the mean over the data sets of the standard '
        "deviation over five draws is .15 to .31 points (Table 5)",
        RECIPES,
        tuple(below(arm, SPREAD, 0.005, "standard deviation over five draws") for arm in KERNELS),
    ),
    Claim(
        "5.6",
        "Point sets approach the pointwise mutual information where the inner product cannot",
        "Proposition 4.1, section 5.1, Theorem 5.1",
        program="clipx theory pmi",
    ),
    Claim(
        "5.7",
        "The compute time of a step does not change significantly: at most 1.10 times CLIP's on the paper's towers",
        '"without any significant change to the model size or computation time" (section 5.3); no number',
        program="clipx bench wpse",
    ),
    Claim(
        "5.8",
        "The linear and the nonlinear kernel together beat the nonlinear kernel alone in zero-shot and linear probing "
        "(mean of the data sets), or training with the latter diverges",
        "zero-shot 46.12 against 44.05, probe 79.08 against 70.99 (CC12M, Table 6); NaN (CC3M, section 6.4)",
        RECIPES,
        tuple(
            more_or_diverged(arm, "nonlinear", reader, least, quantity, recipe)
            for recipe, arm in SAME_KERNEL.items()
            for reader, least, quantity in (
                (PER_CLASS_ZEROSHOT, 0.005, "zero-shot"),
                (PER_CLASS_PROBE, 0.02, "linear probe"),
            )
        ),
    ),
    Claim(
        "5.9",
        "At the optimal similarity, the excess risk of the linear classifier is at most the sum of two divergences",
        "Theorem 4.2",
        program="clipx theory pmi",
    ),
    Claim(
        "5.10",
        "A similarity within Delta of the optimal one adds at most 2 Delta to the bound of claim 5.9",
        "Theorem 4.4",
        program="clipx theory pmi",
    ),
    Claim(
        "5.11",
        "The model size does not change significantly: at most 1.01 times CLIP's parameters on the paper's towers",
        '"without any significant change to the model size or computation time" (section 5.3); no number',
        program="clipx bench wpse",
    ),
)
