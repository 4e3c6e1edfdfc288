"""Claims, the comparisons that test them, and the results of testing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from evaluation.runs.reader import Run

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Values = list[tuple[float, ...]]  # values of one seed: for each arm of a comparison, one number per measure
ANY = "*"  # as a comparison's only arm: every run of the recipe


class Measure(Protocol):
    """A quantity of a run."""

    def read(self, run: Run) -> dict[str, float]:
        """Return the values by name, usually one per data set; {} if the run lacks them.

        The quantity is the mean of the values. Runs are compared on the names that all of them have.
        """
        ...


@dataclass(frozen=True)
class Comparison:
    """A test of a claim. A larger effect supports the claim."""

    label: str
    arms: tuple[str, ...]  # arms of the recipe, or `ANY`
    measures: tuple[Measure, ...]
    effect: Callable[[Values], float]  # from the values of one seed
    least: float  # smallest effect of interest, see evaluation.claims.verdict
    interval: Literal["t", "share", "rank"] = "t"  # for a mean over seeds, a share of seeds, a mean rank correlation
    min_arms: int = 0  # number of arms that must have runs; 0 for all
    only_recipe: str = ""  # the one recipe that it applies to; "" for all recipes of the claim
    diverging_arm: str = ""  # the comparison holds if this arm, and no other, diverges in every seed


@dataclass(frozen=True)
class Claim:
    """A statement of a paper. It holds if all of its comparisons hold."""

    id: str  # "paper.number"
    statement: str
    published: str  # the paper's numbers and their place in the paper
    recipes: tuple[str, ...] = ()  # each recipe has its own verdict: scales are never mixed
    comparisons: tuple[Comparison, ...] = ()  # empty if a program checks the claim
    program: str = ""  # command that writes a claims.json with the findings

    @property
    def paper(self) -> int:
        """1..5."""
        return int(self.id.partition(".")[0])


@dataclass(frozen=True)
class Finding:
    """Result of one comparison."""

    label: str
    verdict: Verdict
    seeds: int = 0  # number of seeds behind the effect
    effect: float | None = None  # mean over the seeds
    low: float | None = None  # 95% interval
    high: float | None = None
    least: float | None = None
    note: str = ""  # reason for a missing verdict, or a remark for the reader


@dataclass(frozen=True)
class Outcome:
    """Verdict on a claim at one scale."""

    claim: Claim
    recipe: str  # name of the recipe, or the program that checked the claim
    verdict: Verdict
    findings: list[Finding]
