"""Assessment of claims: from the runs of a recipe to estimates, findings and outcomes."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from evaluation.claims.design import LOOKS, changed_claims, describe_claims, error_of_each_look, look_at
from evaluation.claims.estimate import mean_estimate, rank_estimate, share_estimate, variance_estimate
from evaluation.claims.evidence import Evidence, Seeds
from evaluation.claims.types import ANY, Claim, Comparison, Estimate, Finding, Outcome
from evaluation.claims.verdict import adjust, judge, overall, p_value

Readings = list[list[dict[str, float]]]  # of one seed: [arm][measure] -> values by name (data set)


def outcomes(claims: tuple[Claim, ...], evidence: Evidence) -> list[Outcome]:
    """Return one outcome for each claim and recipe that was run; a claim without runs has one outcome, `not run`."""
    found = []
    for claim in claims:
        if claim.program:
            not_run = [Finding(claim.statement, "not run", note=f"run: {claim.program}")]
            findings = evidence.stated.get(claim.id) or not_run
            found.append(Outcome(claim, claim.program, overall([f.verdict for f in findings]), findings))
            continue
        by_recipe = [assess(claim, recipe, evidence) for recipe in claim.recipes]
        run = [outcome for outcome in by_recipe if outcome.verdict != "not run"]
        found += run or by_recipe[-1:]  # suggest the last recipe, because it is the smallest
    return found


def assess(claim: Claim, recipe: str, evidence: Evidence) -> Outcome:
    """Return the outcome of the claim from the runs of one recipe, at the looks of the stored design."""
    stored, looks = evidence.designs.get(recipe), looks_of(claim, recipe, evidence)
    error = error_of_each_look(looks)
    assessment = _Assessment(recipe, evidence, looks, error)
    findings = adjust([assessment.finding(comparison) for comparison in claim.parts(recipe)], error)
    changes = changed_claims(stored.claims, describe_claims(recipe)) if stored else []
    ours = [change for change in changes if change.startswith(f"claim {claim.id}:")]
    note = f"the design stored before the first seed differs: {ours[0]}" if ours else ""
    verdict = overall([finding.verdict for finding in findings])
    return Outcome(claim, recipe, verdict, findings, error, p_value(findings, error), note)


def looks_of(claim: Claim, recipe: str, evidence: Evidence) -> tuple[int, ...]:
    """Return the numbers of seeds at which the claim is judged: its own, or those of the stored design."""
    stored = evidence.designs.get(recipe)
    return claim.looks or (stored.looks if stored else LOOKS)


class _Assessment:
    """The comparisons of one claim on the runs of one recipe.

    Args:
        looks: numbers of seeds at which the claim is judged.
        error: one-sided error rate of each look.
    """

    def __init__(self, recipe: str, evidence: Evidence, looks: tuple[int, ...], error: float) -> None:
        self.recipe, self.evidence, self.looks, self.error = recipe, evidence, looks, error
        self.arms = evidence.runs.get(recipe, {})

    def finding(self, comparison: Comparison) -> Finding:
        """Return the finding of one comparison at the largest look that its seeds allow."""
        label, least = comparison.label, comparison.least
        available, missing = self._available(comparison)
        if len(available) < (comparison.min_arms or len(comparison.arms)):
            arm = "" if missing == [ANY] else f" arm={missing[0]}"
            return Finding(label, "not run", least=least, note=f"run: clipx train recipe={self.recipe}{arm} seed=0")
        diverged = _diverged(available)
        note = "; ".join(f"{arm} diverged in {n} of {len(available[arm])} seeds" for arm, n in diverged.items())
        if missing:
            note = _joined(f"{len(available)} of {len(comparison.arms)} arms", note)
        if len(seeds := self._seeds_of_expected_divergence(comparison, available, diverged)) >= self.looks[0]:
            return Finding(label, "holds", len(seeds), least=least, note=note)
        common = self._common_seeds(comparison, available)
        if not common:
            return Finding(label, "not run", least=least, note=self._missing_numbers(comparison, available, note))
        look = look_at(self.looks, len(common))
        if not look:
            return self._too_few(comparison, available, common, note)
        if look < len(common):
            ahead = next((at for at in self.looks if at > look), None)
            if ahead:
                note = _joined(f"judged at {look} of {len(common)} seeds; the next look is at {ahead}", note)
        estimate = self._estimate(comparison, available, common[:look])
        if estimate is None:
            return Finding(label, "not run", least=least, note=_joined(NO_NUMBER, note))
        return judge(comparison, estimate, look, self.error, note)

    def _available(self, comparison: Comparison) -> tuple[dict[str, Seeds], list[str]]:
        """Return the arms of the comparison that have runs, and the names of the others."""
        arms = self.arms
        if comparison.arms == (ANY,):
            all_runs = {seed: run for seeds in arms.values() for seed, run in seeds.items()}
            arms = {ANY: all_runs} if all_runs else {}
        return {a: arms[a] for a in comparison.arms if a in arms}, [a for a in comparison.arms if a not in arms]

    def _read(self, comparison: Comparison, arms: dict[str, Seeds], seed: int) -> list[list[dict[str, float]]]:
        return [[self.evidence.read(measure, of[seed]) for measure in comparison.measures] for of in arms.values()]

    def _common_seeds(self, comparison: Comparison, arms: dict[str, Seeds]) -> list[int]:
        """Return the seeds in which every arm has a number for every measure."""
        shared = sorted(set.intersection(*(set(seeds) for seeds in arms.values())))
        return [s for s in shared if all(all(of_arm) for of_arm in self._read(comparison, arms, s))]

    def _too_few(self, comparison: Comparison, arms: dict[str, Seeds], common: list[int], note: str) -> Finding:
        few = f"{len(common)} seed{'s' if len(common) > 1 else ''} in common, {self.looks[0]} are needed"
        values = _means([self._read(comparison, arms, seed) for seed in common])
        mean = fmean(comparison.effect(of_seed) for of_seed in values)
        if not math.isfinite(mean):
            return Finding(comparison.label, "not run", least=comparison.least, note=_joined(NO_NUMBER, note))
        estimate = Estimate(mean, math.nan, math.nan, 1.0, 1.0)
        return Finding(comparison.label, "undecided", len(common), estimate, comparison.least, _joined(few, note))

    def _estimate(self, comparison: Comparison, arms: dict[str, Seeds], seeds: list[int]) -> Estimate | None:
        """Return the estimate from these seeds; None if the arms have no number in common."""
        values = _means([self._read(comparison, arms, seed) for seed in seeds])
        if comparison.kind in ("rank", "weak_rank"):
            of_arms = [tuple(np.mean([of_seed[a] for of_seed in values], axis=0)) for a in range(len(arms))]
            rho = comparison.effect(of_arms)
            return rank_estimate(comparison, rho, len(arms), self.error) if math.isfinite(rho) else None
        if comparison.kind == "variance":
            table = np.array([[of_arm[0] for of_arm in of_seed] for of_seed in values]).T
            varies = np.isfinite(table).all() and (np.ptp(table, axis=1) > 0).all()
            return variance_estimate(comparison, table, self.error) if varies else None
        effects = [comparison.effect(of_seed) for of_seed in values]
        if not all(math.isfinite(effect) for effect in effects):
            return None
        if comparison.kind == "share":
            return share_estimate(comparison, effects, self.error)
        return mean_estimate(comparison, effects, self.error, self._all_arms(comparison, arms, seeds))

    def _all_arms(self, comparison: Comparison, arms: dict[str, Seeds], seeds: list[int]) -> NDArray[np.float64] | None:
        """Return [arms, seeds]: the first measure of the compared arms, then of all other arms with these seeds."""
        if not comparison.contrast:
            return None
        (measure,) = comparison.measures
        others = [of for arm, of in self.arms.items() if arm not in arms and set(seeds) <= set(of)]
        table = [[self.evidence.read(measure, of[seed]) for seed in seeds] for of in [*arms.values(), *others]]
        names = set.intersection(*(set(values) for of_arm in table[: len(arms)] for values in of_arm))
        rows = [
            [fmean(v[name] for name in names) for v in of_arm]
            for of_arm in table
            if all(names <= set(v) for v in of_arm)
        ]
        return np.array(rows)

    def _seeds_of_expected_divergence(
        self, comparison: Comparison, arms: dict[str, Seeds], diverged: dict[str, int]
    ) -> list[int]:
        """Return seeds with numbers of all other arms; [] unless only `diverging_arm` diverged, in every seed."""
        loser = comparison.diverging_arm
        if not loser or diverged != {loser: len(arms[loser])}:
            return []
        others = {arm: seeds for arm, seeds in arms.items() if arm != loser}
        return [s for s in self._common_seeds(comparison, others) if s in arms[loser]]

    def _missing_numbers(self, comparison: Comparison, arms: dict[str, Seeds], diverged: str) -> str:
        """Explain why no seed has an effect: a run has no numbers, or the arms share no seed."""
        runs = [run for seeds in arms.values() for run in seeds.values()]
        all_seeds = sorted({seed for seeds in arms.values() for seed in seeds})
        lacking = [run for run in runs if not all(self.evidence.read(m, run) for m in comparison.measures)]
        if lacking:
            hint = diverged if lacking[0].diverged else f"clipx eval {lacking[0].path}"
        else:
            arm, seed = next((arm, seed) for seed in all_seeds for arm in arms if seed not in arms[arm])
            hint = f"clipx train recipe={self.recipe} arm={arm} seed={seed}"
        return f"no seed has the numbers of all arms; {hint}"


NO_NUMBER = "the seeds give no number; evaluate all arms on the same data sets"


def _diverged(arms: dict[str, Seeds]) -> dict[str, int]:
    """Return arm -> number of diverged seeds, for arms with at least one."""
    counts = {arm: sum(run.diverged for run in seeds.values()) for arm, seeds in arms.items()}
    return {arm: count for arm, count in counts.items() if count}


def _means(readings: Sequence[list[list[dict[str, float]]]]) -> list[list[tuple[float, ...]]]:
    """Average each measure over the names (data sets) that every arm has in every seed; NaN if there are none."""
    measures = range(len(readings[0][0]))
    names = [set.intersection(*(set(of_arm[m]) for of_seed in readings for of_arm in of_seed)) for m in measures]

    def mean(values: dict[str, float], m: int) -> float:
        return fmean(values[name] for name in names[m]) if names[m] else math.nan

    return [[tuple(mean(of_arm[m], m) for m in measures) for of_arm in of_seed] for of_seed in readings]


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))
