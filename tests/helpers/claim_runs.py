"""Runs with given results, and the outcome of a claim on them."""

import random
from typing import Any

from evaluation.claims.assess import assess
from evaluation.claims.types import Finding, Outcome
from evaluation.runs.reader import Run
from tests.helpers.synthetic import Values, claim, evidence, run

SETS = ("scenes_colour", "scenes_count", "scenes_shape")


def zeroshot(value: float, *datasets: str) -> Values:
    """Return the same zero-shot accuracy on each data set, by default on SETS."""
    return {("zeroshot", name, "top1"): value for name in datasets or SETS}


def geometry(**values: float) -> Values:
    """Return metrics of the geometry task, given by name."""
    return {("geometry", "scenes_captions", metric): value for metric, value in values.items()}


def recall(value: float) -> Values:
    """Return the same R@1 in both directions."""
    return {("retrieval", "s", f"{way}_recall@1"): value for way in ("image_to_text", "text_to_image")}


def seeds(recipe: str, arms: dict[str, Values], noise: float = 0.001, count: int = 3, **settings: Any) -> list[Run]:
    """Return runs of each arm with `count` seeds. `noise`: standard deviation of the noise on each value."""
    draw = random.Random(0)
    return [
        run(recipe, arm, seed, {key: value + draw.gauss(0, noise) for key, value in values.items()}, **settings)
        for arm, values in arms.items()
        for seed in range(count)
    ]


def outcome(number: str, recipe: str, runs: list[Run]) -> Outcome:
    """Return the outcome of the claim `number` on these runs of the recipe."""
    return assess(claim(number), recipe, evidence(runs))


def only(found: Outcome) -> Finding:
    """Return the finding of a claim that has a single one."""
    (finding,) = found.findings
    return finding
