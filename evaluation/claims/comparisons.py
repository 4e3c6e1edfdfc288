"""Kinds of comparison that claims consist of. Each effect belongs to one seed; a larger one supports the claim."""

import math
from dataclasses import replace

from evaluation.claims.types import Comparison, Measure, Values
from evaluation.statistics import spearman


def more(
    better: str, worse: str, measure: Measure, least: float = 0.0, quantity: str = "", only_recipe: str = ""
) -> Comparison:
    """`better` minus `worse`."""
    label = f"{better} − {worse}" + (f", {quantity}" if quantity else "")
    return Comparison(label, (better, worse), (measure,), lambda v: v[0][0] - v[1][0], least, only_recipe=only_recipe)


def more_or_diverged(better: str, worse: str, measure: Measure, least: float, quantity: str, recipe: str) -> Comparison:
    """`better` minus `worse` in one recipe. It also holds if `worse`, and not `better`, diverges in every seed."""
    return replace(more(better, worse, measure, least, quantity, recipe), diverging_arm=worse)


def extra_gain(gain: tuple[str, str], other: tuple[str, str], measure: Measure, least: float = 0.0) -> Comparison:
    """The gain within the first pair of arms (first minus second arm) minus the gain within the other pair."""
    label = f"({gain[0]} − {gain[1]}) − ({other[0]} − {other[1]})"
    arms = (*gain, *other)
    return Comparison(label, arms, (measure,), lambda v: (v[0][0] - v[1][0]) - (v[2][0] - v[3][0]), least)


def keeps(arm: str, reference: str, measure: Measure, share: float, quantity: str) -> Comparison:
    """The ratio of `arm` to `reference`, which must exceed `share`."""
    label = f"{arm} / {reference}, {quantity}"
    return Comparison(label, (arm, reference), (measure,), lambda v: v[0][0] / v[1][0] if v[1][0] else math.nan, share)


def level(arm: str, measure: Measure, least: float, label: str) -> Comparison:
    """The number itself, which must exceed `least`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], least)


def below(arm: str, measure: Measure, most: float, label: str) -> Comparison:
    """`most` minus the number. The number must stay below `most`."""
    return Comparison(f"{most:g} minus {label}", (arm,), (measure,), lambda v: most - v[0][0], 0.0)


def near(arm: str, measure: Measure, centre: float, tolerance: float, label: str) -> Comparison:
    """`tolerance` minus the number's distance from `centre`. The distance must stay below `tolerance`."""
    label = f"{tolerance:g} minus the distance from {centre:g} of {label}"
    return Comparison(label, (arm,), (measure,), lambda v: tolerance - abs(v[0][0] - centre), 0.0)


def often(arm: str, measure: Measure, share: float, label: str) -> Comparison:
    """The share of seeds with a number above 0, which must exceed `share`."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], share, interval="share")


def no_slower(arm: str, reference: str, step_time: Measure, most: float) -> Comparison:
    """`most` minus the step time of `arm` over that of `reference`. The ratio must stay below `most`."""
    label = f"{most:g} minus the ratio of step times {arm} / {reference}"
    return Comparison(label, (arm, reference), (step_time,), lambda v: most - v[0][0] / v[1][0], 0.0)


def rises(
    arms: tuple[str, ...], x: Measure, y: Measure, least: float, label: str, sign: int = 1, only_recipe: str = ""
) -> Comparison:
    """Rank correlation of `sign` * x with y over arms, at least four of them."""
    label = f"rank correlation of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: sign * _rank_correlation(v), least, "rank", min_arms=4, only_recipe=only_recipe
    )


def unrelated(
    arms: tuple[str, ...], x: Measure, y: Measure, most: float, label: str, min_arms: int = 8, only_recipe: str = ""
) -> Comparison:
    """Minus the absolute rank correlation of x and y over arms, which must exceed -`most`."""
    label = f"−|rank correlation| of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: -abs(_rank_correlation(v)), -most, "rank", min_arms, only_recipe=only_recipe
    )


def _rank_correlation(values: Values) -> float:
    return spearman([x for x, _ in values], [y for _, y in values])
