"""Error rates and power of the rule for verdicts (evaluation.claims.verdict) in simulations: `make bench-rule`.

    python -m tests.bench.rule [rates | power | papers] [experiments]      default: all three, 10000

Prints Markdown tables: error rates over all looks, power at each look, and the rule's verdicts on the means and spreads
that the papers print. docs/claims.md shows them.

Each error rate is the share of experiments that give a false verdict at one look or more. The true effect lies at the
bound, where an error is most likely. Two other rules are compared at the same looks: paired t with 95% intervals, and t
with 99% intervals, as in our rule, but with the variance pooled over all arms.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clipx.verdict import Verdict
from evaluation.claims.design import ERROR, LOOKS, error_of_each_look
from evaluation.claims.measures import GAP
from evaluation.claims.published import TABLES, printed
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Comparison, Estimate, less_variable, more
from evaluation.claims.verdict import (
    holm,
    mean_estimate,
    share_estimate,
    spread_estimate,
    t_test,
    verdict_of,
)

Array = NDArray[np.float64]
EACH = error_of_each_look(LOOKS)  # one-sided error rate of one look
DIFFERENCE = more("a", "b", GAP, 1.0)  # s = 1, in standard deviations of one seed's difference a - b
Verdicts = list[Verdict]  # one per look
Simulation = Callable[[np.random.Generator], Verdicts]


@dataclass(frozen=True)
class Case:
    """A kind of simulated experiment, with the true effect at the bound. Each function simulates one experiment."""

    name: str
    simulate: Simulation  # judged by our rule
    plain: Simulation | None = None  # judged by paired t with 95% intervals
    pooled: Simulation | None = None  # judged with the variance of all arms


def draw_values(generator: np.random.Generator, covariance: Array, effect: float) -> Array:
    """Draw values [A, 20] of A arms and 20 seeds. The unit is the standard deviation of arm 0 - arm 1 for one seed.

    Each seed also has a common effect on all arms, with a standard deviation of 10 units.

    Args:
        covariance: [A, A] of the arms for one seed, without the common effect.
        effect: true difference arm 0 - arm 1, in units.
    """
    size = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    values = np.linalg.cholesky(covariance) @ generator.standard_normal((len(covariance), LOOKS[-1]))
    values[0] += effect * size
    result: Array = values / size + 10 * generator.standard_normal(LOOKS[-1])
    return result


def of_means(covariance: Array, effect: float, judge: Callable[[Array], Verdict]) -> Simulation:
    """Return the simulation of a difference between the means of the first two arms, judged at every look."""

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = draw_values(generator, covariance, effect)
        return [judge(values[:, :n]) for n in LOOKS]

    return simulate


def by_rule(values: Array) -> Verdict:
    """Judge values [A, n] by our rule, with s = 1."""
    return verdict_of(mean_estimate(DIFFERENCE, list(values[0] - values[1]), EACH), EACH)


def by_plain_t(values: Array) -> Verdict:
    """Judge values [A, n] by a 95% interval of paired t, with s = 1."""
    effects = values[0] - values[1]
    half = special.stdtrit(len(effects) - 1, 0.975) * effects.std(ddof=1) / math.sqrt(len(effects))
    return "holds" if effects.mean() - half > 1 else "does not hold" if effects.mean() + half < 1 else "undecided"


def by_pooled_t(values: Array) -> Verdict:
    """Judge values [A, n] as our rule, but with the residual variance of the two-way layout arms x seeds."""
    arms, n = values.shape
    df = (arms - 1) * (n - 1)
    residuals = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    se = math.sqrt(2 * (residuals**2).sum() / df / n)
    half = special.stdtrit(df, 1 - EACH) * se
    mean = float((values[0] - values[1]).mean())
    return "holds" if mean - half > 1 else "does not hold" if mean + half < 1 else "undecided"


def of_parts(parts: int) -> Simulation:
    """Return the simulation of a claim that compares `parts` arms with one baseline, all effects at the bound."""
    comparison = more("a", "b", GAP, 0.0)

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = generator.standard_normal((parts + 1, LOOKS[-1]))  # the baseline first
        verdicts: Verdicts = []
        for n in LOOKS:
            found = [mean_estimate(comparison, list(of_arm[:n] - values[0, :n]), EACH) for of_arm in values[1:]]
            refuted = min(holm([estimate.p_below for estimate in found])) <= EACH
            holds = all(estimate.p_above <= EACH for estimate in found)
            verdicts.append("holds" if holds else "does not hold" if refuted else "undecided")
        return verdicts

    return simulate


def of_shares(share: float) -> Simulation:
    """Return the simulation of a claim about the share of seeds with an event, judged once, at 100 seeds."""

    def simulate(generator: np.random.Generator) -> Verdicts:
        hits = int((generator.random(100) < share).sum())
        return [verdict_of(share_estimate(share, hits, 100, ERROR), ERROR)]

    return simulate


def of_spreads(draw: Callable[[np.random.Generator, int], Array]) -> Simulation:
    """Return the simulation of two arms with the same spread over seeds; the ratio is judged at every look."""
    comparison = less_variable("a", "b", GAP, "v")

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = np.stack([draw(generator, LOOKS[-1]) for _ in range(2)])
        return [verdict_of(spread_estimate(comparison, values[:, :n], EACH), EACH) for n in LOOKS]

    return simulate


def of_seeds(draw: Callable[[np.random.Generator, int], Array]) -> Simulation:
    """Return the simulation of one effect per seed whose true mean is s = 1, judged at every look."""

    def simulate(generator: np.random.Generator) -> Verdicts:
        effects = list(1 + draw(generator, LOOKS[-1]))
        return [verdict_of(mean_estimate(DIFFERENCE, effects[:n], EACH), EACH) for n in LOOKS]

    return simulate


def two_groups(generator: np.random.Generator, n: int) -> Array:
    """Draw n values with mean 0 from two groups: one value in five comes from the group that lies 8 higher."""
    values: Array = generator.standard_normal(n) + 8.0 * (generator.random(n) < 0.2) - 1.6
    return values


SEEDS: dict[str, Callable[[np.random.Generator, int], Array]] = {  # name -> draws n values with mean 0
    "normal": lambda generator, n: generator.standard_normal(n),
    "t with 5 degrees": lambda generator, n: generator.standard_t(5, n),
    "t with 3 degrees": lambda generator, n: generator.standard_t(3, n),
    "two groups": two_groups,
}


def noisy(arms: int, variance: float, compared: int = 2) -> Array:
    """Return the covariance of independent arms: the first `compared` have this variance, the others 1."""
    return np.diag([variance] * compared + [1.0] * (arms - compared))


def alike(arms: int, correlation: float) -> Array:
    """Return the covariance of arms with variance 1. The first is independent, all others have this correlation."""
    covariance = np.full((arms, arms), correlation)
    covariance[0, :] = covariance[:, 0] = 0.0
    np.fill_diagonal(covariance, 1.0)
    return covariance


def cases() -> Iterator[Case]:
    for effect in (1.0, -1.0):  # at s and at -s, the bounds of `equivalent`
        covariance = noisy(2, 1.0)
        plain = of_means(covariance, effect, by_plain_t) if effect > 0 else None
        yield Case(f"2 arms, true effect {effect:g} s", of_means(covariance, effect, by_rule), plain)
    for arms in (3, 4, 6, 8, 26):
        kinds = {"equal variances": noisy(arms, 1.0), "compared arms: variance x 9": noisy(arms, 9.0)}
        kinds |= {f"other arms: correlation {r}": alike(arms, r) for r in (0.5, 0.95)}
        for kind, covariance in kinds.items():
            judged = (of_means(covariance, 1.0, judge) for judge in (by_rule, by_plain_t, by_pooled_t))
            yield Case(f"{arms} arms, {kind}", *judged)
    for parts in (2, 4, 6):
        yield Case(f"claim of {parts} parts, one baseline", of_parts(parts))
    yield Case("share of 100 seeds, 0.9", of_shares(0.9))
    for name, draw in SEEDS.items():
        yield Case(f"2 arms, seeds: {name}", of_seeds(draw))
        yield Case(f"ratio of spreads, 1, seeds: {name}", of_spreads(draw))


def rates(simulate: Simulation, experiments: int) -> dict[Verdict, float]:
    """Return verdict -> share of experiments that give it at one look or more.

    `equivalent` also counts as `does not hold`, because both deny the claim.
    """
    generator = np.random.default_rng(0)
    found: Counter[Verdict] = Counter()
    for _ in range(experiments):
        verdicts = simulate(generator)
        found.update(set(verdicts))
        found["does not hold"] += "does not hold" not in verdicts and "equivalent" in verdicts
    return {verdict: found[verdict] / experiments for verdict in ("holds", "does not hold", "equivalent")}


def power(effect: float, experiments: int) -> list[float]:
    """Return the share of experiments in which the claim holds, for each look.

    Args:
        effect: true effect beyond s, in standard deviations of one seed's difference.
    """
    generator = np.random.default_rng(1)
    comparison = more("a", "b", GAP, 0.0)
    hits = np.zeros(len(LOOKS))
    for _ in range(experiments):
        effects = list(generator.normal(effect, 1.0, LOOKS[-1]))
        hits += [mean_estimate(comparison, effects[:n], EACH).p_above <= EACH for n in LOOKS]
    return [float(hit) for hit in hits / experiments]


@dataclass(frozen=True)
class PrintedPart:
    """A part of a claim, judged on the means and spreads that the paper prints for three seeds."""

    claim: str  # its id
    recipe: str
    label: str  # of the part
    estimate: Estimate
    least: float  # s

    @property
    def verdict(self) -> Verdict:
        """Return the rule's verdict for one look."""
        return verdict_of(self.estimate, EACH)


def printed_parts(seeds: int = 3) -> Iterator[PrintedPart]:
    """Yield the parts of claims for whose arms a paper prints means with spreads.

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
                    yield PrintedPart(claim.id, table.recipe, comparison.label, estimate, comparison.least)


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

    half = float(special.stdtrit(df, 1 - EACH)) * se
    return Estimate(effect, effect - half, effect + half, *t_test(effect, se, df, comparison))


NOTHING: dict[Verdict, float] = {"holds": 0.0, "does not hold": 0.0}


def print_rates(experiments: int) -> None:
    """Print the error rates. A cell is empty if no experiment gives its verdict, or if all do: then it is correct."""
    columns = "false holds | false denial | false equivalent | plain t: holds | denial | pooled t: holds | denial"
    print(f"| {experiments:,} experiments each | {columns} |\n|---|---|---|---|---|---|---|---|")
    for case in cases():
        cells = []
        for simulate in (case.simulate, case.plain, case.pooled):
            found = rates(simulate, experiments) if simulate else NOTHING
            chosen: list[Verdict] = ["holds", "does not hold"]
            chosen += ["equivalent"] if simulate is case.simulate else []
            cells += ["" if found[verdict] in (0.0, 1.0) else f"{found[verdict]:.4f}" for verdict in chosen]
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


def print_power(experiments: int) -> None:
    print(f"\n| effect | {' | '.join(f'{n} seeds' for n in LOOKS)} |\n|---|{'---|' * len(LOOKS)}")
    for effect in (0.5, 0.75, 1.0, 1.5, 2.5, 4.0):
        print(f"| {effect:g} sd | {' | '.join(f'{share:.2f}' for share in power(effect, experiments))} |", flush=True)


def print_papers(_: int = 0) -> None:
    """Print the verdicts on the papers' printed numbers."""
    print("\n| claim | recipe | part | effect [99% interval] | s | verdict |\n|---|---|---|---|---|---|")
    for one in printed_parts():
        e = one.estimate
        numbers = f"{e.effect:.4f} [{e.low:.4f}, {e.high:.4f}] | {one.least:g}"
        print(f"| {one.claim} | {one.recipe} | {one.label} | {numbers} | {one.verdict} |")


TABLES_TO_PRINT: dict[str, Callable[[int], None]] = {"rates": print_rates, "power": print_power, "papers": print_papers}


def main(which: str = "all", experiments: int = 10_000) -> None:
    for name, write in TABLES_TO_PRINT.items():
        if which in ("all", name):
            write(experiments)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all", int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
