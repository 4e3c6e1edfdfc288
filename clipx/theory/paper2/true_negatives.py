"""Example 2 of paper 2 (Definition 5.2, Theorem 5.3): false negatives pull CLIP away from the task.

z = 1 with probability p1, -1 with p2 = 1 - p1; x = z; given z = 1, y is -theta0 or theta0, each with
(p1 - p2)/(2 p1), or -5 theta0 with p2/p1; given z = -1, y = 3 theta0. The score is
f(x, y) = x cos(y + theta), B = 2. Population losses are exact sums over two draws of (x, y).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clipx.config.setting import POSITIVE, Rule
from clipx.theory.claims import Check, CheckedClaim
from clipx.theory.experiment import Settings
from clipx.theory.paper1.case_study import Array

X = np.array([1.0, 1.0, 1.0, -1.0])  # image of each of the four pairs; its sign is the label
THETA = np.linspace(-np.pi, np.pi, 2881)  # steps of an eighth of a degree


@dataclass(frozen=True, kw_only=True)
class TrueNegativesSettings(Settings):
    """Defaults: the independent check's point, and a grid for the boundary of the effect."""

    p2: float = 0.01  # probability of the rare class
    theta0: float = np.pi / 12
    taus: tuple[float, ...] = (0.02, 0.05, 0.2)
    p2_grid: int = 160  # points of the boundary's map, 0.0002..1/4
    theta0_grid: int = 60  # 0..pi/10

    RULES: ClassVar[Mapping[str, Rule]] = {
        "p2": (lambda v: 0 < v < 0.25, "more than 0, less than 1/4"),
        "theta0": (lambda v: 0 < v < np.pi / 10, "more than 0, less than pi/10 = 0.314"),
        "taus": POSITIVE,
        "p2_grid": (lambda v: v >= 2, "2 or more"),
        "theta0_grid": (lambda v: v >= 2, "2 or more"),
    }


@dataclass(frozen=True)
class Landscape:
    """Losses over THETA at one tau."""

    clip: Array
    true_negatives: Array


@dataclass(frozen=True)
class TrueNegativesResult:
    settings: TrueNegativesSettings
    landscapes: dict[float, Landscape]  # tau ->
    error: Array  # top-1, over THETA
    p2: Array  # the map's axes
    theta0: Array
    clip_error: dict[float, Array]  # tau -> top-1 error at CLIP's minimum [theta0, p2]
    true_negatives_error: dict[float, Array]  # the same at L_g's


def probabilities(p2: Array) -> Array:
    """Of the four pairs [..., 4]."""
    p2 = np.asarray(p2)
    typical = (1 - 2 * p2) / 2
    return np.stack([typical, typical, p2, p2], axis=-1)


def texts(theta0: float) -> Array:
    """y of the four pairs."""
    return theta0 * np.array([-1.0, 1.0, -5.0, 3.0])


def pairwise_losses(theta0: float, tau: float) -> tuple[Array, Array]:
    """CLIP's and L_g's (g = log(1 + x)) loss of every two pairs, both [THETA, 4, 4]."""
    f = X[:, None] * np.cos(texts(theta0) + THETA[:, None, None])  # [THETA, image, text]
    own = np.diagonal(f, axis1=1, axis2=2)[..., None]
    other_text = np.logaddexp(0, (f - own) / tau)  # [first, second] = image 1 with text 2
    other_image = np.logaddexp(0, (np.swapaxes(f, 1, 2) - own) / tau)
    return other_text + other_image, other_text * (X[:, None] != X)


def expected(pairwise: Array, p: Array) -> Array:
    """Over two independent draws: [THETA, ...] for p [..., 4]."""
    both = (p[..., :, None] * p[..., None, :]).reshape(-1, 16)
    return np.asarray(pairwise.reshape(-1, 16) @ both.T).reshape(len(pairwise), *p.shape[:-1])


def top1_error(theta0: float, p2: Array) -> Array:
    """P(the own prompt does not score highest) [THETA, ...]; it is the same for both images."""
    y, p = texts(theta0), probabilities(p2)
    wrong = np.cos(y[:3] + THETA[:, None]) <= np.cos(y[3] + THETA)[:, None]  # [THETA, 3]
    return np.asarray(wrong @ np.moveaxis(p[..., :3], -1, 0) / (1 - np.asarray(p2)))


def solve(settings: TrueNegativesSettings) -> TrueNegativesResult:
    """Landscapes at one (p2, theta0), and the errors of both minimisers over the map."""
    p = probabilities(np.array(settings.p2))
    landscapes = {}
    for tau in settings.taus:
        clip, negatives = pairwise_losses(settings.theta0, tau)
        landscapes[tau] = Landscape(expected(clip, p), expected(negatives, p))
    p2 = np.geomspace(2e-4, 0.249, settings.p2_grid)
    theta0 = np.linspace(0, np.pi / 10, settings.theta0_grid + 2)[1:-1]
    maps = {tau: _map(theta0, p2, tau) for tau in settings.taus}
    return TrueNegativesResult(
        settings=settings,
        landscapes=landscapes,
        error=top1_error(settings.theta0, np.array(settings.p2)),
        p2=p2,
        theta0=theta0,
        clip_error={tau: clip for tau, (clip, _) in maps.items()},
        true_negatives_error={tau: negatives for tau, (_, negatives) in maps.items()},
    )


def _map(theta0: Array, p2: Array, tau: float) -> tuple[Array, Array]:
    p, rows = probabilities(p2), []
    for angle in theta0:
        error = top1_error(float(angle), p2)
        best = [expected(pairwise, p).argmin(axis=0) for pairwise in pairwise_losses(float(angle), tau)]
        rows.append([error[at, np.arange(len(p2))] for at in best])
    clip, negatives = np.swapaxes(np.array(rows), 0, 1)
    return clip, negatives


def claims(result: TrueNegativesResult) -> list[CheckedClaim]:
    """2.5 of the project's list."""
    settings, checks = result.settings, []
    for tau, landscape in result.landscapes.items():
        at_clip, at_negatives = int(landscape.clip.argmin()), int(landscape.true_negatives.argmin())
        checks += [
            Check(f"error at CLIP's minimum, tau={tau:g}", float(result.error[at_clip]), low=settings.p2),
            Check(f"its theta from 0 or pi, tau={tau:g}", _from_axis(THETA[at_clip]), high=settings.theta0),
            Check(f"error at L_g's minimum, tau={tau:g}", float(result.error[at_negatives]), high=0.0),
        ]
    star = np.pi / 2 - 5 / 2 * settings.theta0
    checks.append(Check("error at theta* = pi/2 - 5 theta0/2", float(np.interp(star, THETA, result.error)), high=0.0))
    statement = (
        f"At p2 = {settings.p2:g}, theta0 = {settings.theta0:.4g} the CLIP loss is lowest where the top-1 error is at "
        "least p2, the loss on true negatives where it is 0 (Theorem 5.3)"
    )
    return [CheckedClaim("2.5", statement, checks)]


def _from_axis(theta: float) -> float:
    """The theorem's region is where this is below theta0."""
    return float(min(abs(theta), np.pi - abs(theta)))
