"""Antialiased masks of the shapes, computed once per (shape, orientation, diameter)."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

SUPERSAMPLE = 8  # sub-pixels per pixel and axis
OPAQUE = SUPERSAMPLE * SUPERSAMPLE  # coverage of a full pixel; 255 * OPAQUE must fit into int16, see render
QUARTER_TURNS = {"up": 0, "left": 1, "down": 2, "right": 3}  # anticlockwise, from pointing up

Grid = NDArray[np.float64]  # x or y of the sub-pixels, in -1..1
Inside = NDArray[np.bool_]


@cache
def mask(shape: str, orientation: str | None, diameter: int) -> NDArray[np.int16]:
    """Return the coverage of each pixel, [diameter, diameter, 1] in 0..OPAQUE."""
    steps = (np.arange(diameter * SUPERSAMPLE) + 0.5) / (diameter * SUPERSAMPLE) * 2 - 1
    x, y = np.meshgrid(steps, -steps)  # y points up
    inside = INSIDE[shape](x, y)
    coverage = inside.reshape(diameter, SUPERSAMPLE, diameter, SUPERSAMPLE).sum((1, 3), dtype=np.int16)
    if orientation is not None:
        coverage = np.rot90(coverage, QUARTER_TURNS[orientation])
    return np.ascontiguousarray(coverage)[..., None]


def _star(x: Grid, y: Grid) -> Inside:
    """A star with five tips. The radius of its outline, before scaling by 1.08, is 1 at a tip and 0.36 at a notch."""
    angle = np.mod(np.arctan2(x, y + 0.08), 2 * np.pi / 5)
    from_tip = np.minimum(angle, 2 * np.pi / 5 - angle)
    inner, half = 0.36, np.pi / 5
    # the straight edge between the tip (1, 0) and the notch (inner, half) in polar form
    edge = inner * np.sin(half) / (np.sin(half - from_tip) * inner + np.sin(from_tip))
    return np.asarray(np.hypot(x, y + 0.08) <= edge * 1.08)


def _heart(x: Grid, y: Grid) -> Inside:
    """Two discs side by side, above a triangle that points down. The triangle's upper edge is just below the notch."""
    discs = (abs(x) - 0.5) ** 2 + (y - 0.45) ** 2 <= 0.5**2
    return np.asarray(discs | ((y <= 0.42) & (abs(x) <= 0.74 * (y + 0.96)) & (abs(x) <= 1)))


INSIDE: dict[str, Callable[[Grid, Grid], Inside]] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "ring": lambda x, y: (np.hypot(x, y) <= 1) & (np.hypot(x, y) >= 0.58),
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.94,
    "diamond": lambda x, y: abs(x) / 0.8 + abs(y) <= 1,
    "triangle": lambda x, y: (y >= -0.9) & (abs(x) <= (1 - y) / 1.9),
    "star": _star,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) <= 0.24) & (np.maximum(abs(x), abs(y)) <= 1),
    "heart": _heart,
}
