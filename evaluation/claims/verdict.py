"""The rule that turns estimates into verdicts. docs/claims.md explains it without formulas.

A larger effect supports the claim. Its smallest value of interest s is fixed with the claim, before any run:

    holds           the effect is larger than s
    equivalent      the effect lies between -s and s: if it exists, it is too small to matter
    does not hold   the effect is smaller than s, and may be smaller than -s
    undecided       the data allow values on both sides of s, or there are fewer seeds than at the first look
    not run         there is nothing to measure

s = 0 requires any gain. A negative s requires a loss smaller than |s|. Only differences between arms with s > 0 can be
`equivalent`.

Looks: a claim is judged when 3, 5, 8, 12 and 20 seeds are there, and at no other number, so that a user may add seeds
until it is decided. Each of the five looks has an error rate of 0.5% in each direction. Together they have 2.5% at
most. The intervals are therefore 99% intervals.

Parts: a claim holds if all its parts hold. It is refuted if one part is refuted; to keep the error rate, the p-values
of the parts are adjusted for this by Holm's method. Holm's method over all claims of a report is applied beside the
plain verdicts.

One kind of comparison can hold without an interval (`Comparison.diverging_arm`): if the arm that is expected to lose
diverges in every seed, no other arm diverges, and the first look has values of the other arms.
"""

from collections.abc import Sequence
from dataclasses import replace

from evaluation.claims.design import ERROR
from evaluation.claims.power import detectable, seeds_needed
from evaluation.claims.types import Comparison, Estimate, Finding, Outcome, Verdict

REFUTED = ("does not hold", "equivalent")


def judge(comparison: Comparison, estimate: Estimate, seeds: int, error: float, note: str = "") -> Finding:
    """Return the finding of one comparison by itself.

    Args:
        seeds: number of seeds at this look.
        error: one-sided error rate of this look.
    """
    verdict = verdict_of(estimate, error)
    found = Finding(comparison.label, verdict, seeds, estimate, comparison.least, note)
    return found if verdict != "undecided" else _with_power(found, error)


def verdict_of(estimate: Estimate, error: float) -> Verdict:
    """Return the verdict on one comparison by itself."""
    if estimate.p_above <= error:
        return "holds"
    if estimate.p_below <= error:
        return "equivalent" if estimate.p_inside <= error else "does not hold"
    return "undecided"


def adjust(findings: list[Finding], error: float) -> list[Finding]:
    """Return the findings of a claim; a refuted part whose p-value is too large after Holm's method is undecided."""
    adjusted = holm([_p_below(finding) for finding in findings])
    return [
        replace(_with_power(finding, error), verdict="undecided", note=_joined(finding.note, _not_after_holm(findings)))
        if finding.estimate is not None and finding.verdict in REFUTED and p > error
        else finding
        for finding, p in zip(findings, adjusted, strict=True)
    ]


def overall(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on a claim from the verdicts on its parts."""
    if all(verdict == "not run" for verdict in verdicts):
        return "not run"
    if "does not hold" in verdicts:
        return "does not hold"
    if "equivalent" in verdicts:
        return "equivalent"
    return "holds" if all(verdict == "holds" for verdict in verdicts) else "undecided"


def p_value(findings: list[Finding], error: float) -> float | None:
    """Return the p-value of a claim's verdict over all looks; None without an estimate of every part.

    It is the smaller of two: that all parts hold (the largest p-value), and that one is refuted (Holm's smallest).
    """
    if not findings or any(finding.estimate is None for finding in findings):
        return None
    holds = max(finding.estimate.p_above for finding in findings if finding.estimate)
    refuted = min(holm([_p_below(finding) for finding in findings]))
    return min(1.0, min(holds, refuted) * ERROR / error)


def survives_holm(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Return "claim recipe" -> True if the verdict stays when all claims of a report share one error rate."""
    judged = [outcome for outcome in outcomes if outcome.p is not None and outcome.verdict in ("holds", *REFUTED)]
    of_all = [outcome.p for outcome in outcomes if outcome.p is not None]
    adjusted = dict(zip(of_all, holm(of_all), strict=True))
    return {f"{o.claim.id} {o.recipe}": adjusted[o.p] <= ERROR for o in judged if o.p is not None}


def holm(p_values: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979): each is valid however many are looked at.

    statsmodels' `multipletests` gives the same, but collects garbage in every call, which takes a third of a second.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _p_below(finding: Finding) -> float:
    return 1.0 if finding.estimate is None else finding.estimate.p_below


def _not_after_holm(findings: list[Finding]) -> str:
    return f"below the bound by itself, not among {len(findings)} parts (Holm)"


def _with_power(finding: Finding, error: float) -> Finding:
    """Add the number of seeds needed and the detectable distance, where more seeds narrow the interval."""
    estimate, least = finding.estimate, finding.least
    if estimate is None or estimate.spread is None or least is None:
        return finding
    needed = seeds_needed(estimate, least, finding.seeds, error)
    return replace(finding, seeds_needed=needed, detectable=detectable(estimate, finding.seeds, error))


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))
