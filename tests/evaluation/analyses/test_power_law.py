"""Power laws: known laws are recovered, intervals follow from the seeds' curves, and a bad fit is reported."""

import math

import numpy as np
import pytest

from evaluation.analyses.power_law import Array, Interval, PowerLaw, crossover, difference, fit_power_law, prediction
from evaluation.statistics import t_interval
from tests.bench.scaling import CASES, LAWS, X, coverage, crossing, experiment, truth

NOISE = CASES[0]


def laws(seed: int = 0) -> tuple[PowerLaw, PowerLaw]:
    first, second = experiment(NOISE, np.random.default_rng(seed))
    return fit_power_law(X, first), fit_power_law(X, second)


def with_spread(curve: Array, size: float = 1e-9) -> Array:
    """Four seeds around a curve."""
    return curve + size * np.array([[-1.0], [1.0], [-2.0], [2.0]])


@pytest.mark.parametrize("law", LAWS)
def test_a_law_without_noise_is_recovered(law: tuple[float, float, float, float]) -> None:
    found = fit_power_law(X, with_spread(truth(law, X)))
    assert (found.a.value, found.b.value, found.c.value, found.d.value) == pytest.approx(law, rel=1e-4)
    assert found.at(np.array([1e7]))[0] == pytest.approx(truth(law, np.array([1e7]))[0], rel=1e-5)
    assert not found.problem


def test_four_points_have_no_b() -> None:
    found = fit_power_law(X[:4], with_spread(truth((6.0, 0.0, -0.25, 0.15), X[:4])))
    assert found.b == Interval(0.0, 0.0, 0.0)
    assert (found.a.value, found.c.value, found.d.value) == pytest.approx((6.0, -0.25, 0.15), rel=1e-4)


def test_units_of_x_do_not_matter() -> None:
    errors, _ = experiment(NOISE, np.random.default_rng(3))
    samples, flops = fit_power_law(X, errors), fit_power_law(X * 1e9, errors)
    new = errors[:, -1] * 0.8
    predicted = prediction(samples, 1e7, new), prediction(flops, 1e16, new)
    for one, other in ((samples.c, flops.c), (samples.d, flops.d), predicted):
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), rel=1e-3)
    assert flops.b.high == pytest.approx(1e9 * samples.b.high, rel=1e-2)


def estimates(errors: Array, x: float) -> Array:
    """Return a, b, c, d and the error at x, each on the scale on which its interval is symmetric."""
    law = fit_power_law(X, errors)
    return np.array([
        math.log(law.a.value),
        math.log1p(law.b.value / X[0]),
        math.log(-law.c.value),
        law.d.value,
        law.at(np.array([x]))[0],
    ])  # fmt: skip


def test_intervals_are_those_of_the_seeds_influences_on_refitted_laws() -> None:
    """The expected influences use a numeric gradient, from refits with one mean error shifted."""
    errors, _ = experiment(NOISE, np.random.default_rng(5))
    law, x, step = fit_power_law(X, errors), 2e6, 1e-4
    gradient = []
    for point in range(len(X)):
        shift = np.eye(len(X))[point] * step
        gradient.append((estimates(errors + shift, x) - estimates(errors - shift, x)) / (2 * step))
    half = []
    for row in np.array(gradient).T:
        of_seeds = [float(sum(w * e for w, e in zip(row, seed, strict=True))) for seed in errors]
        mean, below, _ = t_interval(of_seeds)
        half.append(mean - below)
    _, low, high = difference(law, fit_power_law(X, np.tile(errors.mean(0), (8, 1))), np.array([x]))
    expected = [math.exp(2 * half[0]), math.exp(2 * half[2]), 2 * half[3], 2 * half[4]]
    found = [law.a.high / law.a.low, law.c.low / law.c.high, law.d.high - law.d.low, (high - low)[0]]
    assert found == pytest.approx(expected, rel=0.03)


def test_noise_that_two_arms_share_cancels_in_their_difference() -> None:
    draw = np.random.default_rng(2)
    common = 0.01 * draw.standard_normal((8, 6))
    first, second = (
        fit_power_law(X, truth(law, X) + common + 1e-4 * draw.standard_normal((8, 6))) for law in (LAWS[0], LAWS[0])
    )
    _, low, high = difference(first, second, np.array([1e5]))
    _, alone_low, alone_high = difference(first, fit_power_law(X, second.errors[::-1]), np.array([1e5]))
    assert (high - low)[0] < 0.1 * (alone_high - alone_low)[0]


def test_the_crossover_is_the_last_one_and_its_band_contains_zero() -> None:
    found = crossover(*laws())
    assert found is not None and found.contains(crossing(NOISE))
    value, _, _ = difference(*laws(), np.array([found.value]))
    assert value[0] == pytest.approx(0.0, abs=1e-4)
    _, low, high = difference(*laws(), np.array([found.low / 1.02, found.low * 1.02]))
    assert (low[0] > 0 or high[0] < 0) and low[1] < 0 < high[1]


def test_laws_that_do_not_cross_have_no_crossover() -> None:
    a, b, c, d = LAWS[0]
    one = fit_power_law(X, with_spread(truth((a, b, c, d), X)))
    assert crossover(one, fit_power_law(X, with_spread(truth((a, b, c, d + 0.1), X)))) is None


@pytest.mark.parametrize(
    ("curve", "problem"),
    [
        ([0.3, 0.4, 0.5, 0.5, 0.6, 0.6], "the error does not fall"),
        ([0.9, 0.7, 0.75, 0.5, 0.55, 0.4], "the law does not fit"),
        ([0.9, 0.3, 0.3, 0.3, 0.3, 0.3], "c is at an end of its range"),
    ],
)
def test_a_law_that_does_not_fit_is_reported(curve: list[float], problem: str) -> None:
    assert fit_power_law(X, with_spread(np.array(curve), 1e-4)).problem.startswith(problem)


@pytest.mark.parametrize(("points", "seeds"), [(6, 3), (8, 3), (8, 8)])
def test_a_curve_around_the_law_is_reported_with_few_seeds_too(points: int, seeds: int) -> None:
    draw, x, reported = np.random.default_rng(7), np.geomspace(2500.0, 2500.0 * 4 ** (points - 1), points), 0
    zigzag = 0.03 * (-1.0) ** np.arange(points)
    for _ in range(20):
        noise = 0.002 * draw.standard_normal((seeds, points))
        reported += bool(fit_power_law(x, truth(LAWS[0], x) + zigzag + noise).problem)
    assert reported >= 18


def test_a_parameter_at_its_bound_does_not_hide_a_misfit() -> None:
    """The curve ends below the law; d could follow it only below 0."""
    curve = np.array([0.74, 0.62, 0.35, 0.23, 0.05])
    law = fit_power_law(X[:5], curve + 0.002 * np.random.default_rng(8).standard_normal((8, 5)))
    assert law.is_at_bound("d") and law.problem


def test_noise_that_a_seed_has_at_all_points_cancels_in_the_prediction() -> None:
    draw, curve = np.random.default_rng(4), truth(LAWS[0], X)
    errors = curve + 0.01 * draw.standard_normal((8, 1)) + 1e-4 * draw.standard_normal((8, 6))
    smaller = fit_power_law(X[:5], errors[:, :5])
    same = prediction(smaller, X[5], errors[:, 5])
    others = prediction(smaller, X[5], errors[::-1, 5])
    assert same.high - same.low < 0.5 * (others.high - others.low)


def test_parameters_at_the_end_of_their_range_are_marked() -> None:
    at_zero = fit_power_law(X, with_spread(truth((6.0, 2000.0, -0.25, 0.0), X)))
    assert at_zero.is_at_bound("d") and not at_zero.is_at_bound("b")


def test_correlated_noise_does_not_look_like_a_misfit() -> None:
    """Residuals of a seed at two points move together; with eight seeds, few of 100 laws may be reported."""
    draw, reported = np.random.default_rng(6), 0
    for _ in range(100):
        noise = 0.01 * draw.standard_normal((8, 6))
        noise[:, 4:] = noise[:, 4:5] * (3.0, -3.0)
        reported += "does not fit" in fit_power_law(X, truth(LAWS[0], X) + noise).problem
    assert reported <= 5


@pytest.mark.long
def test_intervals_contain_the_truth_in_95_of_100_simulated_ladders() -> None:
    """500 ladders: the standard error of a coverage of 95% is 1%."""
    found = coverage(NOISE, 500)
    for name in ("a", "c", "d", "crossover", "prediction"):
        assert 0.93 <= found[name] <= 0.97, (name, found)
