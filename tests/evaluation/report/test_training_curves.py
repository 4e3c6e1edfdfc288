"""Accuracy while training in the report: a figure a measure, and none where nothing was logged."""

import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.report.blocks import Details, Figures
from evaluation.report.sections.training_curves import blocks
from evaluation.report.writer import write
from evaluation.runs.groups import group_runs
from evaluation.runs.reader import Run
from tests.helpers.report_runs import log_lines, write_lines, write_run

KEY = "scenes_shape zeroshot top1"


def with_scores(root: Path, seed: int) -> None:
    lines: list[dict[str, Any]] = log_lines(200)
    for line in lines[4::5]:
        line["evaluation"] = {KEY: line["step"] / 250, "scenes_pairs pairs pair_accuracy": float("nan")}
    write_lines(write_run(root, seed=seed) / "log.jsonl", lines)


def test_each_measure_is_a_figure_with_a_curve_a_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        with_scores(tmp_path / "runs", seed)
    report = write([tmp_path / "runs"], tmp_path / "out")
    (drawn,) = [path for path in report.figures if path.name.startswith("evaluation")]  # one has no number
    assert drawn.name == "evaluation-01-scenes_shape-zeroshot-top1.svg"
    assert len(re.findall(r"fill: none; stroke: #3d85c8", drawn.read_text())) == 2
    text = report.html.read_text()
    training = text[text.index(">Training<") : text.index(">Behind the numbers<")]
    assert f"{KEY} while training, one line a seed" in training


def test_nothing_is_drawn_where_nothing_was_logged(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    assert not [p for p in write([tmp_path / "runs"], tmp_path / "out").figures if "evaluation" in p.name]


@pytest.mark.parametrize(("count", "kind"), [(6, Figures), (7, Details)])
def test_many_measures_are_folded(count: int, kind: type, tmp_path: Path) -> None:
    log = [{"step": step, "evaluation": {f"set{n} zeroshot top1": 0.5 for n in range(count)}} for step in (1, 2)]
    run = Run(tmp_path, "a", 0, {}, log, [], {}, {})
    assert [type(block) for block in blocks(group_runs([run]))] == [kind]
