"""The table of claims is complete, and each kind of comparison recovers known effects from runs."""

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.claims.assess import assess
from evaluation.claims.design import Design
from evaluation.claims.measures import MetricReader, SpreadOfMean, canonical_name, signed_r_squared
from evaluation.claims.table import CLAIMS
from evaluation.claims.verdict import open_parts
from evaluation.runs.reader import Run
from evaluation.statistics import spearman
from tests.helpers.claim_runs import geometry, only, outcome, recall, seeds, zeroshot
from tests.helpers.synthetic import Values, changed, claim, evidence, result, run

NUMBER_OF_CLAIMS = {1: 17, 2: 10, 3: 13, 4: 12, 5: 11}  # by paper


def test_every_claim_is_listed_once_and_can_be_tested() -> None:
    assert [c.id for c in CLAIMS] == [f"{p}.{n}" for p, most in NUMBER_OF_CLAIMS.items() for n in range(1, most + 1)]
    pages = [(Path(__file__).parents[3] / name).read_text() for name in ("README.md", "docs/claims.md")]
    numbers = [re.findall(r"tests (\d+) of the papers' claims|Of the (\d+) claims", page) for page in pages]
    assert numbers == [[(str(len(CLAIMS)), "")], [("", str(len(CLAIMS)))]]
    for one in CLAIMS:
        assert bool(one.program) != bool(one.comparisons and one.recipes), one.id
        assert one.statement and one.published


def test_a_claim_has_one_control_for_each_condition_of_a_recipe() -> None:
    """The design stores a control under its condition."""
    for one in CLAIMS:
        for recipe in one.recipes:
            conditions = [control.condition for control in one.controls_of(recipe)]
            assert len(conditions) == len(set(conditions)), f"{one.id} {recipe}"


def test_without_runs_every_claim_is_not_run_and_names_the_command() -> None:
    for one in CLAIMS:
        for recipe in one.recipes:
            found = assess(one, recipe, evidence([]))
            assert found.verdict == "not run"
            assert all(f.note.startswith(f"run: clipx train recipe={recipe}") for f in found.findings)


def test_only_paired_seeds_count() -> None:
    runs = [run("clip_reg_mini", "clip", s, zeroshot(0.5 + 0.01 * s)) for s in (0, 1, 2, 7)]
    runs += [run("clip_reg_mini", "clip_reg", s, zeroshot(0.6 + 0.01 * s)) for s in (0, 1, 2, 9)]
    finding = only(outcome("1.5", "clip_reg_mini", runs))
    assert finding.seeds == 3 and finding.effect == pytest.approx(0.1)


def test_runs_of_other_recipes_are_not_mixed_in() -> None:
    runs = seeds("clip_reg_cc3m", {"clip": zeroshot(0.5)}) + seeds("clip_reg_mini", {"clip_reg": zeroshot(0.6)})
    for recipe in ("clip_reg_cc3m", "clip_reg_mini"):
        assert outcome("1.5", recipe, runs).verdict == "not run"


@pytest.mark.parametrize("count", [1, 3])
def test_a_data_set_that_one_run_lacks_leaves_the_claim_undecided(count: int) -> None:
    easy_and_hard = zeroshot(0.9, "easy") | zeroshot(0.5, "hard")
    runs = seeds("clip_reg_mini", {"clip": easy_and_hard, "clip_reg": easy_and_hard}, count=count)
    last = next(one for one in runs if one.config.arm == "clip_reg" and one.seed == count - 1)
    last.results.remove(next(row for row in last.results if row.dataset == "hard"))
    finding = only(outcome("1.5", "clip_reg_mini", runs))
    assert finding.verdict == "undecided" and finding.estimate is None
    assert f"runs/clip_reg_mini-clip_reg/s{count - 1} lacks zeroshot hard, which other runs have" in finding.note


def diverged(seed: int) -> Run:
    one = run("wpse_cc12m", "positive_weights", seed, {})
    one.results.append(result("train", "cc12m", "loss", math.nan, seed))
    return one


def test_a_claim_holds_if_the_arm_expected_to_diverge_does_so_in_every_seed() -> None:
    gaussian = seeds("wpse_cc12m", {"gaussian": zeroshot(0.46)}, count=8)
    found = outcome("5.3", "wpse_cc12m", [*gaussian, *(diverged(seed) for seed in range(8))])
    assert found.verdict == "holds" and only(found).note == "positive_weights diverged in 8 of 8 seeds"
    few_runs = [*gaussian, *(diverged(seed) for seed in range(3))]
    few = outcome("5.3", "wpse_cc12m", few_runs)
    assert few.verdict == "undecided", "three diverged seeds do not show that more than half of all runs diverge"
    assert outcome("5.1", "wpse_cc12m", few_runs).verdict == "not run"


def test_divergence_in_some_seeds_or_of_both_arms_does_not_make_a_claim_hold() -> None:
    gaussian, lost = seeds("wpse_cc12m", {"gaussian": zeroshot(0.46)}), [diverged(seed) for seed in range(3)]
    finished = seeds("wpse_cc12m", {"positive_weights": zeroshot(0.04)}, count=1)
    mixed = outcome("5.3", "wpse_cc12m", [*gaussian, *finished, *lost[1:]])
    assert mixed.verdict == "undecided"
    assert only(mixed).note == (
        "more seeds do not help: runs/wpse_cc12m-positive_weights/s1 gives no number; "
        "positive_weights diverged in 2 of 3 seeds"
    )
    assert outcome("5.3", "wpse_cc12m", [*gaussian[:2], *lost]).verdict == "not run"
    unscored = outcome("5.3", "wpse_cc12m", [*seeds("wpse_cc12m", {"gaussian": {}}), *lost])
    assert unscored.verdict == "not run" and "clipx eval runs/wpse_cc12m-gaussian/s0" in only(unscored).note
    found = evidence([*seeds("wpse_cc12m", {"gaussian": {}}, count=8), *(diverged(seed) for seed in range(8))])
    found.designs["wpse_cc12m"] = Design("wpse_cc12m", "", (), (3, 5, 8), {}, failed_loss=9.0)
    assert assess(claim("5.3"), "wpse_cc12m", found).verdict == "not run", "the other arm has no numbers"
    nan = seeds("wpse_mini", {"imq": zeroshot(0.5), "positive_weights": zeroshot(math.nan)})
    assert outcome("5.3", "wpse_mini", nan).verdict == "not run"
    also_lost = [changed(one, arm="gaussian") for one in lost]
    assert outcome("5.3", "wpse_cc12m", [*also_lost, *lost]).verdict == "not run"


@pytest.mark.parametrize("without", [1, 3])
def test_no_seeds_are_asked_for_if_a_run_of_every_further_look_has_no_number(without: int) -> None:
    """Claim 3.5 lacks a number if NUCLR's optimum does not converge in one seed; seed 3 is part of the next look."""
    rows = {("popularity", "scenes", f"zeta_{side}_sinkhorn_spearman"): 0.5 for side in ("text", "image")}
    runs = seeds("nuclr_mini", {"nuclr": rows}, noise=0.01, count=6)
    later = [*runs[:4], replace(runs[5], results=[])]  # the next look is at five seeds
    assert len(open_parts(outcome("3.5", "nuclr_mini", later))) == 1
    runs = runs[:4]
    assert only(outcome("3.5", "nuclr_mini", runs)).seeds_needed
    runs[without].results.clear()
    found = outcome("3.5", "nuclr_mini", runs)
    finding = only(found)
    assert finding.verdict == "undecided" and open_parts(found) == []
    assert finding.seeds_needed is None
    assert finding.note == f"more seeds do not help: runs/nuclr_mini-nuclr/s{without} gives no number"


def test_data_sets_with_mean_per_class_accuracy_are_not_compared_by_top1() -> None:
    def values(top1: float, per_class: float) -> Values:
        names = ("cifar10", "wds_vtab-flowers")
        metrics = {"top1": top1, "mean_per_class": per_class}
        return {("zeroshot", name, metric): value for name in names for metric, value in metrics.items()}

    runs = seeds("wpse_cc3m", {arm: values(0.5, level) for arm, level in (("clip", 0.1), ("imq", 0.3))})
    runs += seeds("wpse_cc3m", {"gaussian": values(0.5, 0.2)})
    found = outcome("5.1", "wpse_cc3m", runs)
    assert [f.effect for f in found.findings] == [pytest.approx(0.05, abs=0.002), pytest.approx(0.1, abs=0.002)]


def test_data_sets_of_other_tables_are_left_out_under_every_alias() -> None:
    worse = {**zeroshot(0.6), **zeroshot(0.0, "wds_vtab-flowers", "oxfordiiitpet", "pets", "flowers102")}
    runs = seeds("clip_reg_cc3m", {"clip": zeroshot(0.5) | dict.fromkeys(worse, 0.5), "clip_reg": worse})
    assert only(outcome("1.5", "clip_reg_cc3m", runs)).effect == pytest.approx(0.1, abs=0.005)


def test_margins_must_be_positive_when_trained_and_centred_when_untrained() -> None:
    good = {"untrained": 0.51, "tau_07": 0.97, "tau_01": 0.9}
    arms = {arm: geometry(margin_positive=share) for arm, share in good.items()}
    assert outcome("1.1", "margin_mini", seeds("margin_mini", arms)).verdict == "holds"
    arms["untrained"] = geometry(margin_positive=0.8)
    found = outcome("1.1", "margin_mini", seeds("margin_mini", arms))
    assert [f.verdict for f in found.findings] == ["holds", "holds", "does not hold"]
    del arms["untrained"]
    assert outcome("1.1", "margin_mini", seeds("margin_mini", arms)).verdict == "undecided"


def test_chance_is_subtracted_per_data_set() -> None:
    probe: Values = {("linear_probe", "scenes_shape", "top1"): 0.3}
    arms = {"reg_only": {**zeroshot(0.11), **probe}, "clip": dict.fromkeys(probe, 0.9)}
    assert outcome("1.4", "clip_reg_mini", seeds("clip_reg_mini", arms)).verdict == "holds"
    arms["reg_only"] |= zeroshot(0.3)  # synthetic rows have a chance of 0.1
    assert outcome("1.4", "clip_reg_mini", seeds("clip_reg_mini", arms)).verdict == "does not hold"


def test_counting_sets_and_other_sets_are_separated() -> None:
    better = {**zeroshot(0.49), **zeroshot(0.6, "scenes_count"), **recall(0.1)}
    runs = seeds("counting_mini", {"clip": {**zeroshot(0.5), **recall(0.1)}, "own_log1p_1000": better})
    assert only(outcome("2.1", "counting_mini", runs)).effect == pytest.approx(0.1, abs=0.005)
    others = outcome("2.3", "counting_mini", runs)
    assert others.verdict == "holds" and only(others).effect == pytest.approx(1.08 / 1.1, abs=0.005)


def test_paper_3_counts_retrieval_and_zero_shot_alike_however_many_sets_each_has() -> None:
    arms = {"clip": {**zeroshot(0.5), **recall(0.2)}, "sogclr": {**zeroshot(0.53), **recall(0.3)}}  # three sets and one
    runs = seeds("nuclr_mini", arms)
    assert only(outcome("3.1", "nuclr_mini", runs)).effect == pytest.approx((0.1 + 0.03) / 2, abs=0.005)


@pytest.mark.parametrize("worse", [{**zeroshot(0.02), **recall(0.01)}, {**zeroshot(0.025), **recall(0.0)}])
def test_losses_on_other_sets_are_judged_relative_to_the_baseline(worse: Values) -> None:
    runs = seeds("counting_mini", {"clip": {**zeroshot(0.025), **recall(0.01)}, "own_log1p_1000": worse}, noise=1e-5)
    assert outcome("2.3", "counting_mini", runs).verdict == "does not hold"


@pytest.mark.parametrize(("number", "arm"), [("3.5", "nuclr"), ("3.10", "nuclr_unbiased")])
def test_zeta_is_compared_with_the_optimum_not_with_popularity(number: str, arm: str) -> None:
    for correlation, expected in ((0.7, "holds"), (0.3, "does not hold"), (0.5, "undecided")):
        rows = {("popularity", "scenes", f"zeta_{side}_sinkhorn_spearman"): correlation for side in ("text", "image")}
        rows |= {("popularity", "scenes", f"zeta_{side}_spearman"): 0.0 for side in ("text", "image")}
        found = outcome(number, "nuclr_mini", seeds("nuclr_mini", {arm: rows}))
        assert found.verdict == expected and only(found).effect == pytest.approx(correlation, abs=0.01)


def test_the_correlation_of_zeta_with_popularity_is_judged_for_both_arms() -> None:
    rows = {arm: {("popularity", "scenes", f"zeta_{side}_spearman"): value for side in ("text", "image")}
            for arm, value in (("nuclr", -0.35), ("nuclr_unbiased", 0.3))}  # fmt: skip
    found = outcome("3.11", "nuclr_mini", seeds("nuclr_mini", rows))
    assert [f.verdict for f in found.findings] == ["does not hold", "holds"]


def test_claims_without_a_published_table_compare_the_arms_that_they_name() -> None:
    """NUCLR beats SogCLR here only because its loss has the own pair: `gcl`, SogCLR with the own pair, beats NUCLR."""
    scores = {"clip": 0.3, "sogclr": 0.4, "gcl": 0.5, "nuclr": 0.48}
    runs = seeds("nuclr_mini", {arm: zeroshot(value) | recall(value) for arm, value in scores.items()})
    verdicts = {number: outcome(number, "nuclr_mini", runs).verdict for number in ("3.1", "3.2", "3.7", "3.8")}
    assert verdicts == {"3.1": "holds", "3.2": "holds", "3.7": "holds", "3.8": "does not hold"}
    values = {"own_ratio_1000": 0.8, "own_log1p_1000": 0.9, "mislabelled_own_ratio": 0.75, "mislabelled_own_log1p": 0.7}
    counting = seeds("counting_mini", {arm: zeroshot(value, "scenes_count") for arm, value in values.items()})
    assert only(outcome("2.6", "counting_mini", counting)).effect == pytest.approx(0.15, abs=0.005)


def test_margins_must_be_larger_at_every_quantile() -> None:
    quantiles = ("margin_q25", "margin_q50", "margin_q95")
    plain = geometry(**dict.fromkeys(quantiles, 0.1))
    better = {key: value + 0.05 for key, value in plain.items()}
    runs = seeds("margin_mini", {"tau_01": plain, "tau_01_reg": better})
    assert outcome("1.15", "margin_mini", runs).verdict == "holds"
    better[("geometry", "scenes_captions", "margin_q95")] = 0.05
    found = outcome("1.15", "margin_mini", seeds("margin_mini", {"tau_01": plain, "tau_01_reg": better}))
    assert [f.verdict for f in found.findings] == ["holds", "holds", "does not hold"]


def draws(dataset: str, top1: list[float], per_class: list[float] | None = None) -> dict[str, dict[str, Any]]:
    return {
        f"zeroshot_draws-{dataset}": {"kind": "zeroshot_draws", "top1": top1, "mean_per_class": per_class or [0.9] * 5}
    }


def test_the_spread_over_draws_is_the_spread_of_the_mean_over_data_sets() -> None:
    up, down = [0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.4, 0.3, 0.2, 0.1]
    one = run("wpse_mini", "imq", 0, {})
    opposite = replace(one, artifacts=draws("a", up) | draws("b", down))
    assert SpreadOfMean().read(opposite) == {"spread over a, b": pytest.approx(0.0)}, (
        "the draws of two data sets cancel"
    )
    alike = replace(one, artifacts=draws("a", up) | draws("b", up) | draws("b, prompts simple", down))
    assert SpreadOfMean().read(alike) == {"spread over a, b": pytest.approx(statistics.stdev(up))}
    per_class = replace(one, artifacts=draws("wds_vtab-pets", [0.7] * 5, up))
    assert SpreadOfMean(("pets",)).read(per_class) == {"spread over pets": pytest.approx(statistics.stdev(up))}
    assert SpreadOfMean().read(one) == {}
    sets = [draws("a", up) | draws("b", down)] * 2 + [draws("a", up)]
    runs = [replace(run("wpse_mini", "imq", seed, {}), artifacts=found) for seed, found in enumerate(sets)]
    part = outcome("5.5", "wpse_mini", runs).findings[1]
    assert part.verdict == "undecided" and "lacks spread over a, which other runs have" in part.note


POOL, LIMITED_POOL = "test, 1000 of 5000 images (seed 0)", "test, 10 of 20 images (seed 0), limit 20"
PAPER, LIMITED_PAPER = "test, paper protocol", "test, paper protocol, limit 20"


@pytest.mark.parametrize(
    ("splits", "settings", "expected"),
    [
        ([("test", 0.4), (POOL, 0.6), (PAPER, 0.9)], {}, {"": 0.4}),
        ([("test", 0.4), (POOL, 0.6), (PAPER, 0.9)], {"paper_protocol": True}, {"": 0.9}),
        ([("test", 0.4), (POOL, 0.6), (PAPER, 0.9)], {"pool": 1000}, {"": 0.6}),
        ([("test", 0.4), (POOL, 0.6), (PAPER, 0.9)], {"pool": 500}, {}),
        ([("test", 0.1), ("test", 0.7)], {}, {"": 0.7}),  # the last of repeated evaluations counts
        ([("test, prompts counting", 0.2)], {}, {", prompts counting": 0.2}),
        ([("test, prompts counting", 0.2), ("test", 0.3)], {}, {"": 0.3}),
        ([("dev", 0.9), ("test", 0.4)], {}, {"": 0.4}),
        ([("dev", 0.9)], {}, {"/dev": 0.9}),
        ([("dev", 0.9), ("test", 0.4)], {"datasets": ("flickr8k/dev",)}, {"/dev": 0.9}),
        ([(LIMITED_PAPER, 0.9), (LIMITED_POOL, 0.8)], {}, {}),
        ([(LIMITED_PAPER, 0.9), (LIMITED_POOL, 0.8)], {"paper_protocol": True}, {", limit 20": 0.9}),
        ([(LIMITED_PAPER, 0.9), (LIMITED_POOL, 0.8)], {"pool": 10}, {", limit 20": 0.8}),
        ([("test, limit 20", 0.9), ("test", 0.4)], {}, {"": 0.4}),
    ],
)
def test_other_splits_pools_protocols_prompts_and_limits_have_other_names_and_do_not_replace_the_test_split(
    splits: list[tuple[str, float]], settings: dict[str, Any], expected: dict[str, float]
) -> None:
    one = run("r", "a", 0, {})
    one.results.extend(replace(result("retrieval", "flickr8k", "R", value), split=name) for name, value in splits)
    found = MetricReader("retrieval", ("R",), **settings).read(one)
    assert found == {f"retrieval flickr8k{name}": value for name, value in expected.items()}


@pytest.mark.parametrize("last", ["imagenet/val", "imagenet/test"])
def test_a_set_of_classes_in_a_folder_named_after_a_split_is_of_that_split(last: str) -> None:
    """A folder named val has rows of the split `test`: its name tells the split."""
    values = {"imagenet/val": 0.9, "imagenet/test": 0.4}
    one = run("r", "a", 0, {})
    one.results.extend(result("zeroshot", name, "R", values[name]) for name in sorted(values, key=last.__eq__))
    reader = MetricReader("zeroshot", ("R",))
    assert reader.read(one) == {"zeroshot imagenet": 0.4}, "whichever set was evaluated last"
    assert replace(reader, datasets=("imagenet/val",)).read(one) == {"zeroshot imagenet/val": 0.9}
    only_val = replace(one, results=[row for row in one.results if row.dataset == "imagenet/val"])
    assert reader.read(only_val) == {"zeroshot imagenet/val": 0.9}


def test_folder_names_of_a_data_set_are_unified() -> None:
    names = ("wds_cifar-10", "CIFAR10", "wds_vtab-cifar10/test", "cifar10/test")
    assert {canonical_name(name) for name in names} == {"cifar10"}
    assert canonical_name("flickr8k/test") == "flickr8k" and canonical_name("scenes_count") == "scenescount"
    assert canonical_name("evaluation/flowers/") == "flowers"
    in_other_scripts = {canonical_name(name) for name in ("кошки/test", "собаки/test", "猫", "é")}
    assert in_other_scripts == {"кошки", "собаки", "猫", "é"}, "sets with one name would replace each other"


def test_rank_correlation_with_ties_and_without_variance() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 20, 30]) == pytest.approx(0.9486832980505138)  # scipy.stats.spearmanr
    assert math.isnan(spearman([1, 2, 3], [5, 5, 5])), "a constant gives no evidence against a correlation"
    assert signed_r_squared([(0.0, 1.0), (1.0, 0.0), (2.0, -1.0)]) == pytest.approx(-1.0)
