"""`clipx reproduce until=decided`: add seeds look by look, until all claims are decided.

A look is a number of seeds at which claims are judged. The first look trains all arms, each further look only the arms
that undecided claims need. Claims may have different first looks; all of these come before any further look.

Nothing is stored between calls: a second call with the same arguments goes through the same looks, because a verdict
depends only on the runs of its look, which are read from their folders.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cli.report.claims import Arm, mean_seconds, print_needs
from cli.reproduce.plan import PlannedRun, claim_looks, with_parents
from clipx.verdict import DECIDED
from evaluation.claims.assess import assess
from evaluation.claims.design import Design
from evaluation.claims.evidence import Evidence, collect_evidence
from evaluation.claims.table import claims_of
from evaluation.claims.types import ANY, Comparison, Outcome
from evaluation.claims.verdict import open_parts, stuck_parts
from evaluation.runs import reader


@dataclass
class Tried:
    """Runs that were tried: which are finished, which failed, and whether hours= ended before the others."""

    finished: list[Path] = field(default_factory=list)
    failures: dict[Path, Exception] = field(default_factory=dict)
    stopped: bool = False


RunAll = Callable[[list[PlannedRun]], Tried]


class Experiment:
    """The planned runs of some recipes, and the verdicts from the finished runs."""

    def __init__(self, runs: list[PlannedRun], designs: list[Design], max_seeds: int | None) -> None:
        """`runs`: all runs up to the last look; `designs`: one per recipe."""
        self.max_seeds = max_seeds
        self.runs, self.designs = runs, {design.recipe: design for design in designs}
        self.looks = {  # (claim, recipe) -> its looks
            (claim, design.recipe): claim_looks(claim, design.looks, max_seeds)
            for design in designs
            for claim in claims_of(design.recipe)
        }
        self.done = Tried()
        self.outcomes: list[Outcome] = []
        self.decided_at: dict[tuple[str, str], int] = {}  # claim id and recipe -> look
        self._read: dict[Path, reader.Run] = {}

    def first_look(self, recipe: str) -> int:
        """Return the smallest look of a recipe's claims."""
        return min(looks[0] for (_, of), looks in self.looks.items() if of == recipe)

    def order(self) -> list[int]:
        """Return all looks. First looks come first, so that every claim has a verdict before any gets more seeds."""
        first = {looks[0] for looks in self.looks.values()}
        return sorted(first) + sorted({look for looks in self.looks.values() for look in looks} - first)

    def needed(self, look: int) -> list[PlannedRun]:
        """Return the runs of a look that were not tried yet, those of the claims with the least training time first.

        If hours= ends the look early, as many claims as possible then have all their runs. Among runs of claims with
        the same time, the longest run comes first; runs of unknown length are last.
        """
        of_claims = self._arms_of_claims(look)
        first = {run.arm for run in self.runs if self.first_look(run.arm[0]) == look}  # a recipe's first look: all arms
        arms = first.union(*of_claims)
        tried = {*self.done.finished, *self.done.failures}
        runs = [run for run in self.runs if run.arm in arms and run.config.seed < look and run.folder not in tried]
        by_arm = self.evidence().runs
        seconds = {arm: mean_seconds(by_arm.get(arm[0], {}), arm[1]) or 0.0 for arm in arms}
        left = Counter(run.arm for run in runs)
        costs = [(sum(left[arm] * seconds[arm] for arm in needed), needed) for needed in of_claims]
        cheapest = {arm: min((cost for cost, needed in costs if arm in needed), default=math.inf) for arm in arms}
        return sorted(runs, key=lambda run: (cheapest[run.arm], -seconds[run.arm]))

    def _arms_of_claims(self, look: int) -> list[set[Arm]]:
        """Return the arms that each claim with this look needs, with those that they start from or learn from.

        All arms at the claim's first look, later those of undecided parts.
        """
        planned = {run.arm: run for run in self.runs}  # of one seed, which all arms have
        found = []
        for (claim, recipe), looks in self.looks.items():
            if look in looks:
                parts = claim.parts(recipe)
                if look > looks[0]:
                    of_claim = [o for o in self.outcomes if o.claim is claim and o.recipe == recipe]
                    parts = [part for outcome in of_claim for part in self.open_parts(outcome)]
                names = {arm for part in parts for arm in part.arms}  # ANY: all arms
                chosen = [run for arm, run in planned.items() if arm[0] == recipe and {arm[1], ANY} & names]
                found.append({run.arm for run in with_parents(chosen, list(planned.values())).values()})
        return found

    def open_parts(self, outcome: Outcome) -> list[Comparison]:
        """Return the undecided parts of an undecided claim that more seeds can decide.

        A part with a failed run is left out, because every further look uses that run too.
        """
        failed = {run.arm for run in self.runs if run.folder in self.done.failures}
        of_recipe = {arm for recipe, arm in failed if recipe == outcome.recipe}
        parts = [part for part, _ in open_parts(outcome)]
        return [part for part in parts if not (of_recipe & set(part.arms) or (of_recipe and part.arms == (ANY,)))]

    def add(self, tried: Tried, look: int) -> None:
        """Add the outcomes of runs and judge all claims again."""
        self.done.finished += tried.finished
        self.done.failures |= tried.failures
        self.done.stopped = tried.stopped
        self._read |= {path: reader.read(path) for path in tried.finished if path.is_dir()}
        evidence = self.evidence()
        self.outcomes = [assess(claim, recipe, evidence) for claim, recipe in self.looks]
        for outcome in self.outcomes:
            key = outcome.claim.id, outcome.recipe
            if outcome.verdict not in DECIDED:
                self.decided_at.pop(key, None)
            else:
                self.decided_at.setdefault(key, look)

    def evidence(self) -> Evidence:
        """Return the finished runs with the designs."""
        return collect_evidence(list(self._read.values()), [], self.designs)


def run_looks(experiment: Experiment, run_all: RunAll, log: Callable[[str], None]) -> str:
    """Train look by look until all claims are decided, or seeds or hours are spent. Return a line on the outcome.

    Args:
        run_all: trains and evaluates runs; skips finished runs.
        log: called with one line before each look.
    """
    for look in experiment.order():
        runs = experiment.needed(look)
        if not runs:
            continue
        log(f"look at {look} seeds: {len(runs)} runs of {_arms_by_recipe(runs)}")
        tried = run_all(runs)
        experiment.add(tried, look)
        if tried.stopped:
            left = len(runs) - len(tried.finished) - len(tried.failures)
            spent = f"hours= is used up; {left} runs of the look at {look} seeds remain: run the same command again"
            return f"{_state(experiment)}; {spent}"
    spent = "; all seeds are used" if any(map(experiment.open_parts, experiment.outcomes)) else ""
    return _state(experiment) + spent


def _arms_by_recipe(runs: list[PlannedRun]) -> str:
    """Return `clip_reg_mini (clip, clip_reg), gap_init_mini`."""
    arms: dict[str, dict[str, None]] = {}
    for run in runs:
        recipe, arm = run.arm
        arms.setdefault(recipe, {})[arm] = None
    return ", ".join(f"{recipe} ({', '.join(of)})" if any(of) else recipe for recipe, of in arms.items())


def _state(experiment: Experiment) -> str:
    """Return `until=decided: 2 of 3 claims are decided (1.4 at 3 seeds, 1.5 at 5 seeds); undecided: 1.6`."""
    outcomes = experiment.outcomes
    undecided = [outcome for outcome in outcomes if outcome.verdict not in DECIDED]
    ids = [outcome.claim.id for outcome in outcomes]

    def name(claim: str, recipe: str) -> str:
        return claim if ids.count(claim) == 1 else f"{claim} {recipe}"

    at = ", ".join(f"{name(*key)} at {look} seeds" for key, look in experiment.decided_at.items())
    decided = len(outcomes) - len(undecided)
    line = f"until=decided: {decided} of {len(outcomes)} claims are decided" + (f" ({at})" if at else "")
    left: dict[str, list[str]] = {}
    for outcome in undecided:
        reason = _why_no_seeds(experiment, outcome)
        left.setdefault(f"undecided{reason and f' ({reason})'}", []).append(name(outcome.claim.id, outcome.recipe))
    return "; ".join([line, *(f"{kind}: {', '.join(claims)}" for kind, claims in left.items())])


def _why_no_seeds(experiment: Experiment, outcome: Outcome) -> str:
    """Return why more seeds do not help an undecided claim; "" if they may."""
    stuck = stuck_parts(outcome)
    if without := [reason for finding, reason in stuck if finding.verdict == "not run"]:
        return without[0]
    if experiment.open_parts(outcome):
        return ""
    return "runs failed" if open_parts(outcome) else stuck[0][1]


def print_forecast(experiment: Experiment, folders: Iterable[Path], jobs: int) -> bool:
    """Print the seeds and hours that undecided claims need, from the runs in `folders`.

    Return False, and print nothing, if there are no runs.
    """
    experiment.add(Tried(finished=list(folders)), look=0)
    if not experiment.done.finished:
        return False
    first = {run.arm: experiment.first_look(run.config.recipe) for run in experiment.runs}
    print_needs(experiment.outcomes, experiment.evidence(), jobs, experiment.max_seeds, first)
    return True
