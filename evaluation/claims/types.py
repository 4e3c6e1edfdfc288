"""A claim, the parts that test it, and what came out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from evaluation.runs.reader import Run

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Values = list[tuple[float, ...]]  # of one seed: for each arm, in the part's order, one number a measure


class Measure(Protocol):
    """A number of a run."""

    def read(self, run: Run) -> dict[str, float]:
        """Its pieces by name (one a data set); the number is their mean. Empty where the run does not say.

        Two runs are compared on the pieces that both have.
        """
        ...


@dataclass(frozen=True)
class Comparison:
    """One comparison. `effect` is oriented so that more of it speaks for the claim."""

    label: str
    arms: tuple[str, ...]  # of the recipe; `ANY` is every run of it
    measures: tuple[Measure, ...]
    effect: Callable[[Values], float]  # of one seed
    least: float  # smallest effect of interest: see evaluation.claims.verdict
    interval: Literal["t", "share", "rank"] = "t"  # of a mean over seeds, a share of them, a mean rank correlation
    fewest: int = 0  # arms that must be there, of a part that takes those there are; 0: all
    only: str = ""  # the one recipe that it is for, where recipes have different arms
    fatal: str = ""  # the arm whose divergence in every seed, where no other arm diverges, is the claim's best case


ANY = "*"


@dataclass(frozen=True)
class Claim:
    """A statement of a paper. It holds where all of its parts do."""

    id: str  # "paper.number"
    statement: str
    published: str  # the paper's own numbers, with where they stand in it
    recipes: tuple[str, ...]  # each is judged by itself: scales are never mixed
    parts: tuple[Comparison, ...] = ()  # empty: a program states it (see `program`)
    program: str = ""  # the command that writes a claims.json about it

    @property
    def paper(self) -> int:
        """1..5."""
        return int(self.id.partition(".")[0])


@dataclass(frozen=True)
class Finding:
    """What the runs say about one part."""

    label: str
    verdict: Verdict
    seeds: int = 0  # behind the effect
    effect: float | None = None  # mean over the seeds
    low: float | None = None  # 95% interval
    high: float | None = None
    least: float | None = None
    note: str = ""  # why there is no verdict, or what a reader must know


@dataclass(frozen=True)
class Outcome:
    """A claim at one scale."""

    claim: Claim
    recipe: str  # or the program that stated it
    verdict: Verdict
    findings: list[Finding]
