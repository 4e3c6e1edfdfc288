"""The kinds of comparison that claims are made of. Every effect is of one seed and speaks for the claim."""

import math

from evaluation.claims.types import Comparison, Measure, Values
from evaluation.statistics import spearman


def more(
    better: str, worse: str, measure: Measure, least: float = 0.0, what: str = "", only: str = "", fatal: bool = False
) -> Comparison:
    """`better` minus `worse`; `only` in one recipe, or in all; `fatal`: `worse` may also diverge in every seed."""
    label = f"{better} − {worse}" + (f", {what}" if what else "")
    lost = worse if fatal else ""
    return Comparison(label, (better, worse), (measure,), lambda v: v[0][0] - v[1][0], least, only=only, fatal=lost)


def extra_gain(gains: tuple[str, str], than: tuple[str, str], measure: Measure, least: float = 0.0) -> Comparison:
    """What the first pair gains (first minus second arm) beyond what the second pair gains."""
    label = f"({gains[0]} − {gains[1]}) − ({than[0]} − {than[1]})"

    def effect(v: Values) -> float:
        return (v[0][0] - v[1][0]) - (v[2][0] - v[3][0])

    return Comparison(label, (*gains, *than), (measure,), effect, least)


def keeps(arm: str, than: str, measure: Measure, share: float, what: str) -> Comparison:
    """`arm` over `than`, which it keeps if it has more than this share of it."""
    label = f"{arm} / {than}, {what}"
    return Comparison(label, (arm, than), (measure,), lambda v: v[0][0] / v[1][0] if v[1][0] else math.nan, share)


def level(arm: str, measure: Measure, least: float, label: str) -> Comparison:
    """The number itself."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], least)


def below(arm: str, measure: Measure, most: float, label: str) -> Comparison:
    """At most `most`: that minus the number."""
    return Comparison(f"{most:g} minus {label}", (arm,), (measure,), lambda v: most - v[0][0], 0.0)


def near(arm: str, measure: Measure, centre: float, tolerance: float, label: str) -> Comparison:
    """Within `tolerance` of `centre` on both sides: that minus the distance."""
    label = f"{tolerance:g} minus the distance from {centre:g} of {label}"
    return Comparison(label, (arm,), (measure,), lambda v: tolerance - abs(v[0][0] - centre), 0.0)


def often(arm: str, measure: Measure, share: float, label: str) -> Comparison:
    """The share of seeds where the number is above 0."""
    return Comparison(label, (arm,), (measure,), lambda v: v[0][0], share, interval="share")


def no_slower(arm: str, than: str, step_time: Measure, most: float) -> Comparison:
    """Time of a step over that of `than` is at most `most`: that minus the ratio."""
    label = f"{most:g} minus the ratio of step times {arm} / {than}"
    return Comparison(label, (arm, than), (step_time,), lambda v: most - v[0][0] / v[1][0], 0.0)


def rises(
    arms: tuple[str, ...], x: Measure, y: Measure, least: float, label: str, sign: int = 1, only: str = ""
) -> Comparison:
    """Rank correlation of y with x over arms (at least four of them), or of y with -x."""
    label = f"rank correlation of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: sign * _correlation(v), least, interval="rank", fewest=4, only=only
    )


def unrelated(
    arms: tuple[str, ...], x: Measure, y: Measure, most: float, label: str, fewest: int = 8, only: str = ""
) -> Comparison:
    """A rank correlation over arms that is below `most` in size: minus that size, above -`most`."""
    label = f"−|rank correlation| of {label}"
    return Comparison(
        label, arms, (x, y), lambda v: -abs(_correlation(v)), -most, interval="rank", fewest=fewest, only=only
    )


def _correlation(values: Values) -> float:
    """Of two measures over the arms."""
    return spearman([x for x, _ in values], [y for _, y in values])
