"""The rule that turns estimates into verdicts. docs/claims.md explains it without formulas.

A larger effect supports the claim. The smallest effect of interest s is fixed with the claim, before any run:

    holds           the effect is larger than s
    equivalent      the effect lies between -s and s: if it exists, it is too small to matter
    does not hold   the effect is smaller than s, and may be smaller than -s
    undecided       the data allow values on both sides of s, or there are fewer seeds than at the first look
    not run         there is nothing to measure

s = 0 requires a gain of any size. A negative s allows a loss, if it is smaller than |s|. Only differences between arms
with s > 0 can be `equivalent`.

Looks: a claim is judged at 3, 5, 8, 12 and 20 seeds (by default) and at no other number, so that a user may add seeds
until the claim is decided. Each of the five looks has an error rate of 0.5% in each direction, together 2.5% at most.
The intervals are therefore 99% intervals.

A look at n seeds uses seeds 0 to n - 1. If a compared arm diverged in some of these seeds, the verdict on the
comparison is `undecided`, also with more seeds; if no seed at all has numbers of every compared arm, `not run`.

Parts: the comparisons of a claim. The claim holds if all parts hold, and is refuted if one part is refuted. To keep the
error rate of a refutation, the p-values of the parts are adjusted by Holm's method. A report also marks the verdicts
that do not survive Holm's method over all of its claims.

Where an arm is expected to diverge (`Comparison.diverging_arm`), the part also holds if that arm diverges in every
seed, no other arm diverges, and the seeds suffice to show that the arm diverges in more than half of all runs (eight
seeds with five looks).
"""

from collections.abc import Sequence
from dataclasses import replace

from clipx.verdict import DECIDED, REFUTED, Verdict
from evaluation.claims.design import ERROR
from evaluation.claims.power import detectable, seeds_needed
from evaluation.claims.types import Comparison, Estimate, Finding, Outcome


def judge(
    comparison: Comparison, estimate: Estimate, seeds: int, error: float, note: str = "", blocked: str = ""
) -> Finding:
    """Return the finding of one comparison at a look with `seeds` seeds and the one-sided error rate `error`.

    The other parts of its claim do not matter here.
    """
    verdict = verdict_of(estimate, error)
    found = Finding(comparison.label, verdict, seeds, estimate, comparison.least, note, blocked)
    return found if verdict != "undecided" else _with_power(found, error)


def verdict_of(estimate: Estimate, error: float) -> Verdict:
    """Return the verdict on one comparison, without regard to the other parts of its claim."""
    if estimate.p_above <= error:
        return "holds"
    if estimate.p_below <= error:
        return "equivalent" if estimate.p_inside <= error else "does not hold"
    return "undecided"


def adjust(findings: list[Finding], error: float) -> list[Finding]:
    """Return the findings of a claim; a refuted part whose p-value is too large after Holm's method is undecided."""
    parts = len(findings)
    found = []
    for finding, p in zip(findings, holm([_p_below(finding) for finding in findings]), strict=True):
        if finding.verdict in REFUTED and p > error:
            note = joined(finding.note, f"refuted alone, but not after Holm's adjustment for {parts} parts")
            finding = _with_power(replace(finding, verdict="undecided", note=note), error / parts)
        elif finding.verdict == "equivalent" and finding.estimate and parts * finding.estimate.p_inside > error:
            finding = replace(finding, verdict="does not hold")
        found.append(finding)
    return found


def p_value(findings: list[Finding], error: float) -> float | None:
    """Return the p-value of a claim's verdict over all looks; None if no part has an estimate.

    It is the smaller of the p-values of `holds` and of a refutation, times the number of looks. The p-value of `holds`
    is the largest of the parts' p-values, that of a refutation the smallest after Holm's method. A part without an
    estimate has the p-value 1.
    """
    if all(finding.estimate is None for finding in findings):
        return None
    holds = max(1.0 if finding.estimate is None else finding.estimate.p_above for finding in findings)
    refuted = min(holm([_p_below(finding) for finding in findings]))
    return min(1.0, min(holds, refuted) * ERROR / error)


def survives_holm(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Return "CLAIM RECIPE" -> True if the verdict survives Holm's method over all claims of a report."""
    judged = [outcome for outcome in outcomes if outcome.p is not None and outcome.verdict in DECIDED]
    of_all = [outcome.p for outcome in outcomes if outcome.p is not None]
    adjusted = dict(zip(of_all, holm(of_all), strict=True))
    return {f"{o.claim.id} {o.recipe}": adjusted[o.p] <= ERROR for o in judged if o.p is not None}


def holm(p_values: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979) for the number of tests.

    statsmodels' `multipletests` gives the same, but takes a third of a second, because every call collects garbage.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _p_below(finding: Finding) -> float:
    return 1.0 if finding.estimate is None else finding.estimate.p_below


def _with_power(finding: Finding, error: float) -> Finding:
    """Add to an undecided finding the number of seeds needed and the detectable distance, if there is a spread.

    If more seeds cannot decide it, add the reason instead.
    """
    estimate, least = finding.estimate, finding.least
    if finding.blocked:
        return replace(finding, note=joined(no_help(finding.blocked), finding.note))
    if estimate is None or estimate.spread is None or least is None:
        return finding
    needed = seeds_needed(estimate, least, finding.seeds, error)
    return replace(finding, seeds_needed=needed, detectable=detectable(estimate, finding.seeds, error))


def no_help(reason: str) -> str:
    """Return the note on an undecided finding that more seeds cannot decide."""
    return f"more seeds do not help: {reason}"


def joined(*texts: str) -> str:
    """Return the texts that are not empty, separated by semicolons."""
    return "; ".join(filter(None, texts))
