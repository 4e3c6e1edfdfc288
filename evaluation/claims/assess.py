"""Assessment of claims: from the runs of a recipe to findings and outcomes. verdict.py has the rule."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from statistics import fmean

import numpy as np

from clipx.verdict import DECIDED, REFUTED, overall
from evaluation.claims.conditions import final_loss
from evaluation.claims.design import (
    ERROR,
    LOOKS,
    LOOKS_WITHOUT_DESIGN,
    REPLICATION,
    Looks,
    changed_claims,
    describe_claims,
    equal_errors,
    look_after,
    look_at,
    spent_errors,
)
from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.types import ANY, Claim, Comparison, ControlCheck, Estimate, Finding, Outcome
from evaluation.claims.verdict import (
    adjust,
    are_two_groups,
    joined,
    judge,
    mean_estimate,
    no_help,
    p_value,
    share_estimate,
    spread_estimate,
)
from evaluation.runs.reader import Run
from evaluation.statistics import are_equal, binomial_interval

FEWEST_FAMILIES = 6  # of a sign test with an error of 2.5%: 0.5^6 = 0.016
DIVERGES = 0.5  # an arm diverges if more than this share of its runs diverges
AT_BOUND = "in the runs of docs/runs the effect lies at its bound: read it as an estimate"
NO_NUMBER = "the seeds give no finite effect"


def outcomes(claims: tuple[Claim, ...], evidence: Evidence) -> list[Outcome]:
    """Return one outcome per claim and recipe with runs; a claim without runs has one outcome, `not run`."""
    found = []
    for claim in claims:
        if claim.program:
            not_run = [Finding(claim.statement, "not run", note=f"run: {claim.program}")]
            findings = evidence.stated.get(claim.id) or not_run
            found.append(Outcome(claim, claim.program, overall([f.verdict for f in findings]), findings))
            continue
        by_recipe = [assess(claim, recipe, evidence) for recipe in claim.recipes]
        run = [outcome for outcome in by_recipe if outcome.verdict != "not run"]
        found += run or by_recipe[-1:]  # "not run" for the last recipe, the smallest: its note names the command
    return found


def assess(claim: Claim, recipe: str, evidence: Evidence) -> Outcome:
    """Return the outcome of the claim from the runs of one recipe."""
    findings = _findings(claim, recipe, evidence, looks_of(claim, recipe, evidence))
    verdict = overall([finding.verdict for finding in findings])
    checked_by = _controls(claim, recipe, evidence, findings)
    if any(check.reverses for check in checked_by):
        verdict = "depends"
    changes = _changes(claim, recipe, evidence)
    replicated = _replicated(claim, recipe, evidence, findings)
    return Outcome(claim, recipe, verdict, replicated, p_value(findings), changes, checked_by)


def _replicated(claim: Claim, recipe: str, evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Return the findings, each with its effect on the seeds of a replication, judged once."""
    arms = {
        arm: {seed - REPLICATION.start: run for seed, run in seeds.items() if seed in REPLICATION}
        for arm, seeds in evidence.runs.get(recipe, {}).items()
    }
    again = replace(evidence, runs={recipe: {arm: seeds for arm, seeds in arms.items() if seeds}}, _known={})
    replicated = []
    for part, found in zip(claim.parts(recipe), findings, strict=True):
        known = [set(seeds) for arm, seeds in again.runs[recipe].items() if arm in part.arms or part.arms == (ANY,)]
        seeds = _first_missing(set.intersection(*known)) if known else 0
        if seeds >= LOOKS[0]:
            estimate = _Part(part, recipe, again, {seeds: ERROR}).finding().estimate
            if estimate is not None and math.isfinite(estimate.low):
                numbers = f"{estimate.effect:.4f} [{estimate.low:.4f}, {estimate.high:.4f}], {seeds} seeds"
                found = replace(found, replication=f"{numbers}: {_agreement(found, estimate)}")
        replicated.append(found)
    return replicated


def _agreement(found: Finding, again: Estimate) -> str:
    """Say whether a replication agrees with a decided part: the same side of s, for *equivalent* between -s and s."""
    if found.verdict not in DECIDED or found.least is None:
        return "the part is undecided"
    same = (again.effect > found.least) == (found.verdict == "holds")
    outside = found.verdict == "equivalent" and again.effect < -found.least
    return "agrees" if same and not outside else "does not agree"


def _findings(claim: Claim, recipe: str, evidence: Evidence, looks: Looks) -> list[Finding]:
    return adjust([_Part(part, recipe, evidence, looks).finding() for part in claim.parts(recipe)])


def _controls(claim: Claim, recipe: str, evidence: Evidence, findings: list[Finding]) -> tuple[ControlCheck, ...]:
    """Return a check for each control with runs. It is judged once, at the seeds that the claim's arms have in it."""
    named = {arm for part in claim.parts(recipe) for arm in part.arms}
    checks, usual = [], evidence.runs.get(recipe, {})
    others = [run for run in evidence.others.get(recipe, ()) if named & {run.config.arm, ANY}]
    for control in claim.controls_of(recipe):
        arms: dict[str, Seeds] = {}
        for run in others:
            if control.fits(run, next(iter(usual.get(run.config.arm, {}).values()), None)):
                arms.setdefault(run.config.arm, {})[run.seed] = run
        seeds = min((_first_missing(set(of_arm)) for of_arm in arms.values()), default=0)
        if seeds >= LOOKS[0]:
            runs = evidence.runs | {recipe: usual | arms}
            found = _findings(claim, recipe, replace(evidence, runs=runs, _known={}), {seeds: ERROR})
            under = overall([finding.verdict for finding in found])
            checks.append(ControlCheck(control, tuple(filter(None, arms)), under, _reverses(findings, found)))
    return tuple(checks)


def _reverses(findings: list[Finding], control: list[Finding]) -> bool:
    """Return True if a control reverses the verdict on a claim.

    If the claim holds: the control refutes one of its parts. If the claim is refuted: the control refutes none of its
    parts, and one of the refuted parts holds.
    """
    if all(finding.verdict == "holds" for finding in findings):
        return any(finding.verdict in REFUTED for finding in control)
    pairs = [(a.verdict, b.verdict) for a, b in zip(findings, control, strict=True)]
    return all(after not in REFUTED for _, after in pairs) and any(a in REFUTED and b == "holds" for a, b in pairs)


def looks_of(claim: Claim, recipe: str, evidence: Evidence) -> Looks:
    """Return the looks at which the claim is judged: its own, else the stored design's, else LOOKS_WITHOUT_DESIGN."""
    if claim.looks:
        return spent_errors(claim.looks)
    stored = evidence.designs.get(recipe)
    return stored.judged_at if stored else equal_errors(LOOKS_WITHOUT_DESIGN)


def describe_looks(outcomes: Iterable[Outcome], evidence: Evidence) -> list[str]:
    """Return `R1, R2: judged at 3, 5, 8 seeds, error rate 0.04%, 0.47%, 1.99%`, one text per rule."""
    recipes: dict[str, list[str]] = {}
    for outcome in outcomes:
        if not outcome.claim.looks and not outcome.claim.program:
            looks = looks_of(outcome.claim, outcome.recipe, evidence)
            rates = ", ".join(dict.fromkeys(f"{error:.2%}" for error in looks.values()))
            text = f"judged at {', '.join(map(str, looks))} seeds, error rate {rates}"
            if outcome.recipe not in evidence.designs:
                text += " at each (no design was stored before the first seed)"
            recipes.setdefault(text, []).append(outcome.recipe)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in recipes.items()]


def _changes(claim: Claim, recipe: str, evidence: Evidence) -> str:
    """Return how the claim differs from the stored design; "" if it is equal or no design is stored."""
    if (stored := evidence.designs.get(recipe)) is None:
        return ""
    changes = changed_claims(stored.claims, describe_claims(recipe))
    of_claim = [change for change in changes if change.startswith(f"claim {claim.id}:")]
    return f"the design stored before the first seed differs: {of_claim[0]}" if of_claim else ""


class _Part:
    """One comparison of a claim, on the runs of one recipe."""

    def __init__(self, comparison: Comparison, recipe: str, evidence: Evidence, looks: Looks) -> None:
        self.comparison, self.recipe, self.evidence, self.looks = comparison, recipe, evidence, looks
        every_seed = evidence.runs.get(recipe, {})
        first = REPLICATION.start  # seeds from here on decide no verdict
        arms = {arm: {s: run for s, run in seeds.items() if s < first} for arm, seeds in every_seed.items()}
        if comparison.arms == (ANY,):
            arms = {ANY: {seed: run for seeds in arms.values() for seed, run in seeds.items()}}
        self.arms = {arm: arms[arm] for arm in comparison.arms if arms.get(arm)}
        counts = {arm: sum(run.diverged for run in seeds.values()) for arm, seeds in self.arms.items()}
        self.diverged = {arm: number for arm, number in counts.items() if number}  # arm -> number of its seeds
        design = evidence.designs.get(recipe)
        most = design.failed_loss if design else None
        # since version 0.2, a claim whose seeds fall into two groups is undecided
        self.guarded = design is not None and (most is not None or bool(design.errors))
        self.failed = {} if most is None else self._failed(most)  # arm -> its failed seeds
        self.note = "; ".join(self._failures())

    def _failed(self, most: float) -> dict[str, set[int]]:
        """Return the failed seeds of each arm that has some: the run diverged, or its final loss is above `most`."""
        of_arm = {
            arm: {seed for seed, run in seeds.items() if run.diverged or (final_loss(run) or 0.0) > most}
            for arm, seeds in self.arms.items()
        }
        return {arm: seeds for arm, seeds in of_arm.items() if seeds}

    def _failures(self) -> Iterator[str]:
        """Yield a text for each arm of which a seed failed or diverged."""
        for arm, seeds in self.failed.items():
            low, high = binomial_interval(len(seeds), len(self.arms[arm]))
            yield f"{arm} failed in {len(seeds)} of {len(self.arms[arm])} seeds (95% interval {low:.0%} to {high:.0%})"
        for arm, n in self.diverged.items():
            if arm not in self.failed:
                yield f"{arm} diverged in {n} of {len(self.arms[arm])} seeds"

    def finding(self) -> Finding:
        """Return the finding at the largest look that the seeds allow."""
        if missing := [arm for arm in self.comparison.arms if arm not in self.arms]:
            arm = "" if missing == [ANY] else f" arm={missing[0]}"
            return self._not_run(f"run: clipx train recipe={self.recipe}{arm} seed=0")
        if self.comparison.kind == "rank":
            finished = {arm: seeds for arm, seeds in self.arms.items() if self.diverged.get(arm) != len(seeds)}
            self.arms = finished or self.arms
        if look := self._look_of_expected_divergence():
            share = share_estimate(DIVERGES, look, look, self.looks[look])
            return replace(self._judge(share, look, look), least=DIVERGES)
        common = self._seeds_with_numbers(self.arms)
        if not self._trained(common):
            return self._not_run(self.note if common else self._why_no_numbers())
        shared = set.intersection(*map(set, self.arms.values()))
        look = look_at(self.looks, _first_missing(shared))
        blocked = self._blocked(shared - set(common), look)
        if not look or not set(range(look)) <= set(common):
            return self._too_few(common, look, blocked)
        if look < min(len(common), max(self.looks)):
            ahead = look_after(self.looks, look)
            self.note = joined(f"judged at {look} of {len(common)} seeds; the next look is at {ahead}", self.note)
        if lacking := self._lacking(range(look)):
            return self._undecided(look, self.note, blocked=lacking)
        if (trained := len(self._trained(range(look)))) < LOOKS[0]:
            return self._undecided(look, f"only {trained} of {look} seeds trained", self.note)
        if self.comparison.kind == "rank":
            return self._over_arms(look)
        estimate = self._estimate(look)
        if estimate == NO_NUMBER:
            return self._undecided(look, self.note, blocked=NO_NUMBER)
        if isinstance(estimate, str):
            return self._undecided(look, estimate, self.note)
        blocked = blocked or (AT_BOUND if self.comparison.at_bound == self.recipe else "")
        found = self._judge(estimate, trained, look, blocked)
        if self.comparison.kind == "mean":
            found = replace(found, each=tuple(self._effects(look)))
        if self.guarded and found.verdict in DECIDED and are_two_groups([*found.each]):
            return replace(found, verdict="undecided", note=joined("the seeds fall into two groups", found.note))
        return found

    def _judge(self, estimate: Estimate, seeds: int, look: int, blocked: str = "") -> Finding:
        last = self.looks[max(self.looks)]
        found = judge(self.comparison, estimate, seeds, self.looks[look], self.note, blocked, last)
        return replace(found, look=look)

    def _not_run(self, note: str) -> Finding:
        return Finding(self.comparison.label, "not run", least=self.comparison.least, note=note)

    def _undecided(self, seeds: int, *notes: str, blocked: str = "") -> Finding:
        note = joined(no_help(blocked) if blocked else "", *notes)
        return Finding(
            self.comparison.label, "undecided", seeds, least=self.comparison.least, note=note, blocked=blocked
        )

    def _has_numbers(self, run: Run) -> bool:
        return all(self.evidence.read(measure, run) for measure in self.comparison.measures)

    def _trained(self, seeds: Iterable[int]) -> list[int]:
        """Return the seeds of which no run failed, in any arm."""
        failed = set[int]().union(*self.failed.values())
        return [seed for seed in seeds if seed not in failed]

    def _means(self, seeds: Iterable[int]) -> list[list[tuple[float, ...]]]:
        """Return [seed][arm][measure]: means over the data sets, for the seeds that did not fail."""
        measures = self.comparison.measures
        return [
            [tuple(m.mean(self.evidence.read(m, of_arm[seed])) for m in measures) for of_arm in self.arms.values()]
            for seed in self._trained(seeds)
        ]

    def _seeds_with_numbers(self, arms: dict[str, Seeds]) -> list[int]:
        """Return the seeds in which each of these arms has a number for every measure, or one of them failed."""
        shared = sorted(set.intersection(*map(set, arms.values())))
        failed = set[int]().union(*(self.failed.get(arm, ()) for arm in arms))
        return [s for s in shared if s in failed or all(self._has_numbers(of_arm[s]) for of_arm in arms.values())]

    def _blocked(self, without: set[int], look: int) -> str:
        """Return why no look after `look` can judge: a run of one of its seeds has no number; "" if it can.

        `without`: seeds that all arms have, but that lack a number.
        """
        ahead = look_after(self.looks, look) if look < max(self.looks) else look
        seed = min(without, default=ahead)
        if seed >= ahead:
            return ""
        lacking = next(seeds[seed] for seeds in self.arms.values() if not self._has_numbers(seeds[seed]))
        return f"{lacking.path} gives no number"

    def _lacking(self, seeds: Sequence[int]) -> str:
        """Name the first run that lacks a data set of another run; "" if all have the same.

        A mean over different data sets would compare the sets, not the arms.
        """
        for measure in self.comparison.measures:
            runs = [of_arm[seed] for of_arm in self.arms.values() for seed in self._trained(seeds)]
            every = set[str]().union(*(self.evidence.read(measure, run) for run in runs))
            for run in runs:
                if missing := sorted(every - self.evidence.read(measure, run).keys()):
                    same = "evaluate all runs on the same sets"
                    return f"{run.path} lacks {missing[0]}, which other runs have: {same}"
        return ""

    def _too_few(self, common: list[int], look: int, blocked: str) -> Finding:
        """Return an undecided finding: a look at n seeds uses seeds 0 to n - 1, and some of them are missing.

        `not run` if the seeds give no finite effect.
        """
        wanted = look or min(self.looks)
        reason = f"{len(common)} seed{'s' if len(common) > 1 else ''} in common, {wanted} are needed"
        if len(common) >= wanted:
            missing = _first_missing(set(common))
            reason = f"seeds 0 to {wanted - 1} are judged, but not all arms have numbers for seed {missing}"
        estimate = None
        if lacking := self._lacking(common):
            blocked = blocked or lacking
        elif self.comparison.kind == "mean":
            mean = fmean(self.comparison.effect(of_seed) for of_seed in self._means(common))
            if not math.isfinite(mean):
                return self._not_run(joined(NO_NUMBER, self.note))
            estimate = Estimate(mean, math.nan, math.nan, 1.0, 1.0)
        found = self._undecided(len(common), "" if blocked else reason, self.note, blocked=blocked)
        return replace(found, estimate=estimate)

    def _estimate(self, look: int) -> Estimate | str:
        """Return the estimate from seeds 0 to `look` - 1, or the reason why there is none."""
        comparison, values = self.comparison, np.array(self._means(range(look)))  # [seed, arm, measure]
        if not np.isfinite(values).all():
            return NO_NUMBER
        if comparison.kind == "spread":
            table = values[:, :, 0].T
            if any(map(are_equal, table)):
                return "an arm has the same value in all seeds"
            return spread_estimate(comparison, table, self.looks[look])
        effects = self._effects(look)
        if not all(map(math.isfinite, effects)):
            return NO_NUMBER
        if comparison.kind == "share":
            hits = sum(effect > 0 for effect in effects)
            return share_estimate(comparison.least, hits, len(effects), self.looks[look])
        return mean_estimate(comparison, effects, self.looks[look])

    def _effects(self, look: int) -> list[float]:
        return [self.comparison.effect(of_seed) for of_seed in self._means(range(look))]

    def _over_arms(self, look: int) -> Finding:
        """Return the rank correlation over all arms, without a verdict; the note has the correlation in each family.

        Arms of a family differ in one knob. Both measures may follow the knob, so a family is one observation: in
        simulations, a test that counts the arms gives a false verdict in 14% of experiments (docs/claims.md).
        """
        values = np.array(self._means(range(look))).mean(0)  # [arm, measure]
        at = {arm: tuple(of_arm) for arm, of_arm in zip(self.arms, values, strict=True)}
        families = [[at[arm] for arm in family if arm in at] for family in self.comparison.families]
        within = [self.comparison.effect(family) for family in families if len(family) > 2]
        each = ", ".join(f"{rho:+.2f}" for rho in within)
        reason = f"the arms are {len(within)} families with one knob each, a test needs {FEWEST_FAMILIES}"
        found = self._undecided(look, f"within the families: {each}", self.note, blocked=reason)
        rho = self.comparison.effect([*at.values()])
        return replace(found, estimate=Estimate(rho, math.nan, math.nan, 1.0, 1.0)) if math.isfinite(rho) else found

    def _look_of_expected_divergence(self) -> int:
        """Return the largest look if `diverging_arm` diverged in all its seeds and no other arm in any; otherwise 0.

        A look uses only the seeds for which all other arms have results.
        """
        loser = self.comparison.diverging_arm
        if not loser or self.diverged != {loser: len(self.arms[loser])}:
            return 0
        others = {arm: seeds for arm, seeds in self.arms.items() if arm != loser}
        return look_at(self.looks, _first_missing(set(self._seeds_with_numbers(others)) & set(self.arms[loser])))

    def _why_no_numbers(self) -> str:
        """Explain why no seed has an effect: a run has no numbers, or the arms share no seed."""
        runs = [run for seeds in self.arms.values() for run in seeds.values()]
        if (lacking := next((run for run in runs if not self._has_numbers(run)), None)) is not None:
            hint = self.note if lacking.diverged else f"clipx eval {lacking.path}"
        else:
            every = sorted(set[int]().union(*self.arms.values()))
            arm, seed = next((arm, seed) for seed in every for arm in self.arms if seed not in self.arms[arm])
            hint = f"clipx train recipe={self.recipe} arm={arm} seed={seed}"
        return f"no seed has numbers for all arms; {hint}"


def _first_missing(seeds: set[int]) -> int:
    """Return the smallest seed, counted from 0, that is not among these: so many seeds come before the first gap."""
    return next(seed for seed in count() if seed not in seeds)
