"""Assessment of claims: from the runs of a recipe to estimates, findings and outcomes. verdict.py has the rule."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from clipx.verdict import overall
from evaluation.claims.design import LOOKS, changed_claims, describe_claims, error_of_each_look, look_after, look_at
from evaluation.claims.estimate import (
    RELIABLE,
    mean_estimate,
    rank_estimate,
    reliability,
    share_estimate,
    variance_estimate,
)
from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.types import ANY, OVER_ARMS, Claim, Comparison, Estimate, Finding, Outcome
from evaluation.claims.verdict import adjust, joined, judge, no_help, p_value

FEWEST_ARMS = 20  # for a rank correlation over arms: with few arms, the sign can depend on which ones are chosen
DIVERGES = 0.5  # an arm diverges if more than this share of its runs diverges
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
    looks = looks_of(claim, recipe, evidence)
    error = error_of_each_look(looks)
    assessor = _Assessor(recipe, evidence, looks, error)
    findings = adjust([assessor.finding(part) for part in claim.parts(recipe)], error)
    verdict = overall([finding.verdict for finding in findings])
    return Outcome(claim, recipe, verdict, findings, error, p_value(findings, error), _changes(claim, recipe, evidence))


def looks_of(claim: Claim, recipe: str, evidence: Evidence) -> tuple[int, ...]:
    """Return the numbers of seeds at which the claim is judged: its own, else the stored design's, else LOOKS."""
    stored = evidence.designs.get(recipe)
    return claim.looks or (stored.looks if stored else LOOKS)


def _changes(claim: Claim, recipe: str, evidence: Evidence) -> str:
    """Return how the claim differs from the stored design; "" if it is equal or no design is stored."""
    if (stored := evidence.designs.get(recipe)) is None:
        return ""
    changes = changed_claims(stored.claims, describe_claims(recipe))
    ours = [change for change in changes if change.startswith(f"claim {claim.id}:")]
    return f"the design stored before the first seed differs: {ours[0]}" if ours else ""


@dataclass(frozen=True)
class _Assessor:
    """Assesses the comparisons of one claim on the runs of one recipe."""

    recipe: str
    evidence: Evidence
    looks: tuple[int, ...]  # numbers of seeds at which the claim is judged
    error: float  # one-sided error rate of each look

    def finding(self, comparison: Comparison) -> Finding:
        """Return the finding of one comparison at the largest look that its seeds allow."""
        arms = self._available(comparison)
        if missing := [arm for arm in comparison.arms if arm not in arms]:
            arm = "" if missing == [ANY] else f" arm={missing[0]}"
            return _not_run(comparison, f"run: clipx train recipe={self.recipe}{arm} seed=0")
        diverged = {arm: count for arm, seeds in arms.items() if (count := sum(r.diverged for r in seeds.values()))}
        note = "; ".join(f"{arm} diverged in {count} of {len(arms[arm])} seeds" for arm, count in diverged.items())
        if comparison.kind in OVER_ARMS:
            arms = {arm: seeds for arm, seeds in arms.items() if diverged.get(arm) != len(seeds)}
            if len(arms) < FEWEST_ARMS:
                return _not_run(comparison, joined(f"{FEWEST_ARMS} arms are needed", note))
        if look := self._look_of_expected_divergence(comparison, arms, diverged):
            share = share_estimate(DIVERGES, look, look, self.error)
            return replace(judge(comparison, share, look, self.error, note), least=DIVERGES)
        common = self._seeds_with_numbers(comparison, arms)
        if not common:
            return _not_run(comparison, self._missing_numbers(comparison, arms, note))
        shared = set.intersection(*(set(seeds) for seeds in arms.values()))
        without_gap = next(seed for seed in itertools.count() if seed not in shared)  # seeds before the first gap
        look = look_at(self.looks, without_gap)
        blocked = self._blocked(comparison, arms, shared - set(common), look)
        if not look or not set(range(look)) <= set(common):
            return self._too_few(comparison, arms, common, look, note, blocked)
        if look < min(len(common), self.looks[-1]):
            ahead = look_after(self.looks, look)
            note = joined(f"judged at {look} of {len(common)} seeds; the next look is at {ahead}", note)
        if lacking := self._lacking(comparison, arms, range(look)):
            return _undecided(comparison, look, note, blocked=lacking)
        estimate = self._estimate(comparison, arms, look)
        if estimate == NO_NUMBER:
            return _undecided(comparison, look, note, blocked=NO_NUMBER)
        if isinstance(estimate, str):
            return _undecided(comparison, look, estimate, note)
        return judge(comparison, estimate, look, self.error, note, blocked)

    def _available(self, comparison: Comparison) -> dict[str, Seeds]:
        arms = self.evidence.runs.get(self.recipe, {})
        if comparison.arms == (ANY,):
            all_runs = {seed: run for seeds in arms.values() for seed, run in seeds.items()}
            return {ANY: all_runs} if all_runs else {}
        return {arm: arms[arm] for arm in comparison.arms if arm in arms}

    def _read(self, comparison: Comparison, arms: dict[str, Seeds], seed: int) -> list[list[dict[str, float]]]:
        """Return [arm][measure] -> data set -> value for one seed."""
        return [[self.evidence.read(measure, runs[seed]) for measure in comparison.measures] for runs in arms.values()]

    def _seeds_with_numbers(self, comparison: Comparison, arms: dict[str, Seeds]) -> list[int]:
        """Return the seeds in which every arm has a number for every measure."""
        shared = sorted(set.intersection(*(set(seeds) for seeds in arms.values())))
        return [s for s in shared if all(all(of_arm) for of_arm in self._read(comparison, arms, s))]

    def _blocked(self, comparison: Comparison, arms: dict[str, Seeds], without: set[int], look: int) -> str:
        """Return why no look after `look` can judge: a run of one of its seeds has no number; "" if it can.

        `without`: seeds that all arms have, but that lack a number.
        """
        ahead = look_after(self.looks, look) if look < self.looks[-1] else look
        seed = min(without, default=ahead)
        if seed >= ahead:
            return ""
        runs = [seeds[seed] for seeds in arms.values()]
        lacking = next(run for run in runs if not all(self.evidence.read(m, run) for m in comparison.measures))
        return f"{lacking.path} gives no number"

    def _lacking(self, comparison: Comparison, arms: dict[str, Seeds], seeds: Sequence[int]) -> str:
        """Name the first run that lacks a data set of another run; "" if all have the same.

        A mean over different data sets would compare the sets, not the arms.
        """
        for measure in comparison.measures:
            names = {(arm, s): self.evidence.read(measure, runs[s]).keys() for arm, runs in arms.items() for s in seeds}
            every = set[str]().union(*names.values())
            for (arm, seed), found in names.items():
                if missing := sorted(every - found):
                    return (
                        f"{arms[arm][seed].path} lacks {missing[0]}, which other runs have: "
                        "evaluate all runs on the same sets"
                    )
        return ""

    def _too_few(
        self, comparison: Comparison, arms: dict[str, Seeds], common: list[int], look: int, note: str, blocked: str
    ) -> Finding:
        """Return an undecided finding: a look at n seeds uses seeds 0 to n - 1, and some of them are missing.

        `not run` if the seeds give no finite effect.
        """
        wanted = look or self.looks[0]
        reason = f"{len(common)} seed{'s' if len(common) > 1 else ''} in common, {wanted} are needed"
        if len(common) >= wanted:
            missing = next(seed for seed in range(wanted) if seed not in common)
            reason = f"seeds 0 to {wanted - 1} are judged, but not all arms have numbers for seed {missing}"
        estimate = None
        if lacking := self._lacking(comparison, arms, common):
            blocked = blocked or lacking
        elif comparison.kind == "mean":
            values = _means([self._read(comparison, arms, seed) for seed in common])
            mean = fmean(comparison.effect(of_seed) for of_seed in values)
            if not math.isfinite(mean):
                return _not_run(comparison, joined(NO_NUMBER, note))
            estimate = Estimate(mean, math.nan, math.nan, 1.0, 1.0)
        reason = "" if blocked else reason
        return replace(_undecided(comparison, len(common), reason, note, blocked=blocked), estimate=estimate)

    def _estimate(self, comparison: Comparison, arms: dict[str, Seeds], look: int) -> Estimate | str:
        """Return the estimate from seeds 0 to `look` - 1, or the reason why there is none."""
        values = np.array(_means([self._read(comparison, arms, seed) for seed in range(look)]))  # [seed, arm, measure]
        if not np.isfinite(values).all():
            return NO_NUMBER
        if comparison.kind in OVER_ARMS:
            rho = comparison.effect([tuple(of_arm) for of_arm in values.mean(0)])
            if not math.isfinite(rho):
                return "all arms have the same value"
            shares = [reliability(values[:, :, m].T) for m in range(values.shape[2])]
            if comparison.kind == "weak_rank" and min(shares) < RELIABLE:
                return f"the arms differ too little from each other: {1 - min(shares):.0%} of their variance is noise"
            return rank_estimate(comparison, rho, len(arms), self.error, math.sqrt(math.prod(shares)))
        if comparison.kind == "variance":
            table = values[:, :, 0].T
            if (np.ptp(table, axis=1) == 0).any():
                return "an arm has the same value in all seeds"
            return variance_estimate(comparison, table, self.error)
        effects = [comparison.effect([tuple(of_arm) for of_arm in of_seed]) for of_seed in values]
        if not all(math.isfinite(effect) for effect in effects):
            return NO_NUMBER
        if comparison.kind == "share":
            return share_estimate(comparison.least, sum(effect > 0 for effect in effects), look, self.error)
        return mean_estimate(comparison, effects, self.error)

    def _look_of_expected_divergence(
        self, comparison: Comparison, arms: dict[str, Seeds], diverged: dict[str, int]
    ) -> int:
        """Return the largest look if `diverging_arm` diverged in all its seeds and no other arm in any; otherwise 0.

        A look uses only the seeds for which all other arms have results.
        """
        loser = comparison.diverging_arm
        if not loser or diverged != {loser: len(arms[loser])}:
            return 0
        others = {arm: seeds for arm, seeds in arms.items() if arm != loser}
        common = set(self._seeds_with_numbers(comparison, others)) & set(arms[loser])
        return look_at(self.looks, next(seed for seed in itertools.count() if seed not in common))

    def _missing_numbers(self, comparison: Comparison, arms: dict[str, Seeds], divergence: str) -> str:
        """Explain why no seed has an effect: a run has no numbers, or the arms share no seed."""
        runs = [run for seeds in arms.values() for run in seeds.values()]
        all_seeds = sorted({seed for seeds in arms.values() for seed in seeds})
        lacking = [run for run in runs if not all(self.evidence.read(m, run) for m in comparison.measures)]
        if lacking:
            hint = divergence if lacking[0].diverged else f"clipx eval {lacking[0].path}"
        else:
            arm, seed = next((arm, seed) for seed in all_seeds for arm in arms if seed not in arms[arm])
            hint = f"clipx train recipe={self.recipe} arm={arm} seed={seed}"
        return f"no seed has numbers for all arms; {hint}"


def _not_run(comparison: Comparison, note: str) -> Finding:
    return Finding(comparison.label, "not run", least=comparison.least, note=note)


def _undecided(comparison: Comparison, seeds: int, *notes: str, blocked: str = "") -> Finding:
    note = joined(no_help(blocked) if blocked else "", *notes)
    return Finding(comparison.label, "undecided", seeds, least=comparison.least, note=note, blocked=blocked)


def _means(readings: Sequence[list[list[dict[str, float]]]]) -> list[list[tuple[float, ...]]]:
    """Return [seed][arm][measure]: means over the data sets."""
    return [[tuple(fmean(values.values()) for values in of_arm) for of_arm in of_seed] for of_seed in readings]
