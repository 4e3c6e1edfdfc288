"""The protocol of a toy problem: settings -> `solve` -> result -> `claims` and `figure`.

Each file of a paper defines a dataclass of settings, a dataclass of results and these three functions.
`clipx.theory.THEORY` lists the problems.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipx.config.setting import Rule
from clipx.theory.figures import Panel
from clipx.verdict import CheckedClaim

Array = NDArray[np.float64]
OPEN_SHARE: Rule = (lambda v: 0 < v < 1, "between 0 and 1")


def each(rule: Rule, different: int = 1) -> Rule:
    """Return the rule that allows lists of numbers that `rule` allows, with at least `different` different ones."""
    allowed = rule[1] if different == 1 else f"{different} or more different numbers, each {rule[1]}"
    return lambda values: len(set(values)) >= different and all(rule[0](value) for value in values), allowed


@dataclass(frozen=True)
class Experiment:
    """A toy problem. `solve` computes the result from the settings; the other functions only read the result."""

    settings: type
    solve: Callable[[Any], Any]
    claims: Callable[[Any], list[CheckedClaim]]
    figure: Callable[[Any], list[Panel]]
