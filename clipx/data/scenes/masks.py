"""Antialiased coverage of each shape, drawn once per (shape, orientation, diameter)."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

SUPERSAMPLE = 8  # sub-pixels per pixel and axis
OPAQUE = SUPERSAMPLE * SUPERSAMPLE  # coverage of a full pixel: 6 bits, so that blending fits into int16
QUARTER_TURNS = {"up": 0, "left": 1, "down": 2, "right": 3}  # anticlockwise, from pointing up

Grid = NDArray[np.float64]  # x and y of the sub-pixels, -1..1
Inside = NDArray[np.bool_]


@cache
def mask(shape: str, orientation: str | None, diameter: int) -> NDArray[np.int16]:
    """[diameter, diameter, 1] coverage in 0..OPAQUE."""
    steps = (np.arange(diameter * SUPERSAMPLE) + 0.5) / (diameter * SUPERSAMPLE) * 2 - 1
    x, y = np.meshgrid(steps, -steps)  # y points up, both in -1..1
    inside = INSIDE[shape](x, y)
    coverage = inside.reshape(diameter, SUPERSAMPLE, diameter, SUPERSAMPLE).sum((1, 3), dtype=np.int16)
    if orientation is not None:
        coverage = np.rot90(coverage, QUARTER_TURNS[orientation])
    return np.ascontiguousarray(coverage)[..., None]


def _circle(x: Grid, y: Grid) -> Inside:
    return x**2 + y**2 <= 1


def _ring(x: Grid, y: Grid) -> Inside:
    radius = np.hypot(x, y)
    return (radius <= 1) & (radius >= 0.58)


def _square(x: Grid, y: Grid) -> Inside:
    return np.maximum(abs(x), abs(y)) <= 0.94


def _diamond(x: Grid, y: Grid) -> Inside:
    return abs(x) / 0.8 + abs(y) <= 1


def _triangle(x: Grid, y: Grid) -> Inside:
    return (y >= -0.9) & (abs(x) <= (1 - y) / 1.9)


def _star(x: Grid, y: Grid) -> Inside:
    """Five points: the radius of the outline runs from 1 at a tip to 0.36 between two tips."""
    angle = np.mod(np.arctan2(x, y + 0.08), 2 * np.pi / 5)
    from_tip = np.minimum(angle, 2 * np.pi / 5 - angle)
    inner, half = 0.36, np.pi / 5
    # the straight edge between the tip (1, 0) and the notch (inner, half) in polar form
    edge = inner * np.sin(half) / (np.sin(half - from_tip) * inner + np.sin(from_tip))
    inside: Inside = np.hypot(x, y + 0.08) <= edge * 1.08
    return inside


def _cross(x: Grid, y: Grid) -> Inside:
    return (np.minimum(abs(x), abs(y)) <= 0.24) & (np.maximum(abs(x), abs(y)) <= 1)


def _heart(x: Grid, y: Grid) -> Inside:
    """Two discs side by side above a point; only the discs reach over the notch between them."""
    discs = (abs(x) - 0.5) ** 2 + (y - 0.45) ** 2 <= 0.5**2
    inside: Inside = discs | ((y <= 0.42) & (abs(x) <= 0.74 * (y + 0.96)) & (abs(x) <= 1))
    return inside


INSIDE = {
    "circle": _circle,
    "ring": _ring,
    "square": _square,
    "diamond": _diamond,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "heart": _heart,
}
