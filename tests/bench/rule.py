"""Error rates and power of the rule for verdicts (evaluation.claims.verdict) in simulations: `make bench-rule`.

    python -m tests.bench.rule [experiments]      default: 10000

Prints Markdown tables: error rates over all looks, power at each look, and the rule's verdicts on the means and spreads
that the papers print. docs/claims.md shows them.

Each error rate is the share of experiments that give a false verdict at one look or more. The true effect lies at the
bound, where an error is most likely. A rate of 0.025 has a standard error of 0.0016 in 10,000 experiments.
"""

import math
import sys
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clipx.verdict import DECIDED, Verdict
from evaluation.claims.design import ERROR, LOOKS, LOOKS_WITHOUT_DESIGN, Looks, equal_errors, spent_errors
from evaluation.claims.measures import GAP
from evaluation.claims.published import TABLES, printed
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Comparison, Estimate, less_variable, more
from evaluation.claims.verdict import (
    are_two_groups,
    holm,
    mean_estimate,
    share_estimate,
    spread_estimate,
    t_test,
    verdict_of,
)
from evaluation.statistics import are_equal

Array = NDArray[np.float64]
DIFFERENCE = more("a", "b", GAP, 1.0)  # s = 1, in standard deviations of one seed's difference a - b
SPREADS = less_variable("a", "b", GAP, "v")
NEW, BEFORE = spent_errors(LOOKS), equal_errors(LOOKS_WITHOUT_DESIGN)
PRINTED = 0.005  # error rate of the verdicts on printed numbers, that of one of five looks
STEP = 1.5  # of coarse values, in standard deviations
FAILING = 0.2  # share of the seeds that fail in the simulations of two groups
Judge = Callable[[Array, float], Verdict]  # from values [A, n] and the error rate of a look


def two_groups(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values with mean 0: a fifth of the seeds lies 8 standard deviations above the others."""
    values: Array = generator.standard_normal(shape) + 8.0 * (generator.random(shape) < FAILING) - 8.0 * FAILING
    return values


def coarse(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values with mean 0 in steps of 1.5 standard deviations, as of accuracies on a few test items."""
    values: Array = STEP * (np.floor(generator.standard_normal(shape) / STEP) + 0.5)
    return values


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]  # draws values [A, n] of A arms with mean 0
FAILED = "two groups, failed_loss"  # the seeds of one group fail by the design, and the claim is about the others
SEEDS: dict[str, Draw] = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "t, 5 degrees": lambda generator, shape: generator.standard_t(5, shape),
    "t, 3 degrees": lambda generator, shape: generator.standard_t(3, shape),
    FAILED: lambda generator, shape: generator.standard_normal(shape),
    "two groups": two_groups,
    "in steps": coarse,
}


def of_effects(effects: list[float], error: float, comparison: Comparison = DIFFERENCE) -> Verdict:
    """Judge one comparison; seeds of two visible groups give no verdict."""
    verdict = verdict_of(mean_estimate(comparison, effects, error), error)
    return "undecided" if verdict in DECIDED and are_two_groups(effects) else verdict


def of_difference(values: Array, error: float) -> Verdict:
    """Judge the effects [1, n], whose true mean is s."""
    return of_effects(list(1 + values[0]), error)


def of_unguarded(values: Array, error: float) -> Verdict:
    """Judge the effects [1, n], whose true mean is s, as without a stored design."""
    return verdict_of(mean_estimate(DIFFERENCE, list(1 + values[0]), error), error)


def of_opposite(values: Array, error: float) -> Verdict:
    """Judge the effects [1, n], whose true mean is -s: `equivalent` is false, `does not hold` is not."""
    verdict = of_effects(list(values[0] - 1), error)
    return "undecided" if verdict == "does not hold" else verdict


def of_parts(values: Array, error: float) -> Verdict:
    """Judge a claim that compares all arms but the first with the first one; [A, n], all effects at the bound 0."""
    comparison = more("a", "b", GAP, 0.0)
    effects = [list(of_arm - values[0]) for of_arm in values[1:]]
    found = [mean_estimate(comparison, of_part, error) for of_part in effects]
    adjusted = holm([estimate.p_below for estimate in found])
    if any(p <= error and not are_two_groups(part) for p, part in zip(adjusted, effects, strict=True)):
        return "does not hold"
    return "holds" if all(of_effects(part, error, comparison) == "holds" for part in effects) else "undecided"


def of_report(values: Array, error: float) -> Verdict:
    """Judge A claims by the column Holm; [A, n], all effects at the bound 1. A denial counts before a false `holds`."""
    effects = [list(1 + of_claim) for of_claim in values]
    found = [mean_estimate(DIFFERENCE, of_claim, error) for of_claim in effects]
    p = holm([min(1.0, min(e.p_above, e.p_below) * ERROR / error) for e in found])
    false = {of_effects(e, error) for e, adjusted in zip(effects, p, strict=True) if adjusted <= ERROR}
    return "does not hold" if false & {"does not hold", "equivalent"} else "holds" if "holds" in false else "undecided"


def of_spreads(values: Array, error: float) -> Verdict:
    """Judge the ratio of the spreads of two arms; [2, n], the true ratio is 1."""
    if any(map(are_equal, values)):
        return "undecided"
    return verdict_of(spread_estimate(SPREADS, values, error), error)


def of_share(values: Array, error: float) -> Verdict:
    """Judge the share of positive values against 0.9, its true value; [1, n]."""
    hits, n = int((values < special.ndtri(0.9)).sum()), values.size
    return verdict_of(share_estimate(0.9, hits, n, error), error)


CASES: dict[str, tuple[int, Judge, Looks]] = {  # name -> number of arms, judge, looks
    "one difference": (1, of_difference, NEW),
    "one difference, true effect -s": (1, of_opposite, NEW),
    "one difference, one look at 8": (1, of_difference, spent_errors((8,))),
    "one difference, one look at 20": (1, of_difference, spent_errors((20,))),
    "one difference, 3/5/8/12/20": (1, of_difference, spent_errors(LOOKS_WITHOUT_DESIGN)),
    "one difference, the rule before": (1, of_unguarded, BEFORE),
    "claim of 2 parts, one baseline": (3, of_parts, NEW),
    "claim of 6 parts, one baseline": (7, of_parts, NEW),
    "ratio of spreads": (2, of_spreads, NEW),
    "column Holm, 20 claims": (20, of_report, NEW),
    "share of 100 seeds": (1, of_share, spent_errors((100,))),
}


def simulated(case: str, seeds: str, experiments: int) -> tuple[float, float]:
    """Return the shares of experiments with a false `holds` and with a false denial, at one look or more.

    `equivalent` is a denial too.
    """
    arms, judge, looks = CASES[case]
    generator, last = np.random.default_rng(0), max(looks)
    holds = denied = 0
    for _ in range(experiments):
        values = SEEDS[seeds](generator, (arms, last))
        trained = generator.random(last) >= FAILING if seeds == FAILED else np.ones(last, bool)
        found = set[Verdict]()
        for look, error in looks.items():
            kept = values[:, :look][:, trained[:look]]
            if kept.shape[1] >= LOOKS[0]:
                found.add(judge(kept, error))
        holds += "holds" in found
        denied += not found.isdisjoint({"does not hold", "equivalent"})
    return holds / experiments, denied / experiments


def print_rates(experiments: int) -> None:
    print(f"| false holds / false denials | {' | '.join(SEEDS)} |\n|---|{'---|' * len(SEEDS)}")
    for case in CASES:
        kinds = ["normal"] if case.startswith("share") else SEEDS
        rates = [simulated(case, seeds, experiments) for seeds in kinds]
        cells = [f"{holds:.4f} / {denied:.4f}" for holds, denied in rates] + [""] * (len(SEEDS) - len(rates))
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


def power(effect: float, looks: Looks, experiments: int) -> list[float]:
    """Return the share of experiments in which the claim holds at a look or before, for each look.

    Args:
        effect: true effect beyond s, in standard deviations of one seed's difference.
    """
    generator = np.random.default_rng(1)
    judge = of_unguarded if looks is BEFORE else of_difference
    hits = np.zeros(len(looks))
    for _ in range(experiments):
        effects = generator.normal(effect, 1.0, (1, max(looks)))
        held = [judge(effects[:, :n], error) == "holds" for n, error in looks.items()]
        hits += np.logical_or.accumulate(held)
    return [float(hit) for hit in hits / experiments]


def print_power(experiments: int) -> None:
    columns = [f"{n} seeds" for n in NEW] + [f"before: {n}" for n in BEFORE]
    print(f"\n| effect | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for effect in (0.5, 0.75, 1.0, 1.5, 2.5, 4.0):
        shares = [share for looks in (NEW, BEFORE) for share in power(effect, looks, experiments)]
        print(f"| {effect:g} sd | {' | '.join(f'{share:.2f}' for share in shares)} |", flush=True)


def printed_parts(seeds: int = 3) -> Iterator[tuple[str, str, Comparison, Estimate]]:
    """Yield claim, recipe and estimate of the parts for whose arms a paper prints means with spreads.

    Papers do not print paired differences, so the arms count as independent (Welch's t). Of each table only one column
    is used: `mean` if there is one, else the first.
    """
    for claim in CLAIMS:
        for comparison in claim.comparisons:
            for table in (t for t in TABLES if comparison.contrast and t.recipe in claim.recipes):
                if comparison.only_recipe not in ("", table.recipe):
                    continue
                cells = [table.rows.get(arm, "").split() for arm in comparison.arms]
                labels = [column.label for column in table.columns]
                at = labels.index("mean") if "mean" in labels else 0
                texts = [of_arm[at] for of_arm in cells if len(of_arm) > at and "±" in of_arm[at]]
                if len(texts) == len(comparison.arms):
                    draws = seeds if table.spread == "standard deviation" else 1
                    estimate = welch(comparison, texts, table.columns[at].scale, seeds, draws)
                    yield claim.id, table.recipe, comparison, estimate


def welch(comparison: Comparison, texts: list[str], scale: float, seeds: int, draws: int) -> Estimate:
    """Estimate a contrast of arms from their printed texts, such as 35.10±0.22, by Welch's t.

    Args:
        scale: factor from our unit to the printed one.
        draws: number of seeds if ± precedes a standard deviation over seeds, 1 if it precedes a standard error.
    """
    means = [(printed(text) or 0.0) / scale for text in texts]
    variances = [(float(text.partition("±")[2]) / scale) ** 2 / draws for text in texts]
    effect = math.fsum(w * m for w, m in zip(comparison.contrast, means, strict=True))
    terms = [w**2 * v for w, v in zip(comparison.contrast, variances, strict=True)]
    se = math.sqrt(math.fsum(terms))
    df = math.fsum(terms) ** 2 / math.fsum(term**2 / (seeds - 1) for term in terms)

    half = float(special.stdtrit(df, 1 - PRINTED)) * se
    return Estimate(effect, effect - half, effect + half, *t_test(effect, se, df, comparison))


def print_papers() -> None:
    """Print the verdicts on the papers' printed numbers."""
    print("\n| claim | recipe | part | effect [99% interval] | s | verdict |\n|---|---|---|---|---|---|")
    for claim, recipe, comparison, e in printed_parts():
        numbers = f"{e.effect:.4f} [{e.low:.4f}, {e.high:.4f}] | {comparison.least:g}"
        print(f"| {claim} | {recipe} | {comparison.label} | {numbers} | {verdict_of(e, PRINTED)} |")


def main(experiments: int = 10_000) -> None:
    print_rates(experiments)
    print_power(experiments)
    print_papers()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
