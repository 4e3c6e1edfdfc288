"""Tiny runs with any term, mixing and optimizer, and the comparison of their results."""

import torch
from torch import Tensor

from clipx import objectives
from clipx.config.schema import RunConfig
from tests.helpers import tiny

TERMS: dict[str, dict[str, object]] = {
    "keyword": {"weight": 2.0},
    "nuclr": {"eta": 0.3, "freeze_steps": 1},
    "fastclip_v2": {"tau0": 0.2, "eta": 0.001},  # at the default tau0, exp(D_ij / tau_i) amplifies rounding errors
    "glofnd": {"start_epoch": 0, "alpha": 0.3},
    "neuclip": {"prototypes": 12, "restart": 2, "updates": 2},
}
TERMS |= {name: {} for name in objectives.TERMS if name not in TERMS}
FIRST = "clip+siglip+nuclr"
_OTHERS = [name for name in TERMS if name not in FIRST.split("+")]
# each term is in one of these sums; a gradient of one term that is 5% too large is seen in the weights of its sum
SUMS = [FIRST, *("+".join(_OTHERS[k::3]) for k in range(3))]
OPTIMIZERS = {"adamw": 0.01, "sgd": 0.1}  # learning rates
Result = dict[str, Tensor]  # name -> weight, column or loss, as `tiny.train` returns


def settings(terms: str, mixing: str, kind: str) -> RunConfig:
    """Return the settings of a run with these terms (names joined by +), mixing and optimizer: `tiny.components`."""
    names = terms.split("+")
    needs = {need for name in names for need in objectives.TERMS[name].needs}
    config = tiny.settings({name: TERMS[name] for name in names})
    config.mixing.kind, config.mixing.probability = mixing, 0.0 if mixing == "none" else 0.7
    config.optimizer.kind, config.optimizer.lr = kind, OPTIMIZERS[kind]
    config.temperature.tau, config.train.ema = 0.2, 0.5
    config.temperature.bias = -2.0 if "bias" in needs else None
    config.model.teacher = "tiny" if "teacher" in needs else None
    return config


def assert_same(found: Result, expected: Result, moved_from: Result) -> None:
    """Compare up to float32 rounding, and check that the weights have moved."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=2e-6, msg=tiny.about(name))
        if name in moved_from and name != "temperature.nu":
            assert (value - moved_from[name]).abs().max() > 1e-4, f"{name} has hardly been trained"
