"""Paper 4: the modality gap.

Geometry has no smallest effect of interest but 0, as the gap's size depends on towers and data. Rank correlations
over arms: at least 0.8 for "falls as ... rises", above 0 for "goes with", below 0.5 in size for "follows neither".
"""

from evaluation.claims.measures import EarlyChange, Setting, SlowClosure
from evaluation.claims.parts import closer, level, more, often, rises, unrelated
from evaluation.claims.scores import GAP, PAIR_ACCURACY, PROBE, RECALL_1, UNIFORMITY, ZEROSHOT
from evaluation.claims.types import ANY, Claim

ARMS = ("gap_mscoco", "gap_mini")
USEFUL = ("flt_1e-2", "flt_2e-2", "flt_4e-2", "flt_7e-2")  # above, retrieval falls (Table 3)
FIXED = (*USEFUL, "flt_1e-1", "flt_2e-1", "flt_3e-1", "flt_4e-1")
SCHEDULES = ("ts_s0", "ts_s1", "ts_s2", "ts_s3", "ts_a0", "ts_a1")
OTHERS = ("base", "softplus", "scale_2", "scale_10", "slrt")
MIXED = ("hs_1", "hs_1e-1", "hs_1e-2", "hs_1e-3", "hs_rows", "ss_1e-2", "ss_5e-2", "ss_1e-1")
ALL = (*OTHERS, *FIXED, *SCHEDULES, *MIXED, "no_norm")
CLOSING = ("flt_4e-2", "ts_s3", "softplus", "slrt", "ss_5e-2")  # of Table 2
SWAPPED = {"gap_mscoco": "hs_1e-3", "gap_mini": "hs_1e-1"}  # the small runs are too short for 1e-3
TAU = Setting("temperature.tau")

CLAIMS = (
    Claim(
        "4.1",
        "The gap closes slowly, as a line in 1/log^2 t after step 100 does (other slow curves fit too)",
        "a line by eye (Fig. 4)",
        ("gap_dynamics_mscoco", "gap_dynamics_mini"),
        (level(ANY, SlowClosure(), 0.9, "R^2 of the line"),),
    ),
    Claim(
        "4.2",
        "The gap grows in the first ten steps from random initialisation",
        "always, by 0.15 in the mean of 100 initialisations (Fig. 4)",
        ("gap_init_mscoco", "gap_init_mini"),
        (
            often(ANY, EarlyChange(), 0.95, "share of initialisations"),
            level(ANY, EarlyChange(), 0.0, "change of the gap"),
        ),
    ),
    Claim(
        "4.3",
        "The gap falls as a fixed tau rises",
        ".669 at 0.01, .334, .122, .033, .019, .008, .007, .009 at 0.4 (Table 3)",
        ARMS,
        (rises(FIXED, TAU, GAP, 0.8, "−gap and tau", sign=-1),),
    ),
    Claim(
        "4.4",
        "Each of FLT, TS, TR, SLRT, HS, SS closes the gap against the learned baseline",
        "base .294; .122, .088, .284, .268, .225, .139 (Table 2)",
        ARMS,
        (
            *(more("base", arm, GAP, what="gap") for arm in CLOSING),
            *(more("base", arm, GAP, what="gap", only=recipe) for recipe, arm in SWAPPED.items()),
        ),
    ),
    Claim(
        "4.5",
        "Among useful temperatures a smaller gap goes with better retrieval",
        "R@1 rises as the gap falls for tau 0.01 to 0.07 and S0 to S3 (Tables 3, 4)",
        ARMS,
        (rises((*USEFUL, *SCHEDULES[:4]), GAP, RECALL_1, 0.0, "R@1 and −gap", sign=-1),),
    ),
    Claim(
        "4.6",
        "Zero-shot and linear probe follow uniformity, not the gap",
        "scatter plots (Figs. 6, 7)",
        ARMS,
        (
            rises(ALL, UNIFORMITY, ZEROSHOT, 0.0, "zero-shot and uniformity"),
            closer(ALL, ZEROSHOT, UNIFORMITY, GAP, "zero-shot: tied to uniformity more than to the gap"),
            rises(ALL, UNIFORMITY, PROBE, 0.0, "linear probe and uniformity"),
            closer(ALL, PROBE, UNIFORMITY, GAP, "linear probe: tied to uniformity more than to the gap"),
        ),
    ),
    Claim(
        "4.7",
        "Minimal pairs (MMVP) follow neither gap nor uniformity",
        "base 14.32; FLT 11.85 to 14.82, TS 13.09 to 14.32 (Table 1)",
        ARMS,
        (
            unrelated(ALL, GAP, PAIR_ACCURACY, 0.5, "pair accuracy and gap"),
            unrelated(ALL, UNIFORMITY, PAIR_ACCURACY, 0.5, "pair accuracy and uniformity"),
        ),
    ),
    Claim(
        "4.8",
        "Lemma 3.1, Theorems 3.2 and 3.3, Appendix C",
        "closed forms",
        (),
        program="clipx theory gap_flow",
    ),
)
