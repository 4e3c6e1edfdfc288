"""Tables of a comparison agree with plain loops over methods and seeds."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from evaluation.report.blocks import Details, Table
from evaluation.report.comparison import build_comparison, notes
from evaluation.statistics import t_interval
from tests.helpers.method_runs import compare_all, runs_of

METHODS = {"low": 0.50, "high": 0.52, "same": 0.52}


def test_differences_by_pair_and_by_set_are_paired_by_seed_and_marked_if_decided() -> None:
    runs = {name: runs_of(name, level, seeds=4) for name, level in METHODS.items()}
    page = build_comparison([compare_all([run for of in runs.values() for run in of])], [], {})
    tables = {block.summary: block.blocks[-1] for block in page.sections[0].blocks if isinstance(block, Details)}
    pairs, by_set = tables["All pairs: row minus column"], tables["Means by data set"]
    assert isinstance(pairs, Table) and isinstance(by_set, Table)
    scores = {name: [one.results[0].value for one in of] for name, of in runs.items()}

    def expected(row: str, column: str) -> tuple[float, str]:
        mean, low, high = t_interval([a - b for a, b in zip(scores[row], scores[column], strict=True)])
        return 100 * mean, "good" if low > 0 else "bad" if high < 0 else ""

    for label, *cells in pairs.rows:
        for column, cell in zip(pairs.columns[1:], cells, strict=True):
            if column != label.text:
                assert (100 * (cell.sort or 0), cell.tone) == pytest.approx(expected(label.text, column)), "in points"
    first, *others = by_set.columns[1:]
    row, _ = by_set.rows
    assert row[0].text == "zeroshot x" and row[1].note == ""
    for column, cell in zip((first, *others), row[1:], strict=True):
        assert cell.text == f"{100 * fmean(scores[column]):.2f}"
        assert cell.tone == ("" if column == first else expected(column, first)[1])


def test_the_images_of_a_pool_are_not_counted_as_those_of_the_set() -> None:
    pool: dict[str, Any] = {"split": "test, 100 of 5000 images (seed 0)", "n": 100, "hashes": {"pool": "100"}}
    runs = [*runs_of("low", 0.5), *runs_of("high", 0.52)]
    for size, count in ((5000, 0), (50, 1)):
        rows = [[replace(row, n=size) for row in run.results if row.dataset == "x"] for run in runs]
        scored = [replace(run, results=[*of, replace(of[0], **pool)]) for run, of in zip(runs, rows, strict=True)]
        found = [note for note in notes(compare_all(scored)) if "test items" in note]
        assert len(found) == count and all("There are 50 test items" in note for note in found)
