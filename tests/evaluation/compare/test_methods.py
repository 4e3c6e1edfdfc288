"""Comparison of methods: conditions, paired intervals, ranks, and runs that are left out."""

import csv
import io
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from clipx.errors import UserError
from evaluation.compare.methods import SCORES, Method, MethodComparison, compare, describe_left_out, rankable
from evaluation.report import comparison
from evaluation.report.comparison import write_comparison
from evaluation.runs.groups import RunGroup, group_runs, method_labels
from evaluation.runs.reader import Run, no_config
from evaluation.statistics import t_interval
from tests.helpers.method_runs import compare_all, runs_of


def test_paired_differences_separate_methods_with_overlapping_intervals() -> None:
    compared = compare_all(runs_of("low", 0.50) + runs_of("high", 0.52) + runs_of("same", 0.52))
    assert [method.label for method in compared.ranked] == ["high", "same", "low"]
    high, same, low = compared.ranked
    difference = compared.difference(low, high)
    expected = t_interval([low.values["mean"][seed] - high.values["mean"][seed] for seed in range(3)])
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == expected and expected[2] < 0
    assert [compared.ranks(method) for method in (high, same, low)] == [(1, 2), (1, 2), (3, 3)]


def test_differences_that_are_equal_in_all_seeds_order_no_methods() -> None:
    compared = compare_all(runs_of("c", 0.5) + runs_of("d", 0.6))
    difference = compared.difference(*compared.ranked)
    assert difference and difference.low is None and difference.p == 1
    few = compare_all(runs_of("low", 0.1, seeds=2) + runs_of("high", 0.9, seeds=4))
    assert [few.ranks(method) for method in few.ranked] == [(1, 2)] * 2, "fewer than three seeds leave every rank open"
    assert [compared.ranks(method) for method in compared.ranked] == [(1, 2)] * 2
    assert "d is first of 2 by mean of tasks, not significantly ahead of c (Holm's" in comparison.lead(compared, "")


def test_equal_methods_are_rarely_ordered() -> None:
    draw, ordered, tables = random.Random(0), 0, 100
    for _ in range(tables):
        scores = [{"mean": {seed: draw.gauss(0, 1) for seed in range(8)}} for _ in range(6)]
        methods = [Method(str(at), str(at), "", values, {}, []) for at, values in enumerate(scores)]
        compared = MethodComparison({}, "mean", [], methods, [])
        ordered += any(compared.ranks(method) != (1, 6) for method in methods)
    assert ordered <= 0.05 * tables + 3 * math.sqrt(0.05 * 0.95 * tables)


def with_task(runs: list[Run], value: float, metric: str = "share", higher_is_better: bool = True) -> list[Run]:
    """Add rows of a task `mine` that clipx does not have, with the metrics `metric` and then `other`."""
    return [
        replace(one, results=[*one.results, *(
            replace(one.results[0], task="mine", metric=name, value=score, higher_is_better=higher_is_better)
            for name, score in ((metric, value), ("other", 1 - value))
        )])
        for one in runs
    ]  # fmt: skip


def test_runs_are_ranked_by_the_task_of_a_plugin_that_is_not_loaded() -> None:
    runs = with_task(runs_of("low", 0.5), 0.9) + with_task(runs_of("high", 0.6), 0.1)
    by_task = compare_all(runs, by="mine")
    assert [method.label for method in by_task.ranked] == ["low", "high"]
    assert by_task.ranked[0].values["mine"] == {0: 0.9, 1: 0.9, 2: 0.9}
    assert "low is first of 2 by mine" in comparison.lead(by_task, "")
    mean = compare_all(runs)
    assert mean.tasks == ["zeroshot"] and mean.ranked[0].label == "high", (
        "`mine` has an unknown unit, so it must not count"
    )
    assert "mine" not in mean.ranked[0].values


def test_methods_are_not_ranked_by_a_metric_whose_lower_values_are_better() -> None:
    runs = with_task(runs_of("low", 0.5), 0.9, higher_is_better=False)
    assert set(rankable(runs)) == set(SCORES)
    assert set(rankable(with_task(runs, 0.9))) == {*SCORES, "mine"}


def test_the_headline_of_a_plugin_selects_the_metric_that_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clipx.utils.plugins._loaded", {"own": {"HEADLINE": {"mine": {"other": "the other one"}}}})
    runs = with_task(runs_of("low", 0.5), 0.9) + with_task(runs_of("high", 0.6), 0.1)
    assert [method.label for method in compare_all(runs, by="mine").ranked] == ["high", "low"]


def test_a_set_that_one_run_lacks_is_not_named_as_scored() -> None:
    high, low = runs_of("high", 0.6), runs_of("low", 0.5)
    high[2] = replace(high[2], results=[row for row in high[2].results if row.dataset != "y"])
    compared = compare_all([*high, *low])
    assert compared.scored == {"zeroshot x"}
    assert compared.ranked[0].values["zeroshot"][0] == pytest.approx(0.6)
    assert comparison.notes(compared)[0] == "The score, zero-shot, is over zeroshot x."


def on_split(runs: list[Run], dataset: str, split: str) -> list[Run]:
    return [
        replace(one, results=[replace(one.results[0], dataset=dataset, split=split), *one.results[-1:]]) for one in runs
    ]


@pytest.mark.parametrize(
    ("dataset", "split"), [("x/dev", "dev"), ("x", "test, prompts simple"), ("x", "test, limit 9")]
)
def test_rows_of_other_splits_prompts_or_limits_are_not_ranked_as_equal(dataset: str, split: str) -> None:
    runs = on_split(runs_of("a", 0.5), "x/test", "test") + on_split(runs_of("b", 0.6), dataset, split)
    compared = compare_all(runs)
    assert compared.ranked == []
    lead = comparison.lead(compared, "")
    other = f"zeroshot {dataset}" + (f" ({split.partition(', ')[2]})" if ", " in split else "")
    assert lead.endswith(f"(a: zeroshot x/test; b: {other}): evaluate all runs on the same sets.")


def test_the_mean_covers_only_tasks_that_all_methods_have() -> None:
    probed = [
        replace(one, results=[*one.results, replace(one.results[0], task="linear_probe", value=0.9)])
        for one in runs_of("probed", 0.5)
    ]
    compared = compare_all(probed + runs_of("high", 0.6))
    assert compared.tasks == ["zeroshot"]
    assert compared.ranked[0].label == "high"


def test_tasks_scored_on_different_seeds_have_no_mean(tmp_path: Path) -> None:
    runs = runs_of("a", 0.5) + runs_of("b", 0.6)
    for one in runs[2::3]:  # the last seed of each
        one.results[:] = [replace(row, task="linear_probe") for row in one.results if row.task == "zeroshot"]
    compared = compare_all(runs)
    assert compared.ranked == [] and len(compared.unranked) == 2
    assert "mean" not in write_comparison([compared], [], {}, tmp_path).csv.read_text()


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"train": {"samples": 1280, "batch_size": 64}}, "train.samples: 640, not 1,280"),
        ({"data": {"name": "d", "source": "shards", "held_out": 0.1}}, "data.held_out: 0.0, not 0.1"),
        (
            {"model": {"image": {"name": "open_clip:b"}, "text": {"name": "open_clip:a"}}},
            "model.image.name: open_clip:a, not open_clip:b",
        ),
    ],
)
def test_runs_with_different_towers_data_or_length_are_refused(changes: dict[str, Any], differs: str) -> None:
    with pytest.raises(UserError, match=f"no two of a, b share towers, data and length .{differs}.$"):
        compare(group_runs(runs_of("a", 0.5) + runs_of("b", 0.5, **changes)))
    with pytest.raises(UserError, match="nothing to compare: mine-a is one method"):
        compare(group_runs(runs_of("a", 0.5)))


def test_methods_may_differ_in_other_settings_and_these_are_shown() -> None:
    changes: dict[str, Any] = {
        "objective": {"clip": {}, "positive": {"weight": 0.1}},
        "data": {"name": "d", "source": "shards", "keywords": ["numbers"], "workers": 7, "root": "elsewhere"},
        "temperature": {"tau": 0.05},
    }
    compared = compare_all([*runs_of("a", 0.5), *runs_of("b", 0.5), *runs_of("c", 0.6, **changes)])
    assert [m.settings for m in compared.ranked] == [
        "clip + 0.1 positive; data.keywords=numbers; temperature.tau=0.05; optimizer.lr=100.0",
        "clip",
        "clip; optimizer.lr=99.0",
    ]


def test_each_set_of_conditions_has_one_comparison_and_a_method_alone_is_left_out() -> None:
    long: dict[str, Any] = {"train": {"samples": 1280, "batch_size": 64}}
    runs = [*runs_of("a", 0.5), *runs_of("b", 0.6), *runs_of("c", 0.7, **long), *runs_of("d", 0.8, **long)]
    alone = runs_of("e", 0.9, train={"samples": 64, "batch_size": 64})
    alone += runs_of("f", 0.9, data={"name": "x", "source": "scenes"}, train={"samples": 64, "batch_size": 64})
    comparisons, left_out = compare(group_runs([*runs, *alone]))
    assert [[m.label for m in comparison.ranked] for comparison in comparisons] == [["b", "a"], ["d", "c"]]
    of_e, of_f = describe_left_out(left_out)
    assert of_e == "left out, no other run with the same train.samples: e (64, not 640)"
    assert re.fullmatch(r"left out, no other run with the same data.name and \d+ other settings: f \(x, not d\)", of_f)


def test_published_weights_are_left_out_because_they_have_no_settings() -> None:
    runs = [*runs_of("a", 0.5), *runs_of("b", 0.6)]
    published = replace(runs[0], path=Path("published"), name="published", config=no_config())
    comparisons, left_out = compare(group_runs([*runs, published]))
    assert len(comparisons) == 1 and left_out == {"no config.yaml": ["published"]}


def test_comparisons_that_differ_in_a_setting_outside_their_name_are_told_apart() -> None:
    large: dict[str, Any] = {"train": {"samples": 640, "batch_size": 128}}
    runs = [*runs_of("a", 0.5), *runs_of("b", 0.6), *runs_of("c", 0.7, **large), *runs_of("d", 0.8, **large)]
    comparisons, _ = compare(group_runs(runs))
    short = "open_clip:a on d, 640 samples"
    assert comparison.names(comparisons) == [f"{short}, train.batch_size={size}" for size in (64, 128)]
    assert comparison.names(comparisons[:1]) == [short]


def test_diverged_and_unevaluated_methods_are_named_but_not_ranked(tmp_path: Path) -> None:
    lost = [
        replace(r, results=[replace(r.results[0], task="train", metric="loss", value=float("nan"))])
        for r in runs_of("lost", 0.0)
    ]
    new = [replace(r, results=[], log=[{"step": 10, "loss": 1.0}]) for r in runs_of("new", 0.0)]
    log = [{"step": step, "loss": 1 / step, "tau": 0.07} for step in (5, 10)]
    first = [replace(one, log=log, environment={"git_commit": "abc"}) for one in runs_of("a", 0.5)]
    compared = compare_all([*first, *runs_of("b", 0.6), *runs_of("c", 0.55), *lost, *new])
    assert any("lost 3 of 3" in note for note in comparison.notes(compared)), "as the terminal shows it"
    written = write_comparison([compared], [], {"<script>": ["x"]}, tmp_path)
    page, markdown = written.html.read_text(), written.markdown.read_text()
    for text in (page, markdown):
        assert "Not ranked, diverged seeds: 3: lost" in text
        assert "Not ranked, not evaluated on the shared data sets: new" in text
        assert "on d, 640 samples: b is first of 3 by mean of tasks" in text
    assert "<script>" not in page.replace("<script>\n", "")
    rows = list(csv.DictReader(io.StringIO(written.csv.read_text())))
    (best,) = [row for row in rows if row["method"] == "b" and row["measure"] == "mean"]
    assert (best["first_rank"], best["last_rank"], best["seeds"]) == ("1", "1", "3")
    names = ["compare-1-loss", "compare-1-temperature"]
    assert list(dict.fromkeys(figure.stem for figure in written.figures)) == names
    assert "| Method | Seed | zeroshot x | zeroshot y |" in markdown and "| a | 2 | 40.00 | 40.00 |" in markdown
    assert "Environment of a seed 0" in markdown and "abc" in markdown


def test_the_interval_over_items_contains_that_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = MagicMock(return_value=(0.09, 0.3))
    monkeypatch.setattr("evaluation.compare.methods.over_seeds_and_items", interval)
    runs = [*runs_of("a", 0.5), *runs_of("b", 0.6)]
    lost = [replace(one, results=[], log=[{"step": 10}]) for one in runs_of("b", 0.6, seeds=4)[3:]]
    unscored: list[dict[str, Any]] = [
        {"dataset": "d/held_out", "split": "held_out"},
        {"split": "test, paper protocol"},
        {"split": "test, 9 of 20 images (seed 0)", "hashes": {"pool": "9"}},
    ]
    runs = [replace(r, results=[*r.results, *(replace(r.results[0], **of) for of in unscored)]) for r in runs]
    (compared,), _ = compare(group_runs([*runs, *lost]), by="zeroshot")
    b, a = compared.ranked
    difference = compared.difference(b, a)
    assert difference and difference.low
    against_a = replace(compared, reference_label="a")
    assert against_a.over_items == {"b": (min(0.09, difference.low), 0.3)}
    interval.assert_called_once()
    seeds, sets = interval.call_args.args[:2], interval.call_args.args[-1]
    assert [sorted(of) for of in seeds] == [[0, 1, 2]] * 2 and sets == {("x", "test"), ("y", "test")}
    interval.return_value = (difference.value, difference.value)  # a bootstrap of three seeds can be too narrow
    assert replace(against_a).over_items == {"b": difference.span}


def test_a_method_with_one_seed_is_never_first_unless_all_have_one() -> None:
    lucky = runs_of("lucky", 0.9, seeds=1)
    compared = compare_all([*lucky, *runs_of("a", 0.5), *runs_of("b", 0.6)])
    assert [method.label for method in compared.ranked] == ["b", "a", "lucky"]
    once = compare_all([*lucky, *runs_of("a", 0.5, seeds=1)])
    assert [m.label for m in once.ranked] == ["lucky", "a"]
    assert "lucky is first of 2 by mean of tasks; no other method shares 3 seeds with it" in comparison.lead(once, "")
    two = compare_all([*lucky, *runs_of("a", 0.5, seeds=2)])
    assert "a is first of 2 by mean of tasks; lucky with one seed came last" in comparison.lead(two, "")


def test_a_method_with_luckier_seeds_is_not_named_before_a_better_one() -> None:
    better, worse = runs_of("better", 0.51, seeds=3), runs_of("worse", 0.5, seeds=4)
    lucky = [replace(row, value=0.9) for row in worse[3].results]
    worse[3] = replace(worse[3], results=lucky)  # a seed that only the worse method has
    compared = compare_all([*worse, *better])
    assert [method.label for method in compared.ranked] == ["better", "worse"]
    assert [compared.ranks(method) for method in compared.ranked] == [(1, 1), (2, 2)]
    assert "better is first of 2 by mean of tasks, significantly ahead of all others" in comparison.lead(compared, "")


def test_means_are_over_the_seeds_that_the_differences_are_over() -> None:
    more, fewer = runs_of("more", 0.6, seeds=4), runs_of("fewer", 0.5, seeds=3)
    more[3] = replace(more[3], results=[replace(row, value=0.2) for row in more[3].results])
    compared = compare_all([*more, *fewer])
    shown = {"fewer": (["60.00", "50.00"], ["3 of 4", "3"]), "more": (["50.00", "50.00"], ["4", "3"])}
    for reference, (means, seeds) in shown.items():
        against = replace(compared, reference_label=reference)
        assert [row[2].text for row in comparison.ranking(against).rows] == means
        assert [row[-1].text for row in comparison.ranking(against).rows] == seeds
    assert comparison.notes(against)[2:] == ["more has 60.00 on the 3 of its 4 seeds that it shares with fewer."]
    with_single = compare_all([*more, *fewer, *runs_of("single", 0.9, seeds=1)])
    assert [len(with_single.shared_seeds(method)) for method in with_single.ranked] == [4, 3, 1]
    assert comparison.notes(compare_all([*more[:3], *fewer]))[1:] == ["Chance is 10.00%."]


def test_equal_settings_under_two_names_are_one_method() -> None:
    same: dict[str, Any] = {"optimizer": {"lr": 0.5}}
    runs = [*runs_of("a", 0.5, **same), *runs_of("b", 0.5, seeds=4, **same), *runs_of("c", 0.6)]
    (compared,), left_out = compare(group_runs(runs))
    assert [(m.label, sorted(m.values["mean"])) for m in compared.ranked] == [("c", [0, 1, 2]), ("a", [0, 1, 2, 3])]
    assert describe_left_out(left_out) == [
        "left out, same settings and seed as another run: "
        "runs/mine-b/s0 (runs/mine-a/s0), runs/mine-b/s1 (runs/mine-a/s1), runs/mine-b/s2 (runs/mine-a/s2)"
    ]
    assert "also named mine-b" in comparison.ranking(compared).rows[1][1].note
    runs[0] = replace(runs[0], results=[], log=[{"step": 10}])  # then the second run of the seed counts
    (compared,), left_out = compare(group_runs(runs))
    assert "runs/mine-a/s0 (runs/mine-b/s0), runs/mine-b/s1 (runs/mine-a/s1)" in describe_left_out(left_out)[0]
    assert sorted(compared.ranked[1].values["mean"]) == [0, 1, 2, 3]


def test_runs_before_and_after_an_edit_of_their_plugin_are_two_methods() -> None:
    same: dict[str, Any] = {"optimizer": {"lr": 0.5}}
    before, after = runs_of("a", 0.5, **same), runs_of("b", 0.6, **same)
    runs = [replace(run, environment={**run.environment, "plugins": {"own": "d4c8e23b"}}) for run in before]
    runs += [replace(run, environment={**run.environment, "plugins": {"own": "0815e23b"}}) for run in after]
    (compared,), left_out = compare(group_runs(runs))
    assert ([method.label for method in compared.ranked], left_out) == (["b", "a"], {})


def test_a_run_that_was_not_trained_to_the_end_is_left_out() -> None:
    runs = [replace(one, log=[{"step": 10}]) for one in runs_of("a", 0.5) + runs_of("b", 0.6)]
    runs[0] = replace(runs[0], log=[{"step": 4}])
    (compared,), left_out = compare(group_runs(runs))
    assert sorted(compared.ranked[1].values["mean"]) == [1, 2]
    assert describe_left_out(left_out) == ["left out, not trained to the last step: runs/mine-a/s0 (step 4 of 10)"]
    runs[0] = replace(runs[0], log=[{"step": 10}], results=[])
    _, left_out = compare(group_runs(runs))
    assert describe_left_out(left_out) == ["left out, not evaluated: runs/mine-a/s0"]


def named(name: str, arm: str = "", **changes: Any) -> RunGroup:
    """Return a group of one run with these names; `changes` as in `runs_of`."""
    (one,) = runs_of("x", 0.5, seeds=1, **{"optimizer": {"lr": 0.01}, **changes})
    return RunGroup(name, [replace(one, config=replace(one.config, name=name, arm=arm))])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([named("mine-a", "a"), named("mine-b", "b")], ["a", "b"]),
        ([named("first"), named("second")], ["first", "second"]),
        (
            [named("mine-a", "a"), named("mine-a-lr", "a", optimizer={"lr": 0.1})],
            ["a", "a optimizer.lr=0.1"],
        ),
        (
            [
                named("mine-dcl", objective={"dcl": {}}),
                named("mine-dcl-lr", objective={"dcl": {}}, optimizer={"lr": 3}),
            ],
            ["dcl", "dcl optimizer.lr=3.0"],
        ),
        (
            [
                named(f"mine-{lr}-{tau}", "a", optimizer={"lr": lr}, temperature={"tau": tau})
                for lr in (0.1, 0.01)
                for tau in (0.05, 0.06, 0.07)
            ],
            [f"a temperature.tau={tau} optimizer.lr={lr}" for lr in (0.1, 0.01) for tau in (0.05, 0.06, 0.07)],
        ),
        (
            [named(f"mine-{w}", objective={"clip": {}, "positive": {"weight": w}}) for w in (0.1, 0.5)],
            ["clip_reg", "clip+positive"],
        ),
        (
            [named("mine-d", objective={"dcl": {}}), named("mine-t", objective={"dcl": {"tau_plus": 0.2}})],
            ["dcl", "dcl objective.dcl.tau_plus=0.2"],
        ),
    ],
    ids=["arms", "chosen", "no overrides", "an objective alone", "two settings", "parameters", "a default"],
)
def test_labels_are_the_settings_that_differ(groups: list[RunGroup], expected: list[str]) -> None:
    assert method_labels(groups) == expected


def test_labels_of_a_report_also_tell_recipes_and_conditions_apart() -> None:
    """A report, unlike a comparison, holds runs of several recipes and batch sizes, and copies of a run."""
    batch = {"train": {"samples": 640, "batch_size": 128}}
    runs = [one.runs[0] for one in (named("mine-a", "a"), named(f"mine-{'x' * 80}", "a", **batch), named("chosen"))]
    apart = [replace(run, name=run.config.name) for run in runs]
    assert [group.label for group in group_runs(apart)] == ["a", "a train.batch_size=128", "chosen"]
    other = replace(apart[0], config=replace(apart[0].config, recipe="other", name="other-a"))
    labels = ["mine-a", "mine-a train.batch_size=128", "chosen", "other-a"]
    assert [group.label for group in group_runs([*apart, replace(other, name="other-a")])] == labels
    copies = [replace(apart[0], path=Path(folder) / "mine-a" / "s0") for folder in ("x", "y")]
    assert [group.label for group in group_runs(copies)] == ["mine-a (x/mine-a)", "mine-a (y/mine-a)"]
    assert [group.label for group in group_runs(apart[1:2])] == [apart[1].name]


MOVING = {"nuclr_seen": [1.0] * 7, "nuclr_zeta_text": [-0.1, *[0.0] * 5, 0.2]}
STILL = {"nuclr_seen": [1.0] * 7, "nuclr_zeta_text": [-0.05] * 7}


@pytest.mark.parametrize(
    ("changes", "line", "part"),
    [
        ({"objective": {"nuclr": {}}}, {"columns": STILL}, "zeta was never updated"),
        ({"objective": {"nuclr": {}}}, {"columns": MOVING}, ""),
        ({"objective": {"nuclr": {}}}, {"columns": MOVING, "epoch": 0}, "no pair was seen twice"),
        ({"mixing": {"kind": "hard", "probability": 1e-6}}, {}, "no step mixed"),
        ({"temperature": {"tau": 0.01}}, {"tau": 0.01}, "the learned temperature never moved"),
        ({"objective": {"clip": {}, "positive": {"weight": 0}}}, {}, "positive has weight 0"),
    ],
)
def test_a_part_of_a_method_that_had_no_effect_is_named(changes: dict[str, Any], line: Any, part: str) -> None:
    log = [{"step": step, "loss": 1.0, "epoch": 1, "tau": 0.05 + step / 1000, **line} for step in (5, 10)]
    idle = [replace(one, log=log) for one in runs_of("idle", 0.5, **changes)]
    compared = compare_all([*idle, *(replace(one, log=log) for one in runs_of("other", 0.6))])
    found = [
        note for note in comparison.notes(compared) if note.startswith("idle is not what its name and settings say")
    ]
    assert len(found) == bool(part) and all(part in note for note in found)
    moved = [idle[0], replace(idle[1], log=[]), *idle[2:]]
    assert compare_all([*moved, *runs_of("other", 0.6)]).ranked[1].without_effect == []


def test_methods_that_are_not_above_chance_are_named() -> None:
    compared = compare_all(runs_of("low", 0.11) + runs_of("high", 0.52))
    assert compared.chance == pytest.approx(0.1)
    assert comparison.chance(compared) == "Chance is 10.00%; not significantly above it: low."
    assert comparison.chance(compare_all(runs_of("low", 0.1) + runs_of("high", 0.09))).endswith(
        "no method is significantly above it."
    )
    for one in compared.ranked[0].runs:  # then the chance level of a data set of the score is unknown
        one.results[:] = [replace(row, chance=None) if row.dataset == "y" else row for row in one.results]
    unknown = compare_all([run for method in compared.ranked for run in method.runs])
    assert unknown.chance is None and comparison.chance(unknown) == ""


def test_the_pairs_held_out_of_training_count_only_if_asked_for() -> None:
    held_out = {"a": 0.9, "b": 0.1}
    runs = [
        replace(r, results=[*r.results, replace(r.results[0], dataset="d/held_out", value=held_out[r.config.arm])])
        for r in runs_of("a", 0.5) + runs_of("b", 0.6)
    ]
    assert [m.label for m in compare_all(runs).ranked] == ["b", "a"]
    chosen = compare_all(runs, on=("heldout",))
    assert [(m.label, m.values["mean"][0]) for m in chosen.ranked] == [("a", 0.9), ("b", 0.1)]
