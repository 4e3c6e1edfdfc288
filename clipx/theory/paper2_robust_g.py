"""Paper 2, Example 1 (Definition 5.1): one mislabelled image changes the minimum for log(1 + x), not for x / (1 + x).

Class z, keyword label l and text y are equal, 0.5 or -0.5; x in R^2 is (1.01, 1), (0.01, 0) or (0, 10) (mislabelled)
for z = 0.5, and (1, 1) or (0, 0) for z = -0.5. The score is f(x, y) = y h(x) with h = a x1 + b x2 + c, and the batch
size is 2, so the population loss is the exact sum L_g = 1/2 E g(exp(-sign(z) h(x) / tau)).

The paper prints a = 3.7e-6, b = -5.6e-6, c = 0.8e-7 for the minimum of log(1 + x). The minimum has
a = -3.70e-6, b = 5.60e-6, c = -9.8e-7, whose top-1 error is the paper's 0.4995. The printed point has a higher loss
and the error 0.5005.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from clipx.config.setting import AT_LEAST_0, AT_LEAST_1, OPEN_SHARE, POSITIVE, at_least, setting
from clipx.theory.experiment import Array, Curve, Panel
from clipx.verdict import Check, CheckedClaim, near

X = np.array([[1.01, 1, 1], [0.01, 0, 1], [0, 10, 1], [1, 1, 1], [0, 0, 1]])  # (x1, x2, 1)
SIGN = np.array([1.0, 1.0, 1.0, -1.0, -1.0])  # of z
F_STAR = np.array([0.1, -0.1, -0.0005])  # (a, b, c) of the paper's f*
# Positions on the line from the minimum of log1p (0) to f* (1); dense near 0, where the loss changes fast.
LINE = np.concatenate([np.linspace(-0.2, 0.2, 401) ** 3 * 25, np.linspace(0.201, 1.25, 200)])

# At x = exp(u): g1(x) = log(1 + x) and g2(x) = x / (1 + x).
G: dict[str, Callable[[Array], Array]] = {"log1p": lambda u: np.logaddexp(0, u), "ratio": expit}


@dataclass(frozen=True, kw_only=True)
class RobustGSettings:
    """Defaults: the paper's numbers."""

    tau: float = setting(5e-5, "temperature", POSITIVE)
    mislabelled: float = setting(0.002, "Pr[x = (0, 10) | z = 0.5]", OPEN_SHARE)
    starts: int = setting(40, "Nelder-Mead starts for the ratio, whose loss is not convex", AT_LEAST_1)
    seed: int = setting(0, "seed of the starts", AT_LEAST_0)
    sweep: int = setting(13, "number of mislabelled shares in the figure", at_least(2))


@dataclass(frozen=True)
class Minimum:
    abc: Array  # (a, b, c)
    loss: float
    error: float  # top-1


@dataclass(frozen=True)
class RobustGResult:
    settings: RobustGSettings
    minima: dict[str, Minimum]  # by name of g
    star: dict[str, float]  # name of g -> loss of f*
    losses: dict[str, Array]  # name of g -> loss at each position of LINE
    shares: Array  # mislabelled shares of the sweep
    errors: dict[str, Array]  # name of g -> top-1 error at the minimum for each share


def probabilities(mislabelled: float) -> Array:
    """Return the probabilities of the five images."""
    good = (1 - mislabelled) / 2
    return np.array([good, good, mislabelled, 0.5, 0.5]) / 2


def loss(w: Array, g: Callable[[Array], Array], p: Array) -> float:
    """Return L_g at w = (a, b, c) / tau."""
    return float(0.5 * (p * g(-SIGN * (X @ w))).sum())


def top1_error(w: Array, p: Array) -> float:
    """Return the probability that the wrong one of the two prompts scores at least as high as the correct one."""
    return float(p[SIGN * (X @ w) <= 0].sum())


def minimise(name: str, settings: RobustGSettings, mislabelled: float) -> Minimum:
    """Minimise L_g: log1p is convex and needs one start; for the ratio, take the best of many starts.

    The starts are random values of (a, b, c) / tau, with scales from 1 to 100.
    """
    p = probabilities(mislabelled)
    if name == "log1p":
        w = minimize(loss, np.zeros(3), (G["log1p"], p), method="BFGS", options={"gtol": 1e-10}).x
    else:
        rng = np.random.default_rng(settings.seed)
        starts = rng.standard_normal((settings.starts, 3)) * 100 ** rng.random((settings.starts, 1))
        options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-9, "fatol": 1e-14, "adaptive": True}
        found = [minimize(loss, w, (G["ratio"], p), method="Nelder-Mead", options=options) for w in starts]
        w = min(found, key=lambda f: float(f.fun)).x
    return Minimum(w * settings.tau, loss(w, G[name], p), top1_error(w, p))


def solve(settings: RobustGSettings) -> RobustGResult:
    """Find both minima, the losses on the line to f*, and the errors over the mislabelled share."""
    p, tau = probabilities(settings.mislabelled), settings.tau
    minima = {name: minimise(name, settings, settings.mislabelled) for name in G}
    line = (minima["log1p"].abc + LINE[:, None] * (F_STAR - minima["log1p"].abc)) / tau
    shares = np.geomspace(1e-5, 0.1, settings.sweep)
    return RobustGResult(
        settings=settings,
        minima=minima,
        star={name: loss(F_STAR / tau, g, p) for name, g in G.items()},
        losses={name: np.array([loss(w, g, p) for w in line]) for name, g in G.items()},
        shares=shares,
        errors={name: np.array([minimise(name, settings, float(s)).error for s in shares]) for name in G},
    )


def claims(result: RobustGResult) -> list[CheckedClaim]:
    """Check claim 2.4; the paper's numbers apply only at the paper's tau and mislabelled share."""
    settings = result.settings
    log, best = result.minima["log1p"], result.minima["ratio"]
    checks = [
        Check("log1p: top-1 error at the minimum", log.error, low=0.49),
        Check("ratio: top-1 error at the best minimum", best.error, high=0.1),
        Check("ratio: loss of f* minus loss at the best minimum", result.star["ratio"] - best.loss, low=0.0),
    ]
    if settings == RobustGSettings(seed=settings.seed, starts=settings.starts, sweep=settings.sweep):
        checks += [
            near("log1p: top-1 error, paper's number", log.error, 0.4995, 1e-9),
            near("log1p: loss", log.loss, 0.346485, 1e-5),
            near("log1p: loss of f*", result.star["log1p"], 10.005, 1e-3),
        ]
    statement = "Example 1: top-1 error 0.4995 with log(1+x), below 0.1 with x/(1+x) (Definition 5.1, Corollary 4.8)"
    return [CheckedClaim("2.4", statement, checks)]


def figure(result: RobustGResult) -> list[Panel]:
    """Return images and boundaries, the losses on the line to f*, and the errors over the mislabelled share."""
    x2, names = np.linspace(-1.5, 11, 400), {"log1p": r"$g_1 = \log(1+x)$", "ratio": r"$g_2 = x/(1+x)$"}
    boundaries = [  # points with a x1 + b x2 + c = 0
        Curve(f"boundary of {names[name]}: error {minimum.error:.4f}", -(b * x2 + c) / a, x2)
        for name, minimum in result.minima.items()
        for a, b, c in (minimum.abc,)
    ]
    images = [Curve(f"z = {sign / 2:g}", X[sign == SIGN, 0], X[sign == SIGN, 1], "o") for sign in (1, -1)]
    alone = Curve("if only mislabelled images are wrong", result.shares, result.shares / 2, "--")
    errors = [Curve(names[name], result.shares, errors, "o-") for name, errors in result.errors.items()]
    return [
        Panel("$x_1$", "$x_2$", boundaries + images, f"mislabelled: (0, 10), share {result.settings.mislabelled:g}"),
        Panel(
            "position between the minimum of $g_1$ (0) and $f^*$ (1)",
            "loss $L_g$ (B = 2)",
            [Curve(names[name], LINE, losses) for name, losses in result.losses.items()],
            log="y",
        ),
        Panel("mislabelled share of z = 0.5", "top-1 error at the minimum", [*errors, alone], log="xy"),
    ]
