"""Memory that the papers' methods add: per-sample state (claim 3.13), parameters (claim 5.11); no training."""

from collections.abc import Mapping

from clipx import objectives
from clipx.config.presets import OBJECTIVES
from clipx.theory.claims import Check, CheckedClaim

PAIRS = 12_000_000  # paper 3, appendix G
MOST_MEGABYTES = 100.0  # paper 3, appendix G: "less than 100MB"
MOST_PARAMETERS = 1.01  # ours; paper 5, section 5.3: no "significant change to the model size"
BYTES = 4  # of a float32


def state_claim() -> CheckedClaim:
    """Compare the state of NUCLR with that of SogCLR, in decimal megabytes."""
    columns = {name: len(objectives.build(OBJECTIVES[name], PAIRS).columns) for name in ("nuclr", "sogclr")}
    megabytes = {name: BYTES * PAIRS * count / 1e6 for name, count in columns.items()}
    added = Check("MB that nuclr adds to sogclr", megabytes["nuclr"] - megabytes["sogclr"], high=MOST_MEGABYTES)
    return CheckedClaim("3.13", f"Per-sample state of {PAIRS:,} pairs, images and texts", [added])


def size_claim(parameters: Mapping[str, int], reference: str = "clip") -> CheckedClaim:
    """Compare numbers of parameters by arm with those of the reference."""
    checks = [
        Check(f"parameters of {arm} / {reference}", count / parameters[reference], high=MOST_PARAMETERS)
        for arm, count in parameters.items()
        if arm != reference
    ]
    return CheckedClaim("5.11", "Parameters of both towers, heads and temperature", checks)
