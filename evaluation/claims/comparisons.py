"""Comparisons for claims: each function returns one, and its docstring says which effect is judged by which bound."""

import math
from dataclasses import replace

from evaluation.claims.types import Comparison, Measure, Values
from evaluation.statistics import spearman


def contrast(
    arms: tuple[str, ...], weights: tuple[float, ...], measure: Measure, least: float, label: str
) -> Comparison:
    """Effect: the weighted sum of the arms' values; must exceed `least`. The weights add up to 0."""

    def effect(values: Values) -> float:
        return math.fsum(weight * of_arm[0] for weight, of_arm in zip(weights, values, strict=True))

    return Comparison(label, arms, (measure,), effect, least, contrast=weights)


def more(
    better: str, worse: str, measure: Measure, least: float = 0.0, quantity: str = "", only_recipe: str = ""
) -> Comparison:
    """Effect: `better` minus `worse`; must exceed `least`."""
    label = f"{better} − {worse}" + (f", {quantity}" if quantity else "")
    return replace(contrast((better, worse), (1.0, -1.0), measure, least, label), only_recipe=only_recipe)


def more_or_diverged(better: str, worse: str, measure: Measure, least: float, quantity: str, recipe: str) -> Comparison:
    """Like `more`, in one recipe. Also holds if `worse` diverges in every seed and `better` in none."""
    return replace(more(better, worse, measure, least, quantity, recipe), diverging_arm=worse)


def extra_gain(gain: tuple[str, str], other: tuple[str, str], measure: Measure, least: float = 0.0) -> Comparison:
    """Effect: (gain[0] - gain[1]) - (other[0] - other[1]); must exceed `least`."""
    label = f"({gain[0]} − {gain[1]}) − ({other[0]} − {other[1]})"
    return contrast((*gain, *other), (1.0, -1.0, -1.0, 1.0), measure, least, label)


def trend(positions: dict[str, float], measure: Measure, label: str, sign: int = 1) -> Comparison:
    """Effect: slope of `sign` * measure over the positions of the arms (least squares); must exceed 0."""
    x = list(positions.values())
    mean = math.fsum(x) / len(x)
    squares = math.fsum((value - mean) ** 2 for value in x)
    weights = tuple(sign * (value - mean) / squares for value in x)
    return contrast(tuple(positions), weights, measure, 0.0, f"slope of {label}")


def keeps(arm: str, reference: str, measure: Measure, share: float, quantity: str) -> Comparison:
    """Effect: ratio of `arm` to `reference`; must exceed `share`."""
    label = f"{arm} / {reference}, {quantity}"
    return Comparison(label, (arm, reference), (measure,), lambda v: v[0][0] / v[1][0] if v[1][0] else math.nan, share)


def level(arm: str, measure: Measure, least: float, label: str) -> Comparison:
    """Effect: the value itself; must exceed `least`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], least)


def below(arm: str, measure: Measure, most: float, quantity: str) -> Comparison:
    """Effect: `most` minus the value; must exceed 0, so the value must stay below `most`."""
    return Comparison(f"{most:g} − {quantity}, {arm}", (arm,), (measure,), lambda v: most - v[0][0], 0.0)


def near(arm: str, measure: Measure, centre: float, tolerance: float, quantity: str) -> Comparison:
    """Effect: `tolerance` minus the distance between the value and `centre`; must exceed 0."""
    label = f"{tolerance:g} − |{quantity} − {centre:g}|, {arm}"
    return Comparison(label, (arm,), (measure,), lambda v: tolerance - abs(v[0][0] - centre), 0.0)


def often(arm: str, measure: Measure, share: float, label: str) -> Comparison:
    """Share of seeds with a value above 0; must exceed `share`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], share, kind="share")


def rises_over_arms(arms: tuple[str, ...], x: Measure, y: Measure, label: str, sign: int = 1) -> Comparison:
    """Effect: rank correlation of `sign` * x with y over the means of the arms; must exceed 0."""
    label = f"rank correlation of {label}"
    return Comparison(label, arms, (x, y), lambda v: sign * _rank_correlation(v), 0.0, "rank")


def unrelated_over_arms(arms: tuple[str, ...], x: Measure, y: Measure, most: float, label: str) -> Comparison:
    """Effect: minus the absolute rank correlation of x and y over the means of the arms; must exceed -`most`."""
    label = f"−|rank correlation| of {label}"
    return Comparison(label, arms, (x, y), _rank_correlation, -most, "weak_rank")


def less_variable(stable: str, other: str, measure: Measure, label: str) -> Comparison:
    """Effect: log(variance of `other` / variance of `stable`), both over the seeds; must exceed 0."""
    label = f"log variance ratio {other} / {stable}, {label}"
    return Comparison(label, (stable, other), (measure,), lambda v: v[0][0], 0.0, "variance")


def _rank_correlation(values: Values) -> float:
    return spearman([x for x, _ in values], [y for _, y in values])
