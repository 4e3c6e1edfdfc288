"""The arms of the recipes: `ARMS` at the papers' scale, `ARMS_OF_OTHERS` of miniatures and of recipes on dynamics."""

CLIP_REG = ["clip", "clip_reg", "cyclip", "cyclip_reg", "reg_only", "clip_neg"]
CLIP_REG += ["clip_tau_min_07", "clip_reg_tau_min_07", "second_clip", "second_clip_reg"]
MARGIN = ["untrained", "tau_07", "tau_01", "tau_01_reg"]
COUNTING = ["clip", *(f"{d}_{g}_{e}" for d in ("own", "same_label") for g in ("log1p", "ratio") for e in (100, 1000))]
FLT = ["1e-2", "2e-2", "4e-2", "7e-2", "1e-1", "2e-1", "3e-1", "4e-1"]
HS, SS = ["1", "1e-1", "1e-2", "1e-3"], ["1e-2", "5e-2", "1e-1"]
SCHEDULES = ["ts_s0", "ts_s1", "ts_s2", "ts_s3", "ts_a0", "ts_a1"]
GAP = ["base", *(f"flt_{t}" for t in FLT), *SCHEDULES, "softplus", "scale_2", "scale_10", "slrt"]
GAP += [*(f"hs_{p}" for p in HS), "hs_rows", *(f"ss_{p}" for p in SS), "no_norm"]
NUCLR = ["clip", "siglip", "dcl", "cyclip", "sogclr", "gcl", "nuclr"]
WPSE = ["clip", "gaussian", "imq", "positive_weights", "linear", "nonlinear"]
ARMS = {
    "clip_reg_cc3m": CLIP_REG,
    "margin_mscoco": MARGIN,
    "counting_datacomp": COUNTING,
    "gap_mscoco": GAP,
    "nuclr_cc3m": NUCLR,
    "nuclr_cc12m": NUCLR,
    "wpse_cc3m": WPSE,
    "wpse_cc12m": WPSE,
}
# Tables 2 to 5 of paper 4 have 26 arms; gap_mscoco also has both ends of the range that paper 4 searched for soft
# mixing
GAP_TABLES = [arm for arm in GAP if arm not in ("ss_1e-2", "ss_1e-1")]
ARMS_OF_OTHERS = {
    "clip_reg_mini": CLIP_REG,
    "counting_mini": [*COUNTING, "mislabelled_own_log1p", "mislabelled_own_ratio"],
    "gap_mini": GAP_TABLES,
    "nuclr_mini": [*NUCLR, "nuclr_unbiased"],
    "gap_dynamics_mini": ["learned", "tau_07", "start", "small_gap"],
    "gap_dynamics_mscoco": ["learned", "tau_07", "start", "small_gap"],
}
