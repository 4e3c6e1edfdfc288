"""Figures of a comparison agree with plain loops over methods and seeds."""

import math

import pytest

from evaluation.report.blocks import Figure
from evaluation.report.comparison import method_figures
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
            assert row[at] == pytest.approx(mean)
            counts[0 if low > 0 else 2 if high < 0 else 1] += 1
        assert row[4:] == counts
    assert [row[4:] for row in figures["matrix"].data.rows] == [[1, 1, 0], [1, 1, 0], [0, 0, 2]]


def test_the_heat_map_of_sets_has_the_means(figures: dict[str, Figure]) -> None:
    (row, _) = figures["sets"].data.rows
    assert row[0] == "zeroshot x"
    by_label = dict(zip(figures["sets"].data.columns[1:], row[1:], strict=True))
    assert by_label["same"] == pytest.approx(math.fsum(r.results[0].value for r in runs_of("same", 0.52, 4)) / 4)
