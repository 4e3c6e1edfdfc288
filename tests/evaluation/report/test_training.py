"""Scores during training in the report: one figure per score, none without logged scores."""

import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.report.blocks import Details, Figures
from evaluation.report.sections.training import score_curves
from evaluation.report.writer import write_report
from evaluation.runs.reader import Run
from tests.helpers.report_runs import log_lines, write_lines, write_run

SCORE = "scenes_shape zeroshot top1"


def write_run_with_scores(root: Path, seed: int) -> None:
    lines: list[dict[str, Any]] = log_lines(200)
    for line in lines[4::5]:
        line["evaluation"] = {SCORE: line["step"] / 250, "scenes_pairs pairs pair_accuracy": float("nan")}
    write_lines(write_run(root, seed=seed) / "log.jsonl", lines)


def test_each_score_is_a_figure_with_one_curve_per_run(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run_with_scores(tmp_path / "runs", seed)
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    (figure,) = [path for path in report.figures if path.name.startswith("evaluation")]  # the other score is NaN
    assert figure.name == "evaluation-01-scenes_shape-zeroshot-top1.svg"
    assert len(re.findall(r"fill: none; stroke: #3d85c8", figure.read_text())) == 2
    text = report.html.read_text()
    training = text[text.index(">Training<") : text.index(">Task details<")]
    assert f"{SCORE} during training, one line per seed" in training


def test_without_logged_scores_there_is_no_figure(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    assert not [path for path in report.figures if "evaluation" in path.name]


@pytest.mark.parametrize(("count", "kind"), [(6, Figures), (7, Details)])
def test_many_scores_are_folded(count: int, kind: type, tmp_path: Path) -> None:
    log = [{"step": step, "evaluation": {f"set{n} zeroshot top1": 0.5 for n in range(count)}} for step in (1, 2)]
    run = Run(tmp_path, "a", 0, {}, log, [], {}, {})
    assert [type(block) for block in score_curves([("a", run)])] == [kind]
