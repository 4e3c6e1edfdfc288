"""Claims on size that `clipx bench` checks: exact numbers, which need no training step."""

from collections.abc import Mapping

import torch

from clipx import objectives
from clipx.config.schema import RunConfig
from clipx.models.clip import build_model
from clipx.theory.claims import Check, CheckedClaim
from clipx.training.cost import FLOAT32_BYTES

TABLE_PAIRS = 12_000_000  # training pairs in paper 3, appendix G


def parameters(configs: Mapping[str, RunConfig]) -> CheckedClaim:
    """Compare the number of parameters of all arms with that of the first arm (paper 5, section 5.3)."""
    reference, *arms = configs
    counts = {}
    for arm, config in configs.items():
        with torch.device("meta"):  # allocates nothing
            model = build_model(config, pretrained=False)
        counts[arm] = sum(p.numel() for p in model.parameters())
    statement = "The model size does not change significantly against CLIP with the same towers"
    ratio = "ratio of parameters {} / {}"
    # bound: ours; the paper states no significant change, without a number
    checks = [Check(ratio.format(arm, reference), counts[arm] / counts[reference], high=1.01) for arm in arms]
    return CheckedClaim("5.11", statement, checks)


def added_state(configs: Mapping[str, RunConfig]) -> CheckedClaim:
    """Compute the MB that nuclr stores for TABLE_PAIRS pairs and sogclr does not (paper 3, appendix G).

    sogclr is nuclr with zeta = 0.
    """
    nuclr = objectives.build(configs["nuclr"].objective, TABLE_PAIRS).columns
    sogclr = objectives.build({"sogclr": {}}, TABLE_PAIRS).columns
    added = FLOAT32_BYTES * TABLE_PAIRS * (len(nuclr) - len(sogclr)) / 1e6
    statement = "The state that NUCLR adds to SogCLR's takes less than 100 MB for 12 million pairs"
    return CheckedClaim("3.13", statement, [Check("MB for 12 million pairs", added, high=100)])
