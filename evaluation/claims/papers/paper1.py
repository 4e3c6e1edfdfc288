"""Paper 1: CLIP with a positive-pair regulariser.

Smallest effects of interest: about a quarter of the published effect.
"""

from evaluation.claims.comparisons import below, level, more, near
from evaluation.claims.measures import MetricReader
from evaluation.claims.names import MARGIN, MARGINS_ABOVE_0, PROBE, RECALL_MEAN, aliases
from evaluation.claims.types import Claim

MARGINS = ("margin_mscoco", "margin_mini")
ARMS = ("clip_reg_cc3m", "clip_reg_mini")
OVER_CHANCE = MetricReader("zeroshot", ("top1",), above_chance=True)
# Tables 1 and 7 leave out Flowers and Pets, which Table 2 (linear probing) has.
ZEROSHOT = MetricReader("zeroshot", ("top1",), without=aliases("Flowers", "Pets"))

CLAIMS = (
    Claim(
        "1.1",
        "Margins are positive in trained models and centred at 0 in untrained ones",
        "densities only (Fig. 3)",
        MARGINS,
        (
            level("tau_07", MARGINS_ABOVE_0, 0.75, "share of positive margins, tau 0.07"),
            level("tau_01", MARGINS_ABOVE_0, 0.75, "share of positive margins, tau 0.01"),
            near("untrained", MARGINS_ABOVE_0, 0.5, 0.1, "the share of positive margins, untrained"),
        ),
    ),
    Claim(
        "1.2",
        "Lowering tau from 0.07 to 0.01 shrinks the margins",
        "densities only (Fig. 3)",
        MARGINS,
        (more("tau_07", "tau_01", MARGIN, quantity="mean margin"),),
    ),
    Claim(
        "1.3",
        "At tau = 0.01 the positive term increases the margins",
        "densities only (Fig. 6)",
        MARGINS,
        (more("tau_01_reg", "tau_01", MARGIN, quantity="mean margin"),),
    ),
    Claim(
        "1.4",
        "With the positive term alone, zero-shot is at chance and linear probing is far below CLIP",
        "zero-shot 10.04 on CIFAR-10, 1.05 on CIFAR-100; probe 6.51 against 72.75 (Tables 1, 2)",
        ARMS,
        (
            below("reg_only", OVER_CHANCE, 0.05, "reg_only's zero-shot above chance"),
            more("clip", "reg_only", PROBE, 0.1, "linear probe"),
        ),
    ),
    Claim(
        "1.5",
        "CLIP with the positive term beats CLIP in zero-shot (mean of the data sets)",
        "41.26 against 39.20 (Table 1)",
        ARMS,
        (more("clip_reg", "clip", ZEROSHOT, 0.005, "zero-shot"),),
    ),
    Claim(
        "1.6",
        "CLIP with the positive term beats CLIP in linear probing (mean of the data sets)",
        "74.29 against 72.75 (Table 2)",
        ARMS,
        (more("clip_reg", "clip", PROBE, 0.005, "linear probe"),),
    ),
    Claim(
        "1.7",
        "CLIP with the positive term beats CLIP in retrieval (mean of R@1, R@5, R@10 in both directions)",
        "72.40 against 70.47 on Flickr30k, 47.14 against 46.86 on MSCOCO",
        ARMS,
        (more("clip_reg", "clip", RECALL_MEAN, 0.003, "retrieval"),),
    ),
    Claim(
        "1.8",
        "A negative-pair term gains less in zero-shot than the positive term (mean of the data sets)",
        "39.52 against 41.26, CLIP 39.20 (Table 5)",
        ARMS,
        (more("clip_reg", "clip_neg", ZEROSHOT, 0.004, "zero-shot"),),
    ),
    Claim(
        "1.9",
        "The positive term also improves zero-shot with a second encoder (mean of the data sets)",
        "32.05 against 31.02 with TinyViT (Table 7)",
        ARMS,
        (more("second_clip_reg", "second_clip", ZEROSHOT, 0.0025, "zero-shot"),),
    ),
    Claim(
        "1.10",
        "The margin is of order tau without the positive term and of order gamma with it",
        "Corollary 6.1, Theorems 6.2, 6.3",
        program="clipx theory margin",
    ),
    Claim(
        "1.11",
        "The square loss fails in zero-shot in a case where CLIP's error goes to 0",
        "top-1 error of at least 1/(3K) (Corollary 5.7)",
        program="clipx theory margin",
    ),
    Claim(
        "1.12",
        "In many image-caption pairs the caption omits an object of the image",
        "histogram only, MSCOCO (Fig. 4)",
        program="clipx report missing-objects ANNOTATIONS",
    ),
)
