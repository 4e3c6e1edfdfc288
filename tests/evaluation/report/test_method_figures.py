"""Figures of a comparison agree with plain loops over methods and seeds; undecided cells are grey."""

import math
import re
from dataclasses import replace

import pytest

from clipx.utils.figures import COLOURS
from evaluation.report.blocks import Data, Figure
from evaluation.report.figures.effects import Effect, Shade, forest_plot, heat_map, paths
from evaluation.report.pages.method_figures import method_figures
from evaluation.statistics import t_interval
from tests.helpers.method_runs import compare_all, runs_of
from tests.helpers.report_pages import texts

METHODS = {"low": 0.50, "high": 0.52, "same": 0.52}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    compared = compare_all([run for name, level in METHODS.items() for run in runs_of(name, level, seeds=4)])
    return {figure.name: figure for figure in method_figures(compared, "mean of tasks", "")}


def test_the_matrix_counts_wins_ties_and_losses(figures: dict[str, Figure]) -> None:
    scores = {name: [one.results[0].value for one in runs_of(name, METHODS[name], seeds=4)] for name in METHODS}
    for row in figures["matrix"].data.rows:
        counts = [0, 0, 0]
        for at, other in enumerate(figures["matrix"].data.columns[1:4], 1):
            if other == row[0]:
                assert row[at] == ""
                continue
            mean, low, high = t_interval([a - b for a, b in zip(scores[str(row[0])], scores[other], strict=True)])
            assert row[at] == pytest.approx(mean)
            counts[0 if low > 0 else 2 if high < 0 else 1] += 1
        assert row[4:] == counts
    assert [row[4:] for row in figures["matrix"].data.rows] == [[1, 1, 0], [1, 1, 0], [0, 0, 2]]


def test_half_widths_are_those_of_the_first_seeds(figures: dict[str, Figure]) -> None:
    high, low = ([one.results[0].value for one in runs_of(name, METHODS[name], seeds=4)] for name in ("high", "low"))
    expected: list[tuple[object, object]] = []
    for count in (3, 4):
        _, below, above = t_interval([low[seed] - high[seed] for seed in range(count)])
        expected.append((count, pytest.approx((above - below) / 2)))
    assert [(row[2], row[3]) for row in figures["seeds"].data.rows if row[0] == "low"] == expected


def test_the_heat_map_of_sets_has_the_means(figures: dict[str, Figure]) -> None:
    (row, _) = figures["sets"].data.rows
    assert row[0] == "zeroshot x"
    by_label = dict(zip(figures["sets"].data.columns[1:], row[1:], strict=True))
    assert by_label["same"] == pytest.approx(math.fsum(r.results[0].value for r in runs_of("same", 0.52, 4)) / 4)


def test_learning_rates_of_one_method_are_one_line() -> None:
    swept = [
        replace(one, name=f"mine-{arm}-optimizer.lr_{rate}")
        for arm, term in (("a", "clip"), ("b", "siglip"))
        for rate in (1e-3, 4e-3)
        for one in runs_of(arm, 0.5 + rate, objective={term: {}}, optimizer={"lr": rate})
    ]
    drawn = {figure.name: figure for figure in method_figures(compare_all(swept), "score", "")}
    assert sorted(row[:3] for row in drawn["lr"].data.rows) == [
        [arm, "", rate] for arm in ("a", "b") for rate in (1e-3, 4e-3)
    ]
    single = compare_all(runs_of("a", 0.5) + runs_of("b", 0.5, objective={"siglip": {}}))
    assert "lr" not in {figure.name for figure in method_figures(single, "score", "")}


def test_only_decided_cells_are_coloured() -> None:
    cells = [[Shade("+1", 1.0, True), Shade("-1", -1.0, True), Shade("0", 0.5, False), Shade("text")]]
    figure = heat_map("h", "", ["r"], ["a", "b", "c", "d"], cells, Data([], []))
    fills = re.findall(r"fill: (#\w+|currentColor); opacity: ([\d.]+)", figure.body)
    assert fills == [(COLOURS[0], "0.6"), (COLOURS[1], "0.6"), ("currentColor", "0.07")]
    assert {"+1", "-1", "0", "text"} <= set(texts(figure))


def test_a_forest_plot_shows_verdict_and_look() -> None:
    effects = [
        Effect("1.1 a", "holds", 0.3, 0.2, 0.4, 0.1, "5 seeds, look 2 of 5"),
        Effect("1.2 b", "undecided", 0.0, -0.2, 0.2, None, "3 seeds, look 1 of 5"),
    ]
    figure = forest_plot("f", "", effects)
    shown = texts(figure)
    assert {"1.1 a", "1.2 b", "5 seeds, look 2 of 5", "holds", "undecided", "-0.01", "0.1"} <= set(shown)
    assert figure.data.rows[1] == ["1.2 b", "undecided", 0.0, -0.2, 0.2, "", "3 seeds, look 1 of 5"]
    assert set(re.findall(r'data-label="(\w+)"', figure.body)) == {"holds", "undecided"}


def test_each_path_ends_in_an_arrow() -> None:
    figure = paths("p", "", {"a": [(0, 0), (1, 1), (2, 1)], "b": [(0, 1), (1, 0)]}, "gap", "accuracy")
    assert figure.data.rows == [["a", 0, 0], ["a", 1, 1], ["a", 2, 1], ["b", 0, 1], ["b", 1, 0]]
    assert len(re.findall(r'data-label="a"', figure.body)) == 3  # line, dot, arrow
