"""Figures of a comparison agree with plain loops over methods and seeds."""

import math
from dataclasses import replace
from typing import Any

import pytest

from evaluation.report.blocks import Figure
from evaluation.report.comparison import method_figures, notes
from evaluation.statistics import t_interval
from tests.helpers.method_runs import compare_all, runs_of

METHODS = {"low": 0.50, "high": 0.52, "same": 0.52}


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    compared = compare_all([run for name, level in METHODS.items() for run in runs_of(name, level, seeds=4)])
    return {figure.name: figure for figure in method_figures(compared, "")}


def test_the_matrix_counts_wins_ties_and_losses(figures: dict[str, Figure]) -> None:
    scores = {name: [one.results[0].value for one in runs_of(name, METHODS[name], seeds=4)] for name in METHODS}
    for row in figures["matrix"].data.rows:
        counts = [0, 0, 0]
        for at, other in enumerate(figures["matrix"].data.columns[1:4], 1):
            if other == row[0]:
                assert row[at] == ""
                continue
            mean, low, high = t_interval([a - b for a, b in zip(scores[str(row[0])], scores[other], strict=True)])
            assert row[at] == pytest.approx(100 * mean), "in points, as the caption says"
            counts[0 if low > 0 else 2 if high < 0 else 1] += 1
        assert row[4:] == counts
    assert [row[4:] for row in figures["matrix"].data.rows] == [[1, 1, 0], [1, 1, 0], [0, 0, 2]]


def test_the_heat_map_of_sets_has_the_means(figures: dict[str, Figure]) -> None:
    (row, _) = figures["sets"].data.rows
    assert row[0] == "zeroshot x"
    by_label = dict(zip(figures["sets"].data.columns[1:], row[1:], strict=True))
    assert by_label["same"] == pytest.approx(math.fsum(r.results[0].value for r in runs_of("same", 0.52, 4)) * 25)


def test_methods_with_too_few_common_seeds_neither_win_nor_tie() -> None:
    compared = compare_all([*runs_of("low", 0.5), *runs_of("high", 0.52), *runs_of("fresh", 0.51, seeds=2)])
    (matrix, *_) = method_figures(compared, "")
    assert {row[0]: row[4:] for row in matrix.data.rows} == {"high": [1, 0, 0], "low": [0, 0, 1], "fresh": [0, 0, 0]}


def test_the_images_of_a_pool_are_not_counted_as_those_of_the_set() -> None:
    pool: dict[str, Any] = {"split": "test, 100 of 5000 images (seed 0)", "n": 100, "hashes": {"pool": "100"}}
    runs = [*runs_of("low", 0.5), *runs_of("high", 0.52)]
    for size, count in ((5000, 0), (50, 1)):
        rows = [[replace(row, n=size) for row in run.results if row.dataset == "x"] for run in runs]
        scored = [replace(run, results=[*of, replace(of[0], **pool)]) for run, of in zip(runs, rows, strict=True)]
        found = [note for note in notes(compare_all(scored)) if "test items" in note]
        assert len(found) == count and all("There are 50 test items" in note for note in found)
