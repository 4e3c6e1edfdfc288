"""Error rates and power of the rule of verdicts in simulated experiments: `make bench-rule`.

    python -m tests.bench.rule [rates | power | papers] [experiments]      default: all three, 10000

Prints Markdown tables: error rates if a user stops at any look, power at each look, and the verdicts that the rule
gives on the papers' printed means and spreads. docs/claims.md shows them.

Each error rate is the share of experiments that give the false verdict at one look or more. The true effect lies at the
bound, where an error is most likely. The last columns show plain paired t with 95% intervals at the same looks.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from evaluation.claims.comparisons import less_variable, more, often, rises_over_arms, unrelated_over_arms
from evaluation.claims.design import ERROR, LOOKS, error_of_each_look
from evaluation.claims.estimate import mean_estimate, rank_estimate, share_estimate, variance_estimate
from evaluation.claims.names import GAP, RECALL_1
from evaluation.claims.published import TABLES, printed
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Comparison, Estimate, Verdict
from evaluation.claims.verdict import holm, verdict_of
from evaluation.statistics import spearman

Array = NDArray[np.float64]
EACH = error_of_each_look(LOOKS)
Verdicts = list[Verdict]  # one per look


@dataclass(frozen=True)
class Case:
    """A kind of simulated experiment."""

    name: str
    simulate: Callable[[np.random.Generator], Verdicts]  # one experiment, with the true effect at the bound
    old: Callable[[np.random.Generator], Verdicts] | None = None  # the same with plain t at every look


def seeds_by_arms(generator: np.random.Generator, covariance: Array, effect: float) -> Array:
    """Return [arms, 20] values; a seed's effect on all arms is ten times as large as the arms' own spread.

    Args:
        covariance: [A, A] of the arms for one seed, without the common effect of the seed.
        effect: true difference between the first and the second arm, in standard deviations of their difference.
    """
    size = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    values = np.linalg.cholesky(covariance) @ generator.standard_normal((len(covariance), LOOKS[-1]))
    values[0] += effect * size
    result: Array = values / size + 10 * generator.standard_normal(LOOKS[-1])
    return result


def of_means(covariance: Array, least: float, effect: float) -> Callable[[np.random.Generator], Verdicts]:
    """Return the simulation of a difference between two of several arms."""
    comparison = more("a", "b", GAP, least)

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = seeds_by_arms(generator, covariance, effect)
        return [verdict_of(estimate_at(comparison, values[:, :n]), EACH) for n in LOOKS]

    return simulate


def estimate_at(comparison: Comparison, values: Array) -> Estimate:
    return mean_estimate(comparison, list(values[0] - values[1]), EACH, values)


def plain(covariance: Array, least: float, effect: float) -> Callable[[np.random.Generator], Verdicts]:
    """Return the simulation of plain paired t: a 95% interval at every look."""

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = seeds_by_arms(generator, covariance, effect)
        verdicts: Verdicts = []
        for n in LOOKS:
            effects = values[0, :n] - values[1, :n]
            half = special.stdtrit(n - 1, 0.975) * effects.std(ddof=1) / math.sqrt(n)
            mean = effects.mean()
            verdicts.append("holds" if mean - half > least else "does not hold" if mean + half < least else "undecided")
        return verdicts

    return simulate


def of_parts(parts: int) -> Callable[[np.random.Generator], Verdicts]:
    """Return the simulation of a claim with several arms against one baseline, all effects at the bound."""
    comparison = more("a", "b", GAP, 0.0)

    def simulate(generator: np.random.Generator) -> Verdicts:
        values = generator.standard_normal((parts + 1, LOOKS[-1]))
        verdicts: Verdicts = []
        for n in LOOKS:
            orders = [[k, 0, *(j for j in range(1, parts + 1) if j != k)] for k in range(1, parts + 1)]
            found = [estimate_at(comparison, values[order, :n]) for order in orders]
            refuted = min(holm([estimate.p_below for estimate in found])) <= EACH
            holds = all(estimate.p_above <= EACH for estimate in found)
            verdicts.append("holds" if holds else "does not hold" if refuted else "undecided")
        return verdicts

    return simulate


def of_ranks(arms: int, most: float) -> Callable[[np.random.Generator], Verdicts]:
    """Return the simulation of a rank correlation over arms; a seed's noise is half of the spread between arms.

    The true rank correlation is 0 for most = 0, where the comparison asks for a positive one. Otherwise it is `most`,
    and the comparison asks for a weaker one.
    """
    names = tuple(map(str, range(arms)))
    comparison = rises_over_arms(names, GAP, RECALL_1, "r")
    if most:
        comparison = unrelated_over_arms(names, GAP, RECALL_1, most, "r")
    pearson = 2 * math.sin(math.pi * most / 6)  # of a bivariate normal distribution with this rank correlation

    def simulate(generator: np.random.Generator) -> Verdicts:
        x = generator.standard_normal(arms)
        y = pearson * x + math.sqrt(1 - pearson**2) * generator.standard_normal(arms)
        noise = 0.5 * generator.standard_normal((2, arms, LOOKS[-1]))
        verdicts = []
        for n in LOOKS:
            rho = spearman(list(x + noise[0, :, :n].mean(1)), list(y + noise[1, :, :n].mean(1)))
            verdicts.append(verdict_of(rank_estimate(comparison, rho, arms, EACH), EACH))
        return verdicts

    return simulate


def of_shares(share: float) -> Callable[[np.random.Generator], Verdicts]:
    """Return the simulation of a share of 100 seeds, judged once."""
    comparison = often("a", GAP, share, "s")

    def simulate(generator: np.random.Generator) -> Verdicts:
        effects = np.where(generator.random(100) < share, 1.0, -1.0)
        return [verdict_of(share_estimate(comparison, list(effects), ERROR), ERROR)]

    return simulate


def of_variances(generator: np.random.Generator) -> Verdicts:
    """Simulate two arms of the same variance."""
    values = generator.standard_normal((2, LOOKS[-1]))
    comparison = less_variable("a", "b", GAP, "v")
    return [verdict_of(variance_estimate(comparison, values[:, :n], EACH), EACH) for n in LOOKS]


def noisy(arms: int, variance: float, compared: int = 2) -> Array:
    """Return the covariance of independent arms of which the first `compared` have another variance."""
    return np.diag([variance] * compared + [1.0] * (arms - compared))


def alike(arms: int, correlation: float) -> Array:
    """Return the covariance of arms that are correlated, except the first."""
    covariance = np.full((arms, arms), correlation)
    covariance[0, :] = covariance[:, 0] = 0.0
    np.fill_diagonal(covariance, 1.0)
    return covariance


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for arms in (2, 3, 4, 6, 8, 26):
        kinds = {"equal variances": noisy(arms, 1.0)}
        if arms > 2:
            kinds |= {f"compared arms: variance x {v}": noisy(arms, v) for v in (2.0, 4.0, 9.0, 25.0)}
            kinds |= {"one compared arm: variance x 9": noisy(arms, 9.0, 1)}
            kinds |= {f"other arms: correlation {r}": alike(arms, r) for r in (0.5, 0.8, 0.95)}
        for kind, covariance in kinds.items():
            yield Case(f"{arms} arms, {kind}", of_means(covariance, 2.0, 2.0), plain(covariance, 2.0, 2.0))
    for parts in (2, 4, 6):
        yield Case(f"claim of {parts} parts, one baseline", of_parts(parts))
    for arms in (8, 12, 26):
        yield Case(f"rank correlation over {arms} arms, 0", of_ranks(arms, 0.0))
        yield Case(f"weak rank correlation over {arms} arms, 0.7", of_ranks(arms, 0.7))
    yield Case("share of 100 seeds, 0.9", of_shares(0.9))
    yield Case("variance ratio, 1", of_variances)


def rates(simulate: Callable[[np.random.Generator], Verdicts], experiments: int) -> dict[Verdict, float]:
    """Return verdict -> share of experiments that give it at one look or more."""
    generator = np.random.default_rng(0)
    found: Counter[Verdict] = Counter()
    for _ in range(experiments):
        verdicts = simulate(generator)
        found.update(set(verdicts))
        found["does not hold"] += "does not hold" not in verdicts and "equivalent" in verdicts  # both deny the claim
    return {verdict: found[verdict] / experiments for verdict in ("holds", "does not hold", "equivalent")}


def power(arms: int, effect: float, experiments: int) -> list[float]:
    """Return the share of experiments that hold at each look; effect in standard deviations of the difference."""
    generator = np.random.default_rng(1)
    comparison, covariance = more("a", "b", GAP, 0.0), noisy(arms, 1.0)
    hits = np.zeros(len(LOOKS))
    for _ in range(experiments):
        values = seeds_by_arms(generator, covariance, effect)
        hits += [estimate_at(comparison, values[:, :n]).p_above <= EACH for n in LOOKS]
    return [float(hit) for hit in hits / experiments]


@dataclass(frozen=True)
class OwnNumbers:
    """A part of a claim, judged on the printed means and spreads of three seeds."""

    claim: str
    recipe: str
    label: str
    estimate: Estimate
    least: float

    @property
    def verdict(self) -> Verdict:
        """Return the verdict at the look of three seeds."""
        return verdict_of(self.estimate, EACH)


def own_numbers(seeds: int = 3) -> Iterator[OwnNumbers]:
    """Yield the parts of claims whose arms have printed means with spreads.

    Seeds of different arms are not paired in print, so the arms count as independent (Welch's t). A table's column
    `mean` is used if it has one, else its first column.
    """
    for claim in CLAIMS:
        for comparison in claim.comparisons:
            for table in (t for t in TABLES if comparison.contrast and t.recipe in claim.recipes):
                cells = [table.rows.get(arm, "").split() for arm in comparison.arms]
                labels = [column.label for column in table.columns]
                at = labels.index("mean") if "mean" in labels else 0
                texts = [of_arm[at] for of_arm in cells if len(of_arm) > at and "±" in of_arm[at]]
                if len(texts) == len(comparison.arms):
                    draws = seeds if table.spread == "standard deviation" else 1
                    estimate = welch(comparison, texts, table.columns[at].scale, seeds, draws)
                    yield OwnNumbers(claim.id, table.recipe, comparison.label, estimate, comparison.least)


def welch(comparison: Comparison, texts: list[str], scale: float, seeds: int, draws: int) -> Estimate:
    """Return the estimate of a contrast from texts such as 35.10±0.22.

    Args:
        draws: seeds if ± precedes a standard deviation over seeds, 1 if it precedes a standard error.
    """
    means = [(printed(text) or 0.0) / scale for text in texts]
    variances = [(float(text.partition("±")[2]) / scale) ** 2 / draws for text in texts]
    effect = math.fsum(w * m for w, m in zip(comparison.contrast, means, strict=True))
    terms = [w**2 * v for w, v in zip(comparison.contrast, variances, strict=True)]
    se = math.sqrt(math.fsum(terms))
    df = math.fsum(terms) ** 2 / math.fsum(term**2 / (seeds - 1) for term in terms)

    def p_at_most(bound: float) -> float:
        return float(stats.t.sf((effect - bound) / se, df))

    half = float(stats.t.isf(EACH, df)) * se
    p_below = 1 - p_at_most(comparison.least)
    inside = max(p_below, p_at_most(-comparison.least)) if comparison.least > 0 else 1.0
    return Estimate(effect, effect - half, effect + half, p_at_most(comparison.least), p_below, inside)


def print_rates(experiments: int) -> None:
    """Print the error rates of all cases."""
    columns = "false holds | false denial | false equivalent | plain t: false holds | false denial"
    print(f"| {experiments:,} experiments each | {columns} |\n|---|---|---|---|---|---|")
    for case in cases():
        new = rates(case.simulate, experiments)
        cells = [f"{new[verdict]:.4f}" for verdict in ("holds", "does not hold", "equivalent")]
        if case.old:
            old = rates(case.old, experiments)
            cells += [f"{old[verdict]:.4f}" for verdict in ("holds", "does not hold")]
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


def print_power(experiments: int) -> None:
    """Print the power at each look."""
    print(f"\n| arms | effect | {' | '.join(f'{n} seeds' for n in LOOKS)} |\n|---|---|{'---|' * len(LOOKS)}")
    for arms in (2, 6):
        for effect in (0.5, 0.75, 1.0, 1.5, 2.5, 4.0):
            shares = " | ".join(f"{share:.2f}" for share in power(arms, effect, experiments // 5))
            print(f"| {arms} | {effect:g} sd | {shares} |", flush=True)


def print_papers(_: int = 0) -> None:
    """Print the verdicts on the papers' own numbers."""
    print("\n| claim | recipe | part | effect [99% interval] | s | verdict |\n|---|---|---|---|---|---|")
    for one in own_numbers():
        e = one.estimate
        numbers = f"{e.effect:.4f} [{e.low:.4f}, {e.high:.4f}] | {one.least:g}"
        print(f"| {one.claim} | {one.recipe} | {one.label} | {numbers} | {one.verdict} |")


TABLES_TO_PRINT: dict[str, Callable[[int], None]] = {"rates": print_rates, "power": print_power, "papers": print_papers}


def main(which: str = "all", experiments: int = 10_000) -> None:
    """Print one table or all."""
    for name, write in TABLES_TO_PRINT.items():
        if which in ("all", name):
            write(experiments)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all", int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)
