"""Claims, the comparisons that test them, and the results of testing.

The functions at the end make comparisons; the docstring of each says which effect is judged by which bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import Literal, Protocol

from clipx.run.folder import identity_keys
from clipx.verdict import Verdict
from evaluation.runs.reader import Run
from evaluation.statistics import spearman

Values = list[tuple[float, ...]]  # [arm][measure]: values of one seed, or means over seeds
MOST_SEEDS = 1_000  # larger numbers are shown as `more than 1,000`
ANY = "*"  # as a comparison's only arm: every run of the recipe


class Measure(Protocol):
    """A quantity of a run."""

    def read(self, run: Run) -> dict[str, float]:
        """Return the values by name, usually one per data set; {} if the run lacks them.

        The quantity is the `mean` of the values. A comparison is undecided if the names differ between its runs.
        """

    def mean(self, values: dict[str, float]) -> float:
        """Return the quantity from the values of `read`."""
        return fmean(values.values())


@dataclass(frozen=True)
class Comparison:
    """A test of a claim. A larger effect supports the claim.

    Kinds:
        mean: the effect is computed per seed; its mean over the seeds is judged.
        share: the share of seeds with an effect above 0 is judged.
        rank: the effect is a rank correlation over arms, computed from the arms' means. It is shown, but not judged:
            the arms come in a few families with one knob each, whose trends are not independent (`families`).
        spread: the effect is 2 log(spread of the second arm / spread of the first arm), spreads over seeds.
    """

    label: str
    arms: tuple[str, ...]  # arms of the recipe, or `ANY`
    measures: tuple[Measure, ...]
    effect: Callable[[Values], float]  # not used for the kind `spread`
    least: float  # smallest effect of interest, see evaluation.claims.verdict
    kind: Literal["mean", "share", "rank", "spread"] = "mean"
    families: tuple[tuple[str, ...], ...] = ()  # for the kind `rank`: the arms that differ in one knob
    contrast: tuple[float, ...] = ()  # if the effect is a weighted sum of the arms' values: the weights; their sum is 0
    only_recipe: str = ""  # the only recipe that the comparison applies to; "" for all recipes of the claim
    diverging_arm: str = ""  # the comparison also holds if this arm diverges in every seed and no other arm diverges
    at_bound: str = ""  # a recipe whose effect is close to `least`: more seeds are not asked for while it is undecided


@dataclass(frozen=True)
class Control:
    """A condition that a verdict may depend on, and the settings of runs under another one.

    The runs are those of `clipx reproduce recipe=R arms=[...] KEY=VALUE ...`. They take the place of the same arms; the
    other arms stay as they are.
    """

    condition: str  # "the learning rate"; a recipe has one control of a claim for each condition
    settings: tuple[tuple[str, float | str], ...]  # key, value
    only_recipe: str = ""  # the only recipe whose runs it checks; "" for all recipes of the claim

    @property
    def text(self) -> str:
        """The settings as one types them."""
        return " ".join(f"{key}={value}" for key, value in self.settings)

    def fits(self, run: Run, usual: Run | None) -> bool:
        """Return True if a run differs from the `usual` run of its arm in this control's settings only."""
        given = dict(self.settings)
        return usual is not None and all(
            attrgetter(key)(run.config) == given.get(key, attrgetter(key)(usual.config))
            for key in identity_keys()
            if key not in ("name", "seed")
        )


def last_blocks(recipe: str) -> Control:
    """Return the control of a recipe with frozen towers that trains the last block of both."""
    settings = (("model.image.trainable_blocks", 1), ("model.text.trainable_blocks", 1))
    return Control("the trained part of the towers", settings, recipe)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper. It holds if all of its comparisons hold."""

    id: str  # "PAPER.NUMBER"
    statement: str
    published: str  # the paper's numbers and their place in the paper
    recipes: tuple[str, ...] = ()  # each recipe has its own verdict: scales are never mixed
    comparisons: tuple[Comparison, ...] = ()  # empty if a program checks the claim
    program: str = ""  # command that writes a claims.json with the findings
    looks: tuple[int, ...] = ()  # numbers of seeds at which the claim is judged; () for those of the stored design
    controls: tuple[Control, ...] = ()  # a control that reverses the verdict makes it `depends`

    @property
    def paper(self) -> int:
        """1..5."""
        return int(self.id.partition(".")[0])

    def parts(self, recipe: str) -> list[Comparison]:
        """Return the comparisons that apply to a recipe."""
        return [comparison for comparison in self.comparisons if comparison.only_recipe in ("", recipe)]

    def controls_of(self, recipe: str) -> list[Control]:
        """Return the controls that apply to a recipe."""
        return [control for control in self.controls if control.only_recipe in ("", recipe)]


@dataclass(frozen=True)
class Estimate:
    """An effect with its uncertainty; s is the smallest effect of interest."""

    effect: float
    low: float  # interval with the coverage 1 - 2 * error; NaN for too few seeds, or equal effects in all of them
    high: float
    p_above: float  # p-value of "the true effect is at most s"; small if the effect is larger than s
    p_below: float  # p-value of "the true effect is at least s"
    p_inside: float = 1.0  # p-value of "the true effect is at most -s or at least s"; 1 where -s has no meaning
    spread: float | None = None  # standard deviation of the effect over seeds


@dataclass(frozen=True)
class Finding:
    """Result of one comparison."""

    label: str
    verdict: Verdict
    seeds: int = 0  # number of seeds behind the effect
    estimate: Estimate | None = None
    least: float | None = None
    note: str = ""  # reason for a missing verdict, or a remark for the reader
    error: float = 0.025  # one-sided error rate of its look
    last_error: float = 0.025  # of the last look
    blocked: str = ""  # reason why more seeds cannot decide it, if it is undecided
    # if undecided: seeds for 80% power at the observed effect and spread; inf: more than MOST_SEEDS
    seeds_needed: float | None = None
    each: tuple[float, ...] = ()  # effect of each seed behind a mean
    look: int = 0  # number of seeds at its look; more than `seeds` if some of them failed
    replication: str = ""  # the effect on the seeds of a replication, and whether it agrees; "" without them

    @property
    def effect(self) -> float | None:
        """The estimated effect; None if it was not measured."""
        return None if self.estimate is None else self.estimate.effect

    @property
    def needed(self) -> str:
        """The seeds needed, as text; "" if they are unknown, or if the comparison is decided."""
        if self.seeds_needed is None:
            return ""
        return str(self.seeds_needed) if math.isfinite(self.seeds_needed) else f"more than {MOST_SEEDS:,}"


@dataclass(frozen=True)
class ControlCheck:
    """Verdict on a claim under the condition of a control."""

    control: Control
    arms: tuple[str, ...]  # with runs of the control; () if the recipe has no arms
    verdict: Verdict
    reverses: bool  # the claim's verdict

    @property
    def text(self) -> str:
        """`the learning rate: holds with optimizer.lr=0.016 for base; this reverses it`."""
        arms = f" for {', '.join(self.arms)}" if self.arms else ""
        reverses = "; this reverses it" if self.reverses else ""
        return f"{self.control.condition}: {self.verdict} with {self.control.text}{arms}{reverses}"


@dataclass(frozen=True)
class Outcome:
    """Verdict on a claim at one scale."""

    claim: Claim
    recipe: str  # name of the recipe, or the program that checked the claim
    verdict: Verdict
    findings: list[Finding]
    p: float | None = None  # p-value of the verdict over all looks; None if a program checked the claim
    note: str = ""  # how the claim differs from the stored design
    checked_by: tuple[ControlCheck, ...] = ()  # one for each control with runs

    @property
    def words(self) -> str:
        """The verdict, with its condition: `depends on the learning rate`."""
        if self.verdict != "depends":
            return self.verdict
        return "depends on " + " and ".join(check.control.condition for check in self.checked_by if check.reverses)


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


def rises_over_arms(
    families: tuple[tuple[str, ...], ...], x: Measure, y: Measure, label: str, sign: int = 1
) -> Comparison:
    """Effect: rank correlation of `sign` * x with y over the means of the arms, shown beside 0 and not judged."""
    label, arms = f"rank correlation of {label}", tuple(arm for family in families for arm in family)
    return Comparison(label, arms, (x, y), lambda v: sign * _rank_correlation(v), 0.0, kind="rank", families=families)


def unrelated_over_arms(
    families: tuple[tuple[str, ...], ...], x: Measure, y: Measure, most: float, label: str
) -> Comparison:
    """Effect: minus the absolute rank correlation over the arms, shown beside -`most` and not judged."""
    label, arms = f"−|rank correlation| of {label}", tuple(arm for family in families for arm in family)
    return Comparison(label, arms, (x, y), lambda v: -abs(_rank_correlation(v)), -most, kind="rank", families=families)


def less_variable(stable: str, other: str, measure: Measure, label: str, least: float = 0.0) -> Comparison:
    """Effect: 2 log(spread of `other` / spread of `stable`), both over the seeds; must exceed `least`."""
    label = f"log squared ratio of spreads {other} / {stable}, {label}"
    return Comparison(label, (stable, other), (measure,), lambda v: v[0][0], least, "spread")


def _rank_correlation(values: Values) -> float:
    return spearman([x for x, _ in values], [y for _, y in values])
