"""Sample the random details of a scene and render it: objects on a muted background with a gradient and light noise."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from clipx.data.scenes.content import CELL_NAMES, Content

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


PALETTE = {
    "red": (222, 32, 38),
    "green": (30, 160, 48),
    "blue": (36, 70, 228),
    "yellow": (246, 220, 30),
    "purple": (152, 40, 190),
    "cyan": (30, 214, 226),
    "white": (247, 247, 247),
    "black": (14, 14, 14),
}
COLOUR_JITTER = 8  # each channel of an object's colour differs from PALETTE by at most this
SCALES = {"small": (0.61, 0.68), "large": (0.88, 0.95)}  # diameter as a share of the side of a grid cell
GREYS = (92, 160)  # range from which the brightness of each end of the gradient is sampled
TINT = 16  # each channel of the background's colour differs from grey by at most this
NOISE = 4  # standard deviation of the background's noise, grey levels
NOISE_LIMIT = 16  # largest absolute noise, grey levels
DIRECTIONS = 32  # number of directions of the gradient
NOISE_OFFSETS = 64  # number of offsets per axis at which the noise can be cropped from its tile
SWEEPS = 10  # number of new places to try for each object in a free layout


@dataclass
class Object:
    """An object with its ground truth."""

    shape: str
    colour: str
    size: str
    position: str  # name of its cell
    orientation: str | None
    x: int  # left edge of its box, pixels
    y: int  # upper edge of its box, pixels
    diameter: int  # side of its box, pixels
    rgb: tuple[int, int, int]


@dataclass
class Background:
    """A gradient from colour `start` to `end`, with noise cropped from the noise tile."""

    start: tuple[int, int, int]
    end: tuple[int, int, int]
    direction: int  # 0..DIRECTIONS-1
    noise_offset: tuple[int, int]  # (y, x) of the crop's upper left corner in the tile


@dataclass
class Scene:
    """Everything that determines the pixels: the content, and the random details of objects and background."""

    content: Content
    objects: list[Object]  # group by group
    background: Background
    image_size: int


def sample_scene(content: Content, image_size: int, layout: str, rng: random.Random) -> Scene:
    """Sample the background, and the objects' colour shades, diameters and places.

    With layout "grid", an object is completely within its cell; with "free", only its centre is.
    """
    objects = []
    side = image_size // 3  # of a cell
    for group, cells in zip(content.groups, content.cells, strict=True):
        low, high = SCALES[group.size]
        diameter = min(round(side * rng.uniform(low, high)), side - 1)
        rgb = _near(PALETTE[group.colour], COLOUR_JITTER, rng)
        free = side - diameter  # at least one pixel, so that neighbours never touch
        for cell in cells:
            x = cell % 3 * image_size // 3 + int(rng.random() * free)
            y = cell // 3 * image_size // 3 + int(rng.random() * free)
            name = CELL_NAMES[cell]
            objects.append(Object(group.shape, group.colour, group.size, name, group.orientation, x, y, diameter, rgb))
    if layout == "free":
        _spread(objects, image_size, rng)
    return Scene(content, objects, _background(rng), image_size)


def render(scene: Scene) -> NDArray[np.uint8]:
    """Return the image, RGB [H, W, 3]."""
    gradients, tile = _gradients_and_noise(scene.image_size)
    background = scene.background
    start, end = np.array(background.start, np.int16), np.array(background.end, np.int16)
    canvas: NDArray[np.int16] = gradients[background.direction] * (end - start)
    canvas >>= 6  # the gradient is in 0..64
    canvas += start
    y, x = background.noise_offset
    canvas += tile[y : y + scene.image_size, x : x + scene.image_size]
    for o in scene.objects:
        box = canvas[o.y : o.y + o.diameter, o.x : o.x + o.diameter]
        change = np.array(o.rgb, np.int16) - box
        change *= mask(o.shape, o.orientation, o.diameter)
        change //= OPAQUE
        box += change
    # GREYS, TINT, NOISE_LIMIT and PALETTE with COLOUR_JITTER keep all values in 0..255
    return canvas.astype(np.uint8)


def _spread(objects: list[Object], image_size: int, rng: random.Random) -> None:
    """Move the objects, in place, to random positions at least one pixel apart, each centre in its cell.

    Each object in turn moves to a random place unless another object is there. With nine large objects, random places
    for all of them at once would almost always overlap.
    """
    for o in objects * SWEEPS:
        row, column = divmod(CELL_NAMES.index(o.position), 3)
        x, y = (_coordinate(index, o.diameter, image_size, rng) for index in (column, row))
        if all(_apart(x, y, o.diameter, other) for other in objects if other is not o):
            o.x, o.y = x, y


def _coordinate(index: int, diameter: int, image_size: int, rng: random.Random) -> int:
    """Return a random x (or y) with which an object is inside the image and has its centre in column (row) `index`."""
    start, stop = (k * image_size // 3 - diameter // 2 for k in (index, index + 1))
    return rng.randint(max(0, start), min(image_size - diameter, stop - 1))


def _apart(x: int, y: int, diameter: int, other: Object) -> bool:
    """Return True if at least one pixel is free between a box at (x, y) and the box of `other`."""
    horizontally = x + diameter < other.x or other.x + other.diameter < x
    return horizontally or y + diameter < other.y or other.y + other.diameter < y


def _near(rgb: tuple[int, int, int], limit: int, rng: random.Random) -> tuple[int, int, int]:
    r, g, b = (c + int(rng.random() * (2 * limit + 1)) - limit for c in rgb)
    return r, g, b


def _background(rng: random.Random) -> Background:
    first, second = rng.randint(*GREYS), rng.randint(*GREYS)
    start = _near((first, first, first), TINT, rng)
    end = _near((second, second, second), TINT, rng)
    noise_offset = (int(rng.random() * NOISE_OFFSETS), int(rng.random() * NOISE_OFFSETS))
    return Background(start, end, int(rng.random() * DIRECTIONS), noise_offset)


@lru_cache(maxsize=4)
def _gradients_and_noise(size: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return gradients [DIRECTIONS, size, size, 1] in 0..64 and a noise tile [s, s, 1], s = size + NOISE_OFFSETS."""
    steps = np.linspace(-1, 1, size)
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    x, y = np.meshgrid(steps, steps)
    along = np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y
    gradients = np.rint((along / np.abs(along).max((1, 2), keepdims=True) + 1) * 32).astype(np.int16)
    rng = random.Random("noise")  # not numpy, whose sequences may change between versions
    side = size + NOISE_OFFSETS
    noise = [max(-NOISE_LIMIT, min(NOISE_LIMIT, round(rng.gauss(0, NOISE)))) for _ in range(side * side)]
    return gradients[..., None], np.array(noise, np.int16).reshape(side, side, 1)
