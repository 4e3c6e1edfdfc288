"""Contents to pixels: a muted background with a gradient and light noise, objects blended in."""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clipx.data.scenes.content import CELL_NAMES, Content
from clipx.data.scenes.masks import OPAQUE, mask

RGB = {
    "red": (222, 32, 38),
    "green": (30, 160, 48),
    "blue": (36, 70, 228),
    "yellow": (246, 220, 30),
    "purple": (152, 40, 190),
    "cyan": (30, 214, 226),
    "white": (247, 247, 247),
    "black": (14, 14, 14),
}
COLOUR_JITTER = 8  # an object's colour differs from RGB by at most this, each channel
SCALES = {"small": (0.61, 0.68), "large": (0.88, 0.95)}  # diameter as a share of the grid's cell
GREYS = (92, 160)  # brightness of the background's two ends
TINT = 16  # and how far each channel may be from grey
NOISE = 4  # standard deviation of the background's noise, grey levels
NOISE_LIMIT = 16  # and its bound
DIRECTIONS = 32  # of the gradient
NOISE_SHIFTS = 64  # places along each axis where the noise may be cut from its tile


@dataclass
class Object:
    """One object with everything that is true about it; x, y: upper left corner of its box, pixels."""

    shape: str
    colour: str
    size: str
    position: str
    orientation: str | None
    x: int
    y: int
    diameter: int
    rgb: tuple[int, int, int]


@dataclass
class Background:
    """A gradient from `start` to `end` in one of DIRECTIONS, and the place in the noise tile."""

    start: tuple[int, int, int]
    end: tuple[int, int, int]
    direction: int
    noise: tuple[int, int]


@dataclass
class Scene:
    """A content with its chance details: what the pixels are a function of."""

    content: Content
    objects: list[Object]  # group by group
    background: Background
    image_size: int


def stage(content: Content, image_size: int, rng: random.Random) -> Scene:
    """Draws background, colour shades, diameters and places within the cells."""
    objects = []
    cell = image_size // 3
    for group, cells in zip(content.groups, content.cells, strict=True):
        low, high = SCALES[group.size]
        diameter = min(round(cell * rng.uniform(low, high)), cell - 1)
        rgb = _near(RGB[group.colour], COLOUR_JITTER, rng)
        free = cell - diameter  # one pixel of it stays free, so that neighbours never touch
        for place in cells:
            x = place % 3 * image_size // 3 + int(rng.random() * free)
            y = place // 3 * image_size // 3 + int(rng.random() * free)
            name = CELL_NAMES[place]
            objects.append(Object(group.shape, group.colour, group.size, name, group.orientation, x, y, diameter, rgb))
    return Scene(content, objects, _background(rng), image_size)


def render(scene: Scene) -> NDArray[np.uint8]:
    """[H, W, 3] RGB."""
    ramps, tile = _bank(scene.image_size)
    background = scene.background
    start, end = np.array(background.start, np.int16), np.array(background.end, np.int16)
    canvas: NDArray[np.int16] = ramps[background.direction] * (end - start)
    canvas >>= 6
    canvas += start
    dy, dx = background.noise
    canvas += tile[dy : dy + scene.image_size, dx : dx + scene.image_size]
    for o in scene.objects:
        box = canvas[o.y : o.y + o.diameter, o.x : o.x + o.diameter]
        change = np.array(o.rgb, np.int16) - box
        change *= mask(o.shape, o.orientation, o.diameter)
        change //= OPAQUE
        box += change
    return canvas.astype(
        np.uint8
    )  # in range by construction: GREYS, TINT, NOISE_LIMIT and RGB with its jitter leave room


def _near(rgb: tuple[int, int, int], most: int, rng: random.Random) -> tuple[int, int, int]:
    r, g, b = (c + int(rng.random() * (2 * most + 1)) - most for c in rgb)
    return r, g, b


def _background(rng: random.Random) -> Background:
    first, second = rng.randint(*GREYS), rng.randint(*GREYS)
    start = _near((first, first, first), TINT, rng)
    end = _near((second, second, second), TINT, rng)
    shift = (int(rng.random() * NOISE_SHIFTS), int(rng.random() * NOISE_SHIFTS))
    return Background(start, end, int(rng.random() * DIRECTIONS), shift)


@lru_cache(maxsize=4)
def _bank(size: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Ramps [DIRECTIONS, size, size, 1] in 0..64, and a noise tile [size + NOISE_SHIFTS, same, 1]."""
    steps = np.linspace(-1, 1, size)
    angles = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
    x, y = np.meshgrid(steps, steps)
    along = np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y
    ramps = np.rint((along / np.abs(along).max((1, 2), keepdims=True) + 1) * 32).astype(np.int16)
    rng = random.Random("noise")  # not numpy's: its sequences may change with the version
    side = size + NOISE_SHIFTS
    noise = [max(-NOISE_LIMIT, min(NOISE_LIMIT, round(rng.gauss(0, NOISE)))) for _ in range(side * side)]
    return ramps[..., None], np.array(noise, np.int16).reshape(side, side, 1)
