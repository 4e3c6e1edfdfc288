"""Kinds of comparison in claims. Each comparison has one effect per seed; a larger effect supports the claim."""

import math
from dataclasses import replace

from evaluation.claims.types import Comparison, Measure, Values
from evaluation.statistics import spearman


def more(
    better: str, worse: str, measure: Measure, least: float = 0.0, quantity: str = "", only_recipe: str = ""
) -> Comparison:
    """Effect: `better` minus `worse`; must exceed `least`."""
    label = f"{better} − {worse}" + (f", {quantity}" if quantity else "")
    return Comparison(label, (better, worse), (measure,), lambda v: v[0][0] - v[1][0], least, only_recipe=only_recipe)


def more_or_diverged(better: str, worse: str, measure: Measure, least: float, quantity: str, recipe: str) -> Comparison:
    """Like `more`, in one recipe. Also holds if `worse` diverges in every seed and `better` in none."""
    return replace(more(better, worse, measure, least, quantity, recipe), diverging_arm=worse)


def extra_gain(gain: tuple[str, str], other: tuple[str, str], measure: Measure, least: float = 0.0) -> Comparison:
    """Effect: gain within the first pair of arms (first minus second arm) minus the gain within the other pair."""
    label = f"({gain[0]} − {gain[1]}) − ({other[0]} − {other[1]})"
    arms = (*gain, *other)
    return Comparison(label, arms, (measure,), lambda v: (v[0][0] - v[1][0]) - (v[2][0] - v[3][0]), least)


def keeps(arm: str, reference: str, measure: Measure, share: float, quantity: str) -> Comparison:
    """Effect: ratio of `arm` to `reference`; must exceed `share`."""
    label = f"{arm} / {reference}, {quantity}"
    return Comparison(label, (arm, reference), (measure,), lambda v: v[0][0] / v[1][0] if v[1][0] else math.nan, share)


def level(arm: str, measure: Measure, least: float, label: str) -> Comparison:
    """Effect: the value itself; must exceed `least`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], least)


def below(arm: str, measure: Measure, most: float, label: str) -> Comparison:
    """Effect: `most` minus the value, so that the value must stay below `most`."""
    return Comparison(f"{most:g} minus {label}", (arm,), (measure,), lambda v: most - v[0][0], 0.0)


def near(arm: str, measure: Measure, centre: float, tolerance: float, label: str) -> Comparison:
    """Effect: `tolerance` minus the value's distance from `centre`, which must stay below `tolerance`."""
    label = f"{tolerance:g} minus the distance from {centre:g} of {label}"
    return Comparison(label, (arm,), (measure,), lambda v: tolerance - abs(v[0][0] - centre), 0.0)


def often(arm: str, measure: Measure, share: float, label: str) -> Comparison:
    """Effect: share of seeds with a value above 0; must exceed `share`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], share, interval="share")


def no_slower(arm: str, reference: str, step_time: Measure, most: float) -> Comparison:
    """Effect: `most` minus the ratio of step times `arm` / `reference`, which must stay below `most`."""
    label = f"{most:g} minus the ratio of step times {arm} / {reference}"
    return Comparison(label, (arm, reference), (step_time,), lambda v: most - v[0][0] / v[1][0], 0.0)


def rises(
    arms: tuple[str, ...], x: Measure, y: Measure, least: float, label: str, sign: int = 1, only_recipe: str = ""
) -> Comparison:
    """Effect: rank correlation of `sign` * x with y over at least four arms; must exceed `least`."""
    label = f"rank correlation of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: sign * _rank_correlation(v), least, "rank", min_arms=4, only_recipe=only_recipe
    )


def unrelated(
    arms: tuple[str, ...], x: Measure, y: Measure, most: float, label: str, min_arms: int = 8, only_recipe: str = ""
) -> Comparison:
    """Effect: minus the absolute rank correlation of x and y over arms; must exceed -`most`."""
    label = f"−|rank correlation| of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: -abs(_rank_correlation(v)), -most, "rank", min_arms, only_recipe=only_recipe
    )


def rises_over_arms(
    arms: tuple[str, ...], x: Measure, y: Measure, label: str, sign: int = 1, only_recipe: str = ""
) -> Comparison:
    """Effect: rank correlation of `sign` * x with y over the arms' means; must exceed 0."""
    return rises(arms, x, y, 0.0, label, sign, only_recipe)


def unrelated_over_arms(
    arms: tuple[str, ...], x: Measure, y: Measure, most: float, label: str, only_recipe: str = ""
) -> Comparison:
    """Effect: minus the absolute rank correlation of x and y over the arms' means; must exceed -`most`."""
    return unrelated(arms, x, y, most, label, only_recipe=only_recipe)


def less_variable(stable: str, other: str, measure: Measure, label: str) -> Comparison:
    """Effect: logarithm of `other`'s variance over seeds, divided by the variance of `stable`; must exceed 0.

    One seed has no variance, so `effect` is NaN: the rule computes it from all seeds.
    """
    label = f"log variance ratio {other} / {stable}, {label}"
    return Comparison(label, (stable, other), (measure,), lambda _: math.nan, 0.0)


def _rank_correlation(values: Values) -> float:
    return spearman([x for x, _ in values], [y for _, y in values])
