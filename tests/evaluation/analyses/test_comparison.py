"""Comparison of methods: comparable conditions, paired intervals, ranks, methods that are left out."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clipx.errors import UserError
from evaluation.analyses.comparison import MethodComparison, compare
from evaluation.report.sections import comparison
from evaluation.report.writer import write_comparison
from evaluation.runs.groups import group_runs
from evaluation.runs.reader import Run
from evaluation.statistics import t_interval
from tests.helpers.synthetic import Values, run

SEED_SHIFT = [0.0, 0.1, -0.1, 0.05]  # common to all methods, much larger than their differences
OWN_SHIFT = {"low": [0.001, -0.001, 0.0, 0.0], "high": [0.0, 0.001, -0.001, 0.0]}


def settings(**changes: Any) -> dict[str, Any]:
    towers = {"image": {"name": "open_clip:a"}, "text": {"name": "open_clip:a"}}
    return {
        "data": {"name": "d", "source": "shards"},
        "model": towers,
        "objective": {"clip": {}},
        "train": {"samples": 640, "batch_size": 64},
        **changes,
    }


def runs_of(arm: str, level: float, seeds: int = 3, **changes: Any) -> list[Run]:
    runs = []
    for seed in range(seeds):
        value = level + SEED_SHIFT[seed] + OWN_SHIFT.get(arm, [0.0] * 4)[seed]
        values: Values = {("zeroshot", name, "top1"): value for name in ("x", "y")}
        values[("geometry", "c", "gap")] = 1 - level
        runs.append(run("mine", arm, seed, values, settings=settings(**changes)))
    return runs


def compare_all(runs: list[Run], **by: str) -> MethodComparison:
    (comparison,), left_out = compare(group_runs(runs), **by)
    assert left_out == []
    return comparison


def test_paired_differences_separate_methods_with_overlapping_intervals() -> None:
    compared = compare_all(runs_of("low", 0.50) + runs_of("high", 0.52) + runs_of("same", 0.52))
    assert [method.label for method in compared.ranked] == ["mine-high", "mine-same", "mine-low"]
    high, same, low = compared.ranked
    difference = compared.difference(low, high)
    expected = t_interval([low.values["mean"][seed] - high.values["mean"][seed] for seed in range(3)])
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == expected and expected[2] < 0
    assert [compared.ranks(method) for method in (high, same, low)] == [(1, 2), (1, 2), (3, 3)]


def test_fewer_than_three_seeds_leave_every_rank_open() -> None:
    compared = compare_all(runs_of("low", 0.1, seeds=2) + runs_of("high", 0.9, seeds=4))
    assert [compared.ranks(method) for method in compared.ranked] == [(1, 2), (1, 2)]
    difference = compared.difference(*compared.ranked)
    assert difference is not None and difference.seeds == 2 and difference.low is None


def test_only_data_sets_shared_by_all_runs_count() -> None:
    high = runs_of("high", 0.6)
    more = replace(high[0].results[0], dataset="only_here", value=0.0)
    high[0] = replace(high[0], results=[*high[0].results, more])
    compared = compare_all(high + runs_of("low", 0.5))
    assert compared.ranked[0].values["zeroshot"][0] == pytest.approx(0.6)


def test_the_mean_covers_only_tasks_that_all_methods_have() -> None:
    easy = runs_of("easy", 0.5)
    easy = [replace(r, results=[*r.results, replace(r.results[0], task="linear_probe", value=0.9)]) for r in easy]
    compared = compare_all(easy + runs_of("high", 0.6))
    assert compared.tasks == ["zeroshot"]
    assert compared.ranked[0].label == "mine-high"


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"train": {"samples": 1280, "batch_size": 64}}, "train.samples: 640, not 1,280"),
        ({"data": {"name": "e", "source": "shards"}}, "data.name: d, not e"),
        ({"data": {"name": "d", "source": "shards", "held_out": 0.1}}, "data.held_out: 0.0, not 0.1"),
        (
            {"model": {"image": {"name": "open_clip:b"}, "text": {"name": "open_clip:a"}}},
            "model.image.name: open_clip:a, not open_clip:b",
        ),
    ],
)
def test_runs_with_other_towers_data_or_length_are_refused_in_one_line(changes: dict[str, Any], differs: str) -> None:
    with pytest.raises(UserError, match=f"no two of mine-a, mine-b share towers, data and length .{differs}.$"):
        compare(group_runs(runs_of("a", 0.5) + runs_of("b", 0.5, **changes)))


def test_settings_of_the_method_may_differ_and_are_shown() -> None:
    changes: dict[str, Any] = {
        "objective": {"clip": {}, "positive": {"weight": 0.1}},
        "data": {"name": "d", "source": "shards", "keywords": ["numbers"], "workers": 7, "root": "elsewhere"},
        "temperature": {"tau": 0.05},
    }
    compared = compare_all([*runs_of("a", 0.5), *runs_of("b", 0.5), *runs_of("c", 0.6, **changes)])
    assert [m.settings for m in compared.ranked] == [
        "clip + 0.1 positive; data.keywords=numbers; temperature.tau=0.05", "clip", "clip"
    ]  # fmt: skip


def test_each_set_of_conditions_has_its_own_comparison_and_single_runs_are_named() -> None:
    long: dict[str, Any] = {"train": {"samples": 1280, "batch_size": 64}}
    runs = [*runs_of("a", 0.5), *runs_of("b", 0.6), *runs_of("c", 0.7, **long), *runs_of("d", 0.8, **long)]
    alone = runs_of("e", 0.9, train={"samples": 64, "batch_size": 64})
    comparisons, left_out = compare(group_runs([*runs, *alone]))
    assert [[m.label for m in comparison.ranked] for comparison in comparisons] == [
        ["mine-b", "mine-a"],
        ["mine-d", "mine-c"],
    ]
    assert left_out == ["left out, no other run under the same conditions: mine-e (train.samples: 64, not 640)"]


def test_a_single_method_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to compare: mine-a is one method"):
        compare(group_runs(runs_of("a", 0.5)))


def test_diverged_and_unevaluated_methods_are_named_but_not_ranked(tmp_path: Path) -> None:
    lost = runs_of("lost", 0.0)
    lost = [replace(r, results=[replace(r.results[0], task="train", metric="loss", value=float("nan"))]) for r in lost]
    new = [replace(r, results=[]) for r in runs_of("new", 0.0)]
    compared = compare_all([*runs_of("a", 0.5), *runs_of("b", 0.6), *runs_of("c", 0.55), *lost, *new])
    written = write_comparison([compared], ["left out: <script>"], tmp_path)
    page, markdown = written.html.read_text(), written.markdown.read_text()
    for text in (page, markdown):
        assert "Not ranked: mine-lost (3 seeds diverged)" in text
        assert "Not ranked: mine-new (not evaluated" in text
        assert "on d, 640 samples: mine-b is first of 3 by mean of tasks" in text
    assert "<script>" not in page.replace("<script>\n", "")
    rows = list(csv.DictReader(io.StringIO(written.csv.read_text())))
    (best,) = [row for row in rows if row["method"] == "mine-b" and row["measure"] == "mean"]
    assert (best["first_rank"], best["last_rank"], best["seeds"]) == ("1", "1", "3")
    assert [figure.stem for figure in written.figures] == ["compare-1-gap"]


def test_the_ranking_by_a_task_has_columns_for_the_geometry() -> None:
    compared = compare_all(runs_of("a", 0.5) + runs_of("b", 0.6), by="zeroshot")
    table = comparison.ranking(compared)
    assert table.columns == [
        "Rank", "Method", "zero-shot", "95% interval", "Difference to mine-b", "gap", "Seeds"
    ]  # fmt: skip
    assert [cell.text for cell in table.rows[1]][:3] == ["2", "mine-a", "0.500"]
    assert table.rows[1][4].text == "▼ -0.100"
