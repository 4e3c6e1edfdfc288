"""Saturating power law of the error, a (x + b)^c + d, with 95% intervals over the seeds.

Fit: least squares on the mean errors of the K points, with c < 0 and b, d >= 0. For fixed (b, c) the law is linear in
(a, d): a grid over (b, c) gives the start, scipy's least_squares the result. With fewer than MIN_FOR_B points b is 0,
because with four points a law with b would have as many parameters as points.

Intervals: each seed gives one whole curve, and an estimate is a function of the mean curve. To first order, the error
of the estimate is the mean over the seeds of h . (curve of the seed - expected curve), with h the gradient of the
estimate with respect to the K mean errors. The mean curve replaces the expected one; each seed's term is then called
its influence. For log a, log -c, log(1 + b / x[0]), d and the law's values, the interval is Student's t with the spread
of the influences. It stays valid if the runs of a seed are correlated, and if the noise differs between points. This
is a linearised bootstrap over seeds with Student's quantile, which is right for few seeds. The percentile bootstrap
covers too rarely with eight seeds: `python -m tests.bench.scaling` prints the coverage of both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics import t_quantile

Array = NDArray[np.float64]
MIN_FOR_B = 5  # fewest points with which b is fitted
C_RANGE = (0.01, 3.0)  # of -c
CELLS = 41  # of the grid, in each direction
MISFIT = 0.01  # the law does not fit if the p-value of its residuals is below this
AT_BOUND = 1e-6  # values of s and d below this are 0
LEAST_SPREAD = 1e-6  # of residuals between seeds; rounding errors are smaller
BEYOND = 4.0  # crossovers are searched up to this multiple of the largest point


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Return True if the interval contains a value."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law. Its parameters are the height log(a x0^c), log -c, s = log(1 + b / x[0]) and d.

    The height is log(error - d) at x + b = x0; x0 is the geometric mean of the points.
    """

    x: Array  # scales [K], ascending
    errors: Array  # one curve per seed [n, K]
    parameters: Array  # the four numbers above
    problem: str  # why the law should not be used; "" if it fits

    @property
    def with_b(self) -> bool:
        """True if b was fitted, False if it is 0 by definition."""
        return len(self.x) >= MIN_FOR_B

    def is_at_bound(self, name: str) -> bool:
        """Return True if `b` or `d` is 0, the end of its range; its interval is then only a rough one."""
        return bool(self.parameters[{"b": 2, "d": 3}[name]] < AT_BOUND)

    @property
    def a(self) -> Interval:
        """Factor of (x + b)^c."""
        height, steepness = self.parameters[:2]
        log_x0, c = math.log(_centre(self.x)), -math.exp(steepness)
        gradient = np.array([1.0, -c * log_x0, 0.0, 0.0])  # of log a = height - c log x0
        return self._interval(height - c * log_x0, gradient, math.exp)

    @property
    def b(self) -> Interval:
        """Shift of x."""
        return self._interval(self.parameters[2], np.eye(4)[2], lambda s: float(self.x[0] * math.expm1(max(s, 0.0))))

    @property
    def c(self) -> Interval:
        """Exponent, negative."""
        found = self._interval(self.parameters[1], np.eye(4)[1], lambda log: -math.exp(log))
        return Interval(found.value, found.high, found.low)

    @property
    def d(self) -> Interval:
        """Error that remains at any scale."""
        return self._interval(self.parameters[3], np.eye(4)[3], lambda value: min(max(value, 0.0), 1.0))

    def _interval(self, value: float, gradient: Array, back_transform: Callable[[float], float]) -> Interval:
        half = t_quantile(len(self.errors) - 1) * float(standard_error(self.influences(gradient[None]))[0])
        low, high = (_bounded(back_transform, value + sign * half) for sign in (-1, 1))
        return Interval(back_transform(value), low, high)

    def at(self, x: Array) -> Array:
        """Return the law's errors at x."""
        return _law(self.parameters, x, self.x)

    def influences(self, gradients: Array) -> Array:
        """Return the influences [estimates, n] of the n seeds on estimates with these gradients [estimates, 4]."""
        free = [0, 1, 2, 3] if self.with_b else [0, 1, 3]
        weights = gradients[:, free] @ np.linalg.pinv(_jacobian(self.parameters, self.x, self.x)[:, free])
        influences: Array = weights @ (self.errors - self.errors.mean(0)).T
        return influences

    def influences_at(self, x: Array) -> Array:
        """Return the influences [len(x), n] of the seeds on the law's errors at x."""
        return self.influences(_jacobian(self.parameters, x, self.x))


def fit_power_law(x: Array, errors: Array) -> PowerLaw:
    """Fit the law to errors [n, K] at the scales x [K]; needs two seeds, and at least as many points as parameters."""
    from scipy import optimize

    mean = errors.mean(0)
    with_b = len(x) >= MIN_FOR_B
    top = math.log1p(float(x[-1] / x[0])) if with_b else 1e-12  # least_squares needs bounds that differ
    bounds = ([-np.inf, math.log(C_RANGE[0]), 0.0, 0.0], [np.inf, math.log(C_RANGE[1]), top, 1.0])
    with np.errstate(over="ignore"):  # on the way to the law of a curve that rises
        found = optimize.least_squares(
            lambda p: _law(p, x, x) - mean,
            np.clip(_start(x, mean, top), *bounds),
            jac=lambda p: _jacobian(p, x, x),
            bounds=bounds,
            x_scale="jac",
            ftol=1e-12,
            xtol=1e-12,
            gtol=1e-12,
        )
    parameters = found.x * (1, 1, with_b, 1)  # without b, s is exactly 0
    return PowerLaw(x, errors, parameters, _problem(x, errors, parameters))


def prediction(law: PowerLaw, x: float, measured: Array) -> Interval:
    """Return the law's error at x, with the 95% interval in which the mean of `measured` should lie.

    `measured` [n] has the errors at x of the seeds that the law was fitted to. The interval is that of measured -
    predicted, paired by seed.
    """
    value = float(law.at(np.array([x]))[0])
    error = standard_error(measured - measured.mean() - law.influences_at(np.array([x])))[0]
    half = t_quantile(len(measured) - 1) * float(error)
    return Interval(value, value - half, value + half)


def difference(first: PowerLaw, second: PowerLaw, x: Array) -> tuple[Array, Array, Array]:
    """Return the errors of `first` minus those of `second` at x, and the ends of the 95% band.

    Row i of the two laws' `errors` must belong to the same seed.
    """
    value = first.at(x) - second.at(x)
    error = standard_error(first.influences_at(x) - second.influences_at(x))
    half = t_quantile(len(first.errors) - 1) * error
    return value, value - half, value + half


def common_range(first: PowerLaw, second: PowerLaw) -> tuple[float, float]:
    """Return the smallest and the largest scale that the points of both laws cover."""
    return max(first.x[0], second.x[0]), min(first.x[-1], second.x[-1])


def crossover(first: PowerLaw, second: PowerLaw) -> Interval | None:
    """Return the largest scale where two laws cross, up to BEYOND times the largest point; None if they do not cross.

    Only scales that the points of both laws cover, or beyond, are searched. The interval is the range around the
    crossover in which the band of the difference contains 0. If this range reaches an end of the search, the lower end
    is 0 or the upper end infinity.
    """
    smallest, largest = common_range(first, second)
    if smallest >= BEYOND * largest:
        return None
    x = np.geomspace(smallest, BEYOND * largest, 1001)
    value, low, high = difference(first, second, x)
    crossings = np.flatnonzero(np.diff(np.sign(value)))
    if not len(crossings):
        return None
    at = int(crossings[-1])
    apart = np.flatnonzero((low > 0) | (high < 0))
    below, above = apart[apart <= at], apart[apart > at]
    share = value[at] / (value[at] - value[at + 1])
    return Interval(
        float(x[at] * (x[at + 1] / x[at]) ** share),
        float(x[below[-1]]) if len(below) else 0.0,
        float(x[above[0]]) if len(above) else math.inf,
    )


def standard_error(influences: Array) -> Array:
    """Return the standard errors of estimates from their influences [estimates, n], whose mean over seeds is 0."""
    n = influences.shape[1]
    found: Array = np.sqrt((influences**2).sum(1) / (n - 1) / n)
    return found


def _law(parameters: Array, x: Array, points: Array) -> Array:
    height, steepness, s, d = parameters
    shifted = (x + points[0] * np.expm1(s)) / _centre(points)
    law: Array = np.exp(height) * shifted ** -np.exp(steepness) + d
    return law


def _jacobian(parameters: Array, x: Array, points: Array) -> Array:
    """Return the derivatives [len(x), 4] of the law's values with respect to the parameters."""
    c, s = -math.exp(parameters[1]), parameters[2]
    shifted = x + points[0] * np.expm1(s)
    power = _law(parameters, x, points) - parameters[3]
    with_respect_to_s = power * c * points[0] * np.exp(s) / shifted
    return np.stack(
        [power, power * c * np.log(shifted / _centre(points)), with_respect_to_s, np.ones_like(power)], axis=1
    )


def _start(x: Array, mean: Array, top: float) -> Array:
    """Return the parameters of the best law on a grid over (c, s), with the best a and d >= 0 at each grid point."""
    steepness, s = np.meshgrid(
        np.linspace(math.log(C_RANGE[0]), math.log(C_RANGE[1]), CELLS),
        np.linspace(0, top, CELLS if len(x) >= MIN_FOR_B else 1),
        indexing="ij",
    )
    power = ((x + x[0] * np.expm1(s)[..., None]) / _centre(x)) ** -np.exp(steepness)[..., None]
    centred = power - power.mean(-1, keepdims=True)
    factor = (centred * mean).sum(-1) / (centred**2).sum(-1)
    d = mean.mean() - factor * power.mean(-1)
    factor = np.where(d < 0, (power * mean).sum(-1) / (power**2).sum(-1), factor)
    d = np.maximum(d, 0.0)
    loss = ((factor[..., None] * power + d[..., None] - mean) ** 2).sum(-1)
    best = np.unravel_index(int(np.argmin(np.where(factor > 0, loss, np.inf))), loss.shape)
    height = math.log(max(float(factor[best]), 1e-12))
    return np.array([height, steepness[best], s[best], d[best]])


def _problem(x: Array, errors: Array, parameters: Array) -> str:
    mean = errors.mean(0)
    if mean[-1] >= mean[0]:
        return "the error does not fall"
    if min(abs(parameters[1] - math.log(end)) for end in C_RANGE) < 1e-3:
        return f"c is at an end of its range, -{C_RANGE[1]:g} to -{C_RANGE[0]:g}"
    if parameters[2] > math.log1p(float(x[-1] / x[0])) - 1e-3:
        return "b is at the end of its range, the largest point"
    p = _misfit(x, errors, parameters)
    return f"the law does not fit (p = {p:.1g})" if p < MISFIT else ""


def _misfit(x: Array, errors: Array, parameters: Array) -> float:
    """Return the p-value of the law: t-tests of the seeds' residuals, Bonferroni's correction for their number.

    There is one test for each direction in which no parameter moves the law; a parameter at its bound moves nothing.
    As the intervals, the tests allow for correlated runs of a seed and for noise that differs between points.
    """
    from scipy import stats

    at_bound = parameters < (-np.inf, -np.inf, AT_BOUND, AT_BOUND)
    moved = _jacobian(parameters, x, x)[:, ~at_bound]
    fixed = np.linalg.svd(moved)[0][:, moved.shape[1] :]
    residuals = (errors - _law(parameters, x, x)) @ fixed  # [n, directions]
    if not residuals.shape[1]:
        return 1.0
    mean = residuals.mean(0)
    t = np.abs(mean) / np.maximum(standard_error((residuals - mean).T), LEAST_SPREAD)
    return min(1.0, float(2 * len(t) * stats.t.sf(t.max(), len(errors) - 1)))


def _centre(points: Array) -> float:
    """Return x0, the geometric mean of the points; scales in units of x0 keep the parameters of order 1."""
    return float(np.exp(np.log(points).mean()))


def _bounded(function: Callable[[float], float], value: float) -> float:
    try:
        return function(value)
    except OverflowError:
        return math.inf
