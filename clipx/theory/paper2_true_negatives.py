"""Paper 2, Example 2 (Definition 5.2, Theorem 5.3): false negatives move the minimum of CLIP away from error 0.

z is 1 with probability p1, and -1 with p2 = 1 - p1; x = z. Given z = 1, y is -theta0 or theta0 with probability
(p1 - p2)/(2 p1) each, and -5 theta0 with p2/p1. Given z = -1, y = 3 theta0. The score is f(x, y) = x cos(y + theta)
with the trained angle theta; the batch size is 2. Population losses are exact sums over two draws of (x, y).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clipx.config.setting import POSITIVE, at_least, each, setting
from clipx.theory.experiment import Array, Curve, Panel
from clipx.utils.figures import GREY
from clipx.verdict import Check, CheckedClaim

X = np.array([1.0, 1.0, 1.0, -1.0])  # images of the four pairs; the sign is the label
THETA = np.linspace(-np.pi, np.pi, 2881)  # in steps of 1/8 degree


@dataclass(frozen=True, kw_only=True)
class TrueNegativesSettings:
    """Defaults: a point (p2, theta0) where the effect occurs, and a grid to find its boundary."""

    p2: float = setting(0.01, "probability of the rare class", (lambda v: 0 < v < 0.25, "more than 0, less than 1/4"))
    theta0: float = setting(
        np.pi / 12,
        "unit of the texts' angles",
        (lambda v: 0 < v < np.pi / 10, "more than 0, less than pi/10 = 0.314"),
        unit="radians",
    )
    taus: tuple[float, ...] = setting((0.02, 0.05, 0.2), "temperatures", each(POSITIVE))
    p2_grid: int = setting(160, "grid points in 0.0002..1/4", at_least(2))
    theta0_grid: int = setting(60, "grid points in 0..pi/10", at_least(2))


class PerLoss(NamedTuple):
    """An array for each of the two losses."""

    clip: Array
    true_negatives: Array  # L_g


@dataclass(frozen=True)
class TrueNegativesResult:
    settings: TrueNegativesSettings
    landscapes: dict[float, PerLoss]  # tau -> losses over THETA
    error: Array  # top-1 error over THETA
    p2: Array  # axes of the grid
    theta0: Array
    grid_errors: dict[float, PerLoss]  # tau -> top-1 errors at the minima [theta0, p2]


def probabilities(p2: Array) -> Array:
    """Return the probabilities of the four pairs, [..., 4]."""
    p2 = np.asarray(p2)
    typical = (1 - 2 * p2) / 2
    return np.stack([typical, typical, p2, p2], axis=-1)


def texts(theta0: float) -> Array:
    """Return y of the four pairs, [4]."""
    return theta0 * np.array([-1.0, 1.0, -5.0, 3.0])


def pairwise_losses(theta0: float, tau: float) -> PerLoss:
    """Return the losses of CLIP and L_g (g = log(1 + x)) for all batches of two pairs, both [THETA, 4, 4]."""
    f = X[:, None] * np.cos(texts(theta0) + THETA[:, None, None])  # [THETA, image, text]
    own = np.diagonal(f, axis1=1, axis2=2)[..., None]
    other_text = np.logaddexp(0, (f - own) / tau)  # [first, second]: image 1 with text 2
    other_image = np.logaddexp(0, (np.swapaxes(f, 1, 2) - own) / tau)
    return PerLoss(other_text + other_image, other_text * (X[:, None] != X))


def expected(pairwise: Array, p: Array) -> Array:
    """Return the mean over two independent draws, [THETA, ...] for p [..., 4]."""
    both = (p[..., :, None] * p[..., None, :]).reshape(-1, 16)
    return np.asarray(pairwise.reshape(-1, 16) @ both.T).reshape(len(pairwise), *p.shape[:-1])


def top1_error(theta0: float, p2: Array) -> Array:
    """Return the probability that the correct prompt does not score highest, [THETA, ...]; the same for x = +-1."""
    y, p = texts(theta0), probabilities(p2)
    wrong = np.cos(y[:3] + THETA[:, None]) <= np.cos(y[3] + THETA)[:, None]  # [THETA, 3]
    return np.asarray(wrong @ np.moveaxis(p[..., :3], -1, 0) / (1 - np.asarray(p2)))


def solve(settings: TrueNegativesSettings) -> TrueNegativesResult:
    """Compute the landscapes at one (p2, theta0) and the errors at both minima over the grid."""
    p = probabilities(np.array(settings.p2))
    p2 = np.geomspace(2e-4, 0.249, settings.p2_grid)
    theta0 = np.linspace(0, np.pi / 10, settings.theta0_grid + 2)[1:-1]
    return TrueNegativesResult(
        settings=settings,
        landscapes={
            tau: PerLoss(*(expected(pairwise, p) for pairwise in pairwise_losses(settings.theta0, tau)))
            for tau in settings.taus
        },
        error=top1_error(settings.theta0, np.array(settings.p2)),
        p2=p2,
        theta0=theta0,
        grid_errors={tau: _errors(theta0, p2, tau) for tau in settings.taus},
    )


def _errors(theta0: Array, p2: Array, tau: float) -> PerLoss:
    """Return the top-1 errors at the minima of CLIP and of L_g, both [theta0, p2]."""
    p, rows = probabilities(p2), []
    for angle in theta0:
        error = top1_error(float(angle), p2)
        best = [expected(pairwise, p).argmin(axis=0) for pairwise in pairwise_losses(float(angle), tau)]
        rows.append([error[at, np.arange(len(p2))] for at in best])
    return PerLoss(*np.swapaxes(np.array(rows), 0, 1))


def claims(result: TrueNegativesResult) -> list[CheckedClaim]:
    """Check claim 2.5."""
    settings, checks = result.settings, []
    for tau, landscape in result.landscapes.items():
        error_clip, error_negatives = (float(result.error[losses.argmin()]) for losses in landscape)
        theta = abs(THETA[landscape.clip.argmin()])
        distance = float(min(theta, np.pi - theta))  # Theorem 5.3 bounds it by theta0
        checks += [
            Check(f"CLIP: error at the minimum, tau={tau:g}", error_clip, low=settings.p2),
            Check(f"CLIP: distance of the minimum from theta = 0 or pi, tau={tau:g}", distance, high=settings.theta0),
            Check(f"L_g: error at the minimum, tau={tau:g}", error_negatives, high=0.0),
        ]
    star = np.pi / 2 - 5 / 2 * settings.theta0
    checks.append(Check("error at theta* = pi/2 - 5/2 theta0", float(np.interp(star, THETA, result.error)), high=0.0))
    statement = (
        f"At p2 = {settings.p2:g}, theta0 = {settings.theta0:.4g} the top-1 error is at least p2 at the minimum of the "
        "CLIP loss and 0 at the minimum of the loss on true negatives (Theorem 5.3)"
    )
    return [CheckedClaim("2.5", statement, checks)]


def figure(result: TrueNegativesResult) -> list[Panel]:
    """Return both losses at one (p2, theta0), the error there, and the boundary of the effect over the grid."""
    settings = result.settings
    losses = [
        Curve(rf"{name}, $\tau$ = {tau:g}", THETA, (values - values.min()) / np.ptp(values), style, colour=at)
        for at, (tau, landscape) in enumerate(result.landscapes.items())
        for values, name, style in zip(landscape, ("CLIP", "$L_g$, true negatives"), ("-", "--"), strict=True)
    ]
    boundary = [
        Curve(rf"$\tau$ = {tau:g}", largest_p2(errors, result.p2), result.theta0)
        for tau, errors in result.grid_errors.items()
    ]
    point = Curve("point of the losses", np.array([settings.p2]), np.array([settings.theta0]), "x", GREY)
    error = Curve("both classes", THETA, np.maximum(result.error, 1e-3))
    title = "left of a line only CLIP's minimum has errors"
    return [
        Panel(r"$\theta$ (radians)", "loss, scaled to 0..1", losses),
        Panel(r"$\theta$ (radians)", "top-1 error", [error], "0 is drawn at 0.001", log="y"),
        Panel("$p_2$, probability of the rare class", r"$\theta_0$ (radians)", [*boundary, point], title, log="x"),
    ]


def largest_p2(errors: PerLoss, p2: Array) -> Array:
    """Return for each theta0 the largest p2 up to which all grid points show the effect; nan if there is none.

    The effect: the error is at least p2 at the minimum of CLIP and 0 at the minimum of L_g.
    """
    exists = (errors.clip >= p2) & (errors.true_negatives == 0)
    count = np.where(exists.all(axis=1), exists.shape[1], exists.argmin(axis=1))
    return np.where(count > 0, p2[np.maximum(count - 1, 0)], np.nan)
