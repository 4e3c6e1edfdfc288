"""Error rates of the verdicts in simulated experiments with known effects, and edge cases of the rule."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from evaluation.claims.comparisons import unrelated
from evaluation.claims.assess import assess
from evaluation.claims.names import PROBE, ZEROSHOT
from evaluation.claims.types import Comparison, Verdict
from evaluation.claims.verdict import judge, overall
from evaluation.statistics import binomial_interval
from tests.helpers.synthetic import Values, claim, evidence, run

EXPERIMENTS = 2000


def comparison(least: float = 0.0) -> Comparison:
    return Comparison("a − b", ("a", "b"), (), lambda v: v[0][0], least)


def simulated(true_effect: float, least: float, seeds: int, spread: float = 0.01) -> Counter[Verdict]:
    draw = random.Random(f"{true_effect} {seeds}")
    return Counter(
        judge(comparison(least), [draw.gauss(true_effect, spread) for _ in range(seeds)]).verdict
        for _ in range(EXPERIMENTS)
    )


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(("true_effect", "least"), [(0.0, 0.0), (0.005, 0.005), (0.0, 0.005), (-0.02, 0.0)])
def test_false_holds_stay_below_four_per_cent(seeds: int, true_effect: float, least: float) -> None:
    assert simulated(true_effect, least, seeds)["holds"] <= 0.04 * EXPERIMENTS  # 2.5% in the worst case


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("true_effect", [0.005, 0.02])
def test_real_effects_are_rarely_denied(seeds: int, true_effect: float) -> None:
    assert simulated(true_effect, 0.005, seeds)["does not hold"] <= 0.04 * EXPERIMENTS


def test_large_effects_are_found() -> None:
    assert simulated(0.06, 0.0, 3)["holds"] > 0.9 * EXPERIMENTS
    assert simulated(0.03, 0.0, 5)["holds"] > 0.9 * EXPERIMENTS
    assert simulated(-0.06, 0.0, 3)["does not hold"] > 0.9 * EXPERIMENTS


def experiment(draw: random.Random, gain: float) -> Verdict:
    """Simulate three seeds of claim 1.5; the effect of a seed on both arms is larger than the noise of each arm."""
    runs = []
    for seed in range(3):
        common = draw.gauss(0.5, 0.05)
        for arm, shift in (("clip", 0.0), ("clip_reg", gain)):
            values: Values = {
                ("zeroshot", name, "top1"): common + shift + draw.gauss(0, 0.004) for name in ("x", "y", "z")
            }
            runs.append(run("clip_reg_mini", arm, seed, values))
    return assess(claim("1.5"), "clip_reg_mini", evidence(runs)).verdict


def test_whole_claims_keep_the_error_rate_and_gain_power_from_pairing() -> None:
    draw = random.Random(0)
    none = Counter(experiment(draw, 0.005) for _ in range(600))
    real = Counter(experiment(draw, 0.03) for _ in range(200))
    assert none["holds"] <= 0.05 * 600
    assert real["holds"] > 0.8 * 200


@pytest.mark.parametrize(
    ("values", "least", "expected"),
    [
        ([], 0.0, "not run"),
        ([0.5], 0.0, "undecided"),
        ([0.5, 0.5], 0.0, "undecided"),
        ([0.5, 0.5, 0.5], 0.0, "holds"),
        ([0.5, 0.5, 0.5], 0.5, "undecided"),
        ([0.5, 0.5, 0.5], 0.6, "does not hold"),
        ([0.1, 0.2, 0.3], 0.0, "undecided"),  # 0.2 ± 0.248
        ([0.19, 0.2, 0.21], 0.0, "holds"),
        ([-0.01, 0.0, 0.01], -0.1, "holds"),
    ],
)
def test_the_interval_is_compared_with_the_smallest_effect(
    values: list[float], least: float, expected: Verdict
) -> None:
    assert judge(comparison(least), values).verdict == expected


def rank_correlations(slope: float, arms: int, draw: np.random.Generator) -> list[list[float]]:
    """Return rank correlations of 1,000 experiments of three seeds; values rise by `slope` per arm, with noise 1."""
    order = draw.normal(np.arange(arms) * slope, 1.0, (1000, 3, arms)).argsort(axis=-1).argsort(axis=-1)
    centred = np.arange(arms) - (arms - 1) / 2
    found: list[list[float]] = ((order * centred).sum(axis=-1) / (centred**2).sum()).tolist()
    return found


def slope_of(size: float, arms: int) -> float:
    """Return the slope at which the mean absolute correlation is just below `size`."""
    slope, step = 0.0, 1.0
    for _ in range(8):
        slope += step
        if np.abs(rank_correlations(slope, arms, np.random.default_rng(1))).mean() > size:
            slope -= step
        step /= 2
    return slope


@pytest.mark.parametrize("arms", [4, 6, 7, 8])
@pytest.mark.parametrize("least", [0.0, 0.7])
def test_rank_correlations_with_few_possible_values_keep_the_error_rate(arms: int, least: float) -> None:
    slope = slope_of(least, arms) if least else 0.0
    ranked = Comparison("r", ("a",) * arms, (), lambda v: v[0][0], least, interval="rank")
    experiments = rank_correlations(slope, arms, np.random.default_rng(0))
    verdicts = Counter(judge(ranked, values, arms=arms).verdict for values in experiments)
    assert verdicts["holds"] <= 0.05 * len(experiments)
    perfect = judge(ranked, [1.0, 1.0, 1.0], arms=arms).verdict
    assert perfect == ("undecided" if arms == 4 and least else "holds")


@pytest.mark.parametrize("arms_and_most", [(7, 0.7), (8, 0.5), (12, 0.5)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_correlation_at_the_bound_rarely_passes_as_weaker(arms_and_most: tuple[int, float], sign: int) -> None:
    arms, most = arms_and_most
    names = tuple(str(at) for at in range(arms))
    weak = unrelated(names, ZEROSHOT, PROBE, most, "r")
    experiments = rank_correlations(sign * slope_of(most, arms), arms, np.random.default_rng(0))
    verdicts = Counter(judge(weak, [-abs(value) for value in values], arms=arms).verdict for values in experiments)
    assert verdicts["holds"] <= 0.05 * len(experiments)
    near = judge(weak, [0.05 - most] * 3, arms=arms)
    assert near.verdict == "undecided", "three equal correlations are not enough"
    assert judge(weak, [0.0] * 3, arms=arms).verdict == "holds"


def test_intervals_of_rank_correlations_stay_within_minus_one_and_one() -> None:
    ranked = Comparison("r", ("a",) * 4, (), lambda v: v[0][0], 0.0, interval="rank")
    found = judge(ranked, [0.8, 1.0, 1.0], arms=4)
    assert (found.verdict, found.high) == ("holds", 1.0) and found.low is not None and 0 < found.low < 0.8
    assert judge(ranked, [-0.8, -1.0, -1.0], arms=4).low == -1.0
    plain = judge(comparison(), [0.8, 1.0, 1.0])
    assert plain.high is not None and plain.high > 1


def test_with_few_seeds_the_note_gives_the_number_needed() -> None:
    assert judge(comparison(), [0.5]).note == "1 seed in common, 3 are needed"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided"], "undecided"),
        (["holds", "not run"], "undecided"),
        (["does not hold", "not run", "undecided"], "does not hold"),
        (["not run", "not run"], "not run"),
    ],
)
def test_a_claim_needs_all_of_its_comparisons(verdicts: list[Verdict], expected: Verdict) -> None:
    assert overall(verdicts) == expected


def test_shares_have_the_exact_binomial_interval() -> None:
    for hits, n, low, high in [
        (100, 100, 0.025 ** (1 / 100), 1.0),
        (0, 10, 0.0, 1 - 0.025**0.1),
        (8, 10, 0.44390, 0.97479),  # published tables
    ]:
        assert list(binomial_interval(hits, n)) == pytest.approx([low, high], abs=1e-5)


def test_shares_are_judged_by_the_binomial_interval() -> None:
    share = Comparison("share", ("*",), (), lambda v: v[0][0], 0.95, interval="share")
    assert judge(share, [0.1] * 100).verdict == "holds"
    assert judge(share, [0.1] * 60).verdict == "undecided"
    assert judge(share, [0.1] * 70 + [-0.1] * 30).verdict == "does not hold"
    assert judge(share, [0.1] * 70 + [-0.1] * 30).effect == 0.7
    assert math.isclose(sum(binomial_interval(50, 100)), 1.0)
