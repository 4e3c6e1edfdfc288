"""Check rendered scenes without their renderer: count objects in the pixels, parse attributes from captions."""

import numpy as np
from numpy.typing import NDArray

SHAPES = ("circle", "ring", "square", "diamond", "triangle", "star", "cross", "heart")
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan", "white", "black")
NUMBERS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
    "eighteen": 18, "nineteen": 19, "twenty": 20,
}  # fmt: skip
SHAPE_OF = {s: s for s in SHAPES} | {f"{s}s": s for s in SHAPES} | {"crosses": "cross"}


def words(caption: str) -> list[str]:
    """Return the words of a caption without punctuation."""
    return [word.strip(",:") for word in caption.split()]


def named(caption: str) -> tuple[list[int], list[str], list[str]]:
    """Return the numbers above one, the colours and the shapes in a caption, each sorted."""
    found = words(caption)
    return (
        sorted(NUMBERS[w] for w in found if w in NUMBERS),
        sorted(w for w in found if w in COLOURS),
        sorted(SHAPE_OF[w] for w in found if w in SHAPE_OF),
    )


def components(pixels: NDArray[np.uint8], rgb: tuple[int, int, int], tolerance: int = 48) -> int:
    """Return the number of connected patches (8 neighbours per pixel) with at least 6 pixels of about this colour."""
    far = np.abs(pixels.astype(int) - np.array(rgb)).max(-1)
    todo = {(int(y), int(x)) for y, x in zip(*np.nonzero(far <= tolerance), strict=True)}
    patches = 0
    while todo:
        stack, size = [todo.pop()], 0
        while stack:
            y, x = stack.pop()
            size += 1
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & todo
            todo -= near
            stack += near
        patches += size >= 6
    return patches


def within_binomial(hits: int, n: int, share: float, sigmas: float = 4.0) -> bool:
    """Return True if `hits` is at most `sigmas` binomial standard deviations, plus 0.5, from the mean n * share."""
    return bool(abs(hits - n * share) <= sigmas * np.sqrt(n * share * (1 - share)) + 0.5)
