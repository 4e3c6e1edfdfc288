"""Estimates against textbook formulas, verdicts on single comparisons and on claims with several parts."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clipx.verdict import Verdict, overall
from evaluation.claims.assess import assess
from evaluation.claims.design import Design, describe_claims
from evaluation.claims.evidence import collect_evidence
from evaluation.claims.measures import GAP, RECALL_1
from evaluation.claims.types import (
    Estimate,
    Finding,
    Outcome,
    less_variable,
    level,
    more,
    often,
    trend,
)
from evaluation.claims.verdict import (
    adjust,
    holm,
    judge,
    look_reached,
    mean_estimate,
    p_value,
    share_estimate,
    spread_estimate,
    survives_holm,
)
from evaluation.runs.reader import Run
from tests.helpers.claim_runs import recall
from tests.helpers.synthetic import changed, claim, evidence, run

EACH = 0.005  # error rate of each of five looks


def verdict(effects: list[float], least: float, error: float = EACH) -> Verdict:
    """Return the verdict on these effects; `least` is the smallest effect of interest, s."""
    comparison = more("a", "b", GAP, least)
    return judge(comparison, mean_estimate(comparison, effects, error), len(effects), error).verdict


@pytest.mark.parametrize(
    ("effects", "least", "expected"),
    [
        ([0.10, 0.11, 0.12, 0.11, 0.10], 0.05, "holds"),
        ([0.00, 0.01, -0.01, 0.00, 0.01], 0.05, "equivalent"),
        ([-0.10, -0.11, -0.12, -0.11, -0.10], 0.05, "does not hold"),
        ([0.04, 0.06, 0.05, 0.03, 0.07], 0.05, "undecided"),
        ([0.00, 0.01, -0.01, 0.00, 0.01], 0.0, "undecided"),  # with s = 0, nothing is equivalent
        ([-0.01, 0.0, 0.01, 0.0, 0.01], -0.1, "holds"),
        ([0.002, 0.002, 0.002], 0.005, "undecided"),  # two of 1,000 test items in each seed
        ([0.532 - 0.53, 0.702 - 0.7, 0.012 - 0.01], 0.005, "undecided"),  # the same, up to rounding
        ([0.1 + 0.2 - 0.3, 0.0, 0.0], 0.005, "undecided"),
        ([0.002, 0.002, 0.00200002], 0.0, "holds"),  # small differences count
    ],
)
def test_the_effect_is_compared_with_s_and_minus_s(effects: list[float], least: float, expected: Verdict) -> None:
    assert verdict(effects, least) == expected


def test_equal_effects_have_no_interval_and_the_reason_is_named() -> None:
    comparison = more("a", "b", GAP, 0.005)
    found = judge(comparison, mean_estimate(comparison, [0.002, 0.002, 0.002], EACH), 3, EACH, "a note")
    assert found.effect == pytest.approx(0.002) and found.estimate is not None
    assert np.isnan([found.estimate.low, found.estimate.high]).all() and found.needed == ""
    assert found.note.startswith("all seeds have the same effect") and found.note.endswith("; a note")


def test_the_value_of_a_single_arm_is_never_equivalent() -> None:
    alone = level("a", GAP, 0.6, "value")
    effects = [0.50, 0.51, 0.49, 0.50, 0.51]
    assert judge(alone, mean_estimate(alone, effects, EACH), 5, EACH).verdict == "does not hold"


def part(p_above: float, p_below: float, verdict: Verdict, p_inside: float = 1.0) -> Finding:
    estimate = Estimate(0.0, -1.0, 1.0, p_above, p_below, p_inside, 1.0)
    return Finding("part", verdict, 5, estimate, 0.1, error=EACH, last_error=EACH)


def test_a_part_is_refuted_only_if_it_survives_holm_among_the_parts() -> None:
    alone = part(0.9, 0.004, "does not hold")
    (kept,) = adjust([alone])
    assert kept.verdict == "does not hold"
    first, second = adjust([alone, part(0.3, 0.7, "undecided")])
    assert (first.verdict, second.verdict) == ("undecided", "undecided")
    assert first.note == "refuted alone, but not after Holm's adjustment for 2 parts"
    inside = [part(0.9, 0.0001, "equivalent", 0.004), part(0.3, 0.7, "undecided")]
    assert [finding.verdict for finding in adjust(inside)] == ["does not hold", "undecided"]
    strong = adjust([part(0.9, 0.002, "does not hold"), part(0.9, 0.004, "does not hold")])
    assert [finding.verdict for finding in strong] == ["does not hold", "does not hold"]


def test_holm_agrees_with_an_example_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5]) == [0.5] and holm([]) == []


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided"], "undecided"),
        (["holds", "not run"], "undecided"),
        (["holds", "equivalent"], "refuted"),
        (["equivalent", "equivalent"], "equivalent"),
        (["equivalent", "undecided", "does not hold"], "does not hold"),
        (["does not hold", "not run", "undecided"], "does not hold"),
        (["not run", "not run"], "not run"),
    ],
)
def test_a_claim_needs_all_of_its_parts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert overall(verdicts) == expected


def test_verdicts_that_do_not_survive_holm_over_all_claims_are_found() -> None:
    def outcome(number: str, p_above: float) -> Outcome:
        findings = [part(p_above, 1 - p_above, "holds" if p_above <= EACH else "undecided")]
        verdict = overall([finding.verdict for finding in findings])
        return Outcome(claim(number), "r", verdict, findings, p_value(findings))

    alone = outcome("1.5", 0.004)
    assert alone.p == pytest.approx(0.02) and survives_holm([alone]) == {"1.5 r": True}
    many = [alone, outcome("1.6", 0.3), outcome("1.7", 0.0001)]
    assert survives_holm(many) == {"1.5 r": False, "1.7 r": True}


def test_a_share_is_judged_by_the_exact_binomial_test() -> None:
    share = often("a", GAP, 0.9, "share")
    for hits, expected in ((100, "holds"), (97, "holds"), (95, "undecided"), (80, "does not hold")):
        estimate = share_estimate(0.9, hits, 100, 0.025)
        assert judge(share, estimate, 100, 0.025).verdict == expected, hits
        assert estimate.effect == hits / 100
    assert share_estimate(0.9, 100, 100, 0.025).low == pytest.approx(0.025 ** (1 / 100))


def runs_of(arms: dict[str, list[float]], recipe: str = "clip_reg_mini") -> list[Run]:
    return [
        run(recipe, arm, seed, {("zeroshot", "scenes_colour", "top1"): value})
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]


def test_claims_are_judged_at_the_looks_only() -> None:
    noise = np.random.default_rng(0).normal(0, 0.001, (2, 7))
    arms = {"clip": list(0.5 + noise[0]), "clip_reg": list(0.6 + noise[1])}
    (finding,) = assess(claim("1.5"), "clip_reg_mini", evidence(runs_of(arms))).findings
    assert finding.seeds == 5 and finding.note == "judged at 5 of 7 seeds; the next look is at 8"
    assert finding.estimate is not None
    effects = [b - a for a, b in zip(arms["clip"][:5], arms["clip_reg"][:5], strict=True)]
    assert finding.estimate.effect == pytest.approx(fmean(effects))
    few = assess(claim("1.5"), "clip_reg_mini", evidence(runs_of({arm: v[:2] for arm, v in arms.items()})))
    assert few.verdict == "undecided" and few.findings[0].note == "2 seeds in common, 3 are needed"


def test_looks_of_the_stored_design_are_used_and_changed_bounds_are_named() -> None:
    noise = np.random.default_rng(0).normal(0, 0.001, (2, 4))
    runs = runs_of({"clip": list(0.5 + noise[0]), "clip_reg": list(0.6 + noise[1])})
    stored = Design("clip_reg_mini", "", ("clip", "clip_reg"), (4,), describe_claims("clip_reg_mini"))
    one_look = evidence(runs)
    one_look.designs["clip_reg_mini"] = stored
    outcome = assess(claim("1.5"), "clip_reg_mini", one_look)
    assert outcome.findings[0].seeds == 4 and outcome.findings[0].error == 0.025 and not outcome.note
    changed = {**stored.claims, "1.5": {label: text + "9" for label, text in stored.claims["1.5"].items()}}
    one_look.designs["clip_reg_mini"] = Design("clip_reg_mini", "", stored.arms, (4,), changed)
    note = assess(claim("1.5"), "clip_reg_mini", one_look).note
    assert note.startswith("the design stored before the first seed differs: claim 1.5")


@pytest.mark.parametrize(("errors", "expected"), [((), "holds"), ((0.0004, 0.0047, 0.0199), "undecided")])
def test_a_design_from_before_error_rates_keeps_equal_ones(errors: tuple[float, ...], expected: Verdict) -> None:
    found = evidence(runs_of({"clip": [0.5, 0.5, 0.5], "clip_reg": [0.590, 0.600, 0.595]}))
    stored = Design("clip_reg_mini", "", ("clip", "clip_reg"), (3, 5, 8), {}, errors=errors)
    found.designs["clip_reg_mini"] = stored
    (part,) = assess(claim("1.5"), "clip_reg_mini", found).findings
    assert part.verdict == expected and part.error == (errors or (0.025 / 3,))[0]
    if errors:  # seeds are planned for the last look, which has most of the error
        assert part.seeds_needed is not None and part.seeds_needed < 8


def test_holm_weighs_the_parts_by_the_error_rates_of_their_looks() -> None:
    early, late = part(0.9, 0.0003, "does not hold"), part(0.9, 0.009, "does not hold")
    looks = [replace(early, error=0.0004), replace(late, error=0.0199)]
    assert [found.verdict for found in adjust(looks)] == ["does not hold", "does not hold"]
    assert p_value(looks) == pytest.approx(2 * 0.009 * 0.025 / 0.0199)


def test_a_verdict_does_not_depend_on_other_arms() -> None:
    draw = np.random.default_rng(3)
    noisy = {name: list(0.5 + draw.normal(0, 0.2, 3)) for name in ("cyclip", "clip_neg")}
    compared = {"clip": [0.500, 0.502, 0.501], "clip_reg": [0.5200, 0.5221, 0.5208]}
    alone = assess(claim("1.5"), "clip_reg_mini", evidence(runs_of(compared)))
    among = assess(claim("1.5"), "clip_reg_mini", evidence(runs_of(compared | noisy)))
    assert alone.verdict == "holds" and alone == among


def test_a_look_without_seed_0_is_undecided() -> None:
    values = {("zeroshot", "scenes_colour", "top1"): 0.5}
    runs = [run("clip_reg_mini", arm, seed, values) for arm in ("clip", "clip_reg") for seed in (1, 2, 3)]
    (finding,) = assess(claim("1.5"), "clip_reg_mini", evidence(runs)).findings
    assert finding.verdict == "undecided"
    assert finding.note == "seeds 0 to 2 are judged, but not all arms have numbers for seed 0"


def test_an_undecided_finding_has_the_number_of_seeds_for_80_per_cent_power() -> None:
    effects = [0.01, 0.03, -0.01, 0.02, 0.0]
    comparison = more("a", "b", GAP, 0.0)
    found = judge(comparison, mean_estimate(comparison, effects, EACH), 5, EACH)
    assert found.verdict == "undecided" and found.seeds_needed is not None
    n = found.seeds_needed - np.arange(2)
    shift = 0.01 * np.sqrt(n) / np.std(effects, ddof=1)  # of the t statistic, which the effect makes noncentral
    enough, fewer = stats.nct.sf(stats.t.isf(EACH, n - 1), n - 1, shift)
    assert fewer < 0.8 <= enough
    at_bound = judge(more("a", "b", GAP, 0.01), mean_estimate(more("a", "b", GAP, 0.01), effects, EACH), 5, EACH)
    assert at_bound.needed == "more than 1,000", "an effect that equals the bound is never decided"


@pytest.mark.parametrize("n", [19, 20])
def test_spreads_between_seeds_are_compared_by_brown_and_forsythe(n: int) -> None:
    draw = np.random.default_rng(0)
    values = np.stack([draw.normal(0, 0.001, n), draw.normal(0, 0.01, n)])
    found = spread_estimate(less_variable("a", "b", GAP, "v"), values, EACH)
    deviations = np.sort(np.abs(values - np.median(values, axis=1, keepdims=True)), axis=1)[:, n % 2 :]
    expected = stats.ttest_ind(deviations[1], deviations[0], equal_var=False, alternative="greater")
    assert found.p_above == pytest.approx(expected.pvalue) and found.p_above < EACH
    assert found.effect == pytest.approx(2 * np.log(deviations[1].mean() / deviations[0].mean()))
    for bound, side in ((found.low, "greater"), (found.high, "less")):  # a test of the bound has the p-value EACH
        scaled = deviations[0] * np.exp(bound / 2)
        assert stats.ttest_ind(deviations[1], scaled, equal_var=False, alternative=side).pvalue == pytest.approx(EACH)


@pytest.mark.parametrize(
    "values",
    [
        [[0.0, 1.0, 3.0], [0.0, 0.1, 0.5]],
        [[0.25, 0.5, 0.75], [0.5, 0.625, 0.75]],  # equidistant in both arms, as accuracies on a few images can be
        [[0.3, 0.32, 0.34], [0.3, 0.4, 0.5]],  # the same, up to rounding
    ],
)
def test_three_seeds_exclude_no_large_ratio_of_spreads(values: list[list[float]]) -> None:
    found = spread_estimate(less_variable("a", "b", GAP, "v"), np.array(values), EACH)
    assert found.low == -np.inf and found.high == np.inf and found.p_above > EACH and found.p_below > EACH


def test_an_arm_with_equal_values_has_no_spread_to_compare() -> None:
    (usual,) = claim("1.5").comparisons
    spreads = less_variable("clip", "clip_reg", usual.measures[0], "v")
    tested = replace(claim("1.5"), comparisons=(spreads,), recipes=("clip_reg_mini",))
    constant = [0.1, 0.3 - 0.2, 0.7 - 0.6] * 3  # up to rounding
    found = evidence(runs_of({"clip": constant[:8], "clip_reg": list(np.linspace(0.1, 0.5, 8))}))
    (part,) = assess(tested, "clip_reg_mini", found).findings
    assert part.verdict == "undecided" and "an arm has the same value in all seeds" in part.note


def test_paired_t_agrees_with_scipy() -> None:
    effects = [0.3, 0.1, 0.4, 0.2, 0.25]
    found = mean_estimate(more("a", "b", GAP, 0.05), effects, 0.005)
    expected = stats.ttest_1samp(effects, 0.05, alternative="greater")
    assert found.p_above == pytest.approx(expected.pvalue) and found.p_below == pytest.approx(1 - expected.pvalue)
    interval = stats.ttest_1samp(effects, 0.0).confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    above_minus_least = stats.ttest_1samp(effects, -0.05, alternative="greater").pvalue
    assert found.p_inside == pytest.approx(max(found.p_below, above_minus_least))


def test_a_trend_is_the_least_squares_slope() -> None:
    positions, values = {"a": -2.0, "b": -1.0, "c": 0.5}, [0.7, 0.4, 0.1]
    comparison = trend(positions, GAP, "gap", sign=-1)
    slope = stats.linregress(list(positions.values()), values).slope
    assert comparison.effect([(value,) for value in values]) == pytest.approx(-slope)
    assert sum(comparison.contrast) == pytest.approx(0.0)


def trained_to(losses: list[float], effects: list[float], failed_loss: float | None, looks: tuple[int, ...]) -> Outcome:
    """Return the outcome of "clip_reg exceeds clip"; runs of `clip_reg` end at `losses` and exceed by `effects`."""
    runs = []
    for seed, (loss, effect) in enumerate(zip(losses, effects, strict=True)):
        for arm, value, end in (("clip", 0.5, 1.0), ("clip_reg", 0.5 + effect, loss)):
            log = [{"step": step, "loss": end} for step in range(1, 11)]
            runs.append(run("clip_reg_mini", arm, seed, recall(value), log))
    tested = replace(claim("1.7"), comparisons=(more("clip_reg", "clip", RECALL_1, 0.01),), recipes=("clip_reg_mini",))
    found = evidence(runs)
    found.designs["clip_reg_mini"] = Design("clip_reg_mini", "", ("clip", "clip_reg"), looks, {}, (), failed_loss)
    return assess(tested, "clip_reg_mini", found)


GOOD, JITTER = 0.05, [0.0, 0.002, -0.001, 0.001, -0.002, 0.001, 0.0, -0.001]


def test_a_claim_is_about_the_seeds_that_trained_and_the_failures_are_counted() -> None:
    losses, effects = [1.0] * 7 + [4.0], [GOOD + jitter for jitter in JITTER[:7]] + [-0.4]
    (part,) = trained_to(losses, effects, 3.0, (8,)).findings
    assert (part.verdict, part.seeds) == ("holds", 7) and part.effect == pytest.approx(GOOD, abs=1e-3)
    assert part.each == pytest.approx(effects[:7]), "a failed seed is none of them"
    assert "clip_reg failed in 1 of 8 seeds (95% interval 0% to 53%)" in part.note
    (without_definition,) = trained_to(losses, effects, None, (8,)).findings
    assert without_definition.verdict == "undecided"


def test_no_claim_is_decided_while_the_seeds_are_visibly_two_groups() -> None:
    effects = [GOOD + jitter for jitter in JITTER[:6]] + [0.15, 0.151]
    (part,) = trained_to([1.0] * 8, effects, 3.0, (8,)).findings
    assert part.verdict == "undecided" and "the seeds fall into two groups" in part.note
    (alike,) = trained_to([1.0] * 8, [GOOD + jitter for jitter in JITTER], 3.0, (8,)).findings
    assert alike.verdict == "holds"
    (below,) = trained_to([1.0] * 8, [-effect for effect in effects], 3.0, (8,)).findings
    assert below.verdict == "undecided" and "the seeds fall into two groups" in below.note


def test_too_few_trained_seeds_give_no_verdict() -> None:
    (part,) = trained_to([4.0, 4.0, 1.0, 1.0], [GOOD] * 4, 3.0, (4,)).findings
    assert part.verdict == "undecided" and "only 2 of 4 seeds trained" in part.note
    (none,) = trained_to([4.0] * 4, [GOOD] * 4, 3.0, (4,)).findings
    assert none.verdict == "not run" and "clip_reg failed in 4 of 4 seeds" in none.note


def test_the_look_to_wait_for_counts_the_seeds_that_will_fail() -> None:
    """Five of eight seeds trained: to have six that trained, one needs ten."""
    effects = [0.05, 0.02, 0.06, -0.01, 0.03] + [0.0] * 3
    (part,) = trained_to([1.0] * 5 + [4.0] * 3, effects, 3.0, (8, 10, 40)).findings
    assert (part.verdict, part.seeds, part.look) == ("undecided", 5, 8) and part.seeds_needed
    assert look_reached(replace(part, seeds_needed=6), (8, 10, 40)) == 10
    assert look_reached(replace(part, seeds_needed=7), (8, 10, 40)) == 40
    assert look_reached(replace(part, seeds_needed=6), (8,)) is None


def gap_runs(base: float, swapped: float, **settings: Any) -> list[Run]:
    """Return three seeds of `base` and `hs_1e-3` with these gaps; `settings` are those of the runs of `base`."""
    runs = []
    for seed in range(3):
        for arm, gap in (("base", base), ("hs_1e-3", swapped)):
            values = {("geometry", "s", "gap"): gap + 0.001 * seed * (arm == "base")}
            runs.append(run("gap_mini", arm, seed, values, settings=settings if arm == "base" else None))
    return runs


@pytest.mark.parametrize(
    ("of_control", "expected", "words"),
    [
        (0.33, "depends", "depends on the learning rate"),  # the baseline at the rate of the other arm has a larger gap
        (0.29, "does not hold", "does not hold"),
    ],
)
def test_a_control_that_reverses_a_verdict_makes_it_depend_on_its_condition(
    of_control: float, expected: Verdict, words: str
) -> None:
    smaller = more("base", "hs_1e-3", GAP)
    tested = replace(claim("4.4"), comparisons=(smaller,), recipes=("gap_mini",))
    settings, rate = {"optimizer": {"lr": 0.016}}, "-optimizer.lr_0.016"
    gap = {("geometry", "s", "gap"): 0.3}  # one seed of an arm that the claim does not name
    of_others = run("gap_mini", "rows", 0, gap, settings=settings)
    control = [*gap_runs(of_control, 0.3, **settings)[::2], of_others]
    runs = [replace(one, name=one.name + rate) for one in control]
    runs = [*gap_runs(0.28, 0.3), run("gap_mini", "rows", 0, gap), *runs]
    found = collect_evidence(runs, [])
    outcome = assess(tested, "gap_mini", found)
    under = "holds" if expected == "depends" else "does not hold"
    assert (outcome.verdict, outcome.words) == (expected, words)
    assert outcome.checked_by[0].text.startswith(f"the learning rate: {under} with optimizer.lr=0.016 for base")
    assert not any("other settings" in text for text in found.left_out)
    assert assess(tested, "gap_mini", collect_evidence(gap_runs(0.28, 0.3), [])).checked_by == ()
    shorter = [changed(one, train={"samples": 640}) for one in runs[-4:]]
    found = collect_evidence([*runs[:-4], *shorter], [])
    assert assess(tested, "gap_mini", found).checked_by == (), "not only the rate differs"
    assert any("other settings" in text for text in found.left_out)


@pytest.mark.parametrize(
    ("effect", "expected", "again", "agreement"),
    [
        (GOOD, "holds", 0.05, "agrees"),
        (GOOD, "holds", -0.02, "does not agree"),
        (0.0, "equivalent", 0.005, "agrees"),
        (0.0, "equivalent", -0.05, "does not agree"),
        (-GOOD, "does not hold", -0.02, "agrees"),
    ],
)
def test_a_replication_stands_beside_the_verdict_and_does_not_change_it(
    effect: float, expected: Verdict, again: float, agreement: str
) -> None:
    effects = {seed: effect + JITTER[seed] for seed in range(8)}
    effects |= {100 + seed: again + JITTER[seed] for seed in range(8)}
    runs = []
    for seed, gain in effects.items():
        for arm, value in (("clip", 0.5), ("clip_reg", 0.5 + gain)):
            runs.append(run("clip_reg_mini", arm, seed, recall(value)))
    tested = replace(claim("1.7"), comparisons=(more("clip_reg", "clip", RECALL_1, 0.01),), recipes=("clip_reg_mini",))
    outcome = assess(tested, "clip_reg_mini", evidence(runs))
    assert outcome.verdict == expected and outcome.findings[0].effect == pytest.approx(effect, abs=1e-3)
    assert outcome.findings[0].note == "", "no further seeds wait for the next look"
    text = outcome.findings[0].replication
    assert text.startswith(f"{again + np.mean(JITTER):.4f} [") and text.endswith(f"8 seeds: {agreement}")
