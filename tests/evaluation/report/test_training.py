"""Section "Training" of the report: scores, paths of geometry against scores, error against cost."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.report.blocks import Details, Figures, KeyValues, Table, Text
from evaluation.report.sections import training
from evaluation.report.sections.published import Published
from evaluation.report.sections.results import headline_metrics, results
from evaluation.report.sections.settings import settings
from evaluation.report.sections.training import error_against_cost, geometry_paths, score_curves
from evaluation.report.writer import write_report
from evaluation.runs.groups import group_runs, summarise_metrics
from evaluation.runs.reader import Run, no_config
from tests.helpers import synthetic
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
    drawn = [path for path in report.figures if path.name.startswith("evaluation") and path.suffix == ".svg"]
    (figure,) = drawn  # none for the other score, which is always NaN
    assert figure.name == "evaluation-01-scenes_shape-zeroshot-top1.svg"
    seeds = re.findall(r'<g data-label="demo" data-seed="(\d)"><title>demo, seed \1</title>', figure.read_text())
    assert seeds == ["0", "1"]
    text = report.html.read_text()
    training = text[text.index("<h2>Training<") : text.index("<h2>Task details<")]
    assert f"{SCORE} during training, one line per seed" in training


def test_without_logged_scores_there_is_no_figure(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    assert not [path for path in report.figures if "evaluation" in path.name]


@pytest.mark.parametrize(("count", "kind"), [(6, Figures), (7, Details)])
def test_many_scores_are_folded(count: int, kind: type, tmp_path: Path) -> None:
    log = [{"step": step, "evaluation": {f"set{n} zeroshot top1": 0.5 for n in range(count)}} for step in (1, 2)]
    run = Run(tmp_path, "a", 0, no_config(), log, [], {}, {})
    assert [type(block) for block in score_curves([("a", run)])] == [kind]


def test_each_recipe_has_its_own_curves() -> None:
    log = [{"step": step, "loss": 1 / step, "tau": 0.07} for step in (1, 2)]
    arms = [("a_mini", "x"), ("a_mini", "y"), ("b_mini", "x")]
    *parts, runs = training.training(group_runs([synthetic.run(*arm, 0, {}, log) for arm in arms]), [])
    assert [part.summary for part in parts if isinstance(part, Details)] == ["a_mini", "b_mini"]
    drawn = [part.blocks[0] for part in parts if isinstance(part, Details)]
    assert [[figure.name for figure in of_recipe.figures] for of_recipe in drawn if isinstance(of_recipe, Figures)] == [
        ["a_mini-loss", "a_mini-temperature"],
        ["b_mini-loss", "b_mini-temperature"],
    ]
    assert isinstance(runs, Table) and len(runs.rows) == len(arms)


def test_paths_are_means_over_the_seeds_at_the_steps_that_all_have_logged() -> None:
    def seed(number: int, steps: tuple[int, ...]) -> Run:
        log: list[dict[str, Any]] = []
        for step in steps:
            log.append({"step": step, "geometry": {"gap": step + number}})
            log.append({"step": step, "evaluation": {"a": step / 10, "b": number}})
        return Run(Path("r"), "m", number, no_config(), log, [], {}, {})

    (figure,) = geometry_paths([("m", seed(0, (1, 2, 3))), ("m", seed(4, (1, 2)))])
    assert figure.name == "path-gap" and figure.data.columns == ["curve", "gap", "mean of 2 scores"]
    assert figure.data.rows == [["m", 3.0, pytest.approx(1.05)], ["m", 4.0, pytest.approx(1.1)]]
    assert geometry_paths([("m", seed(0, (1,)))]) == []


def test_error_against_cost_uses_the_scores_that_all_methods_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "training_flops", lambda run: 2e9 * run.log[-1]["samples"])
    runs = []
    for arm, samples, values in (("a", 100.0, {"x": 0.5, "y": 0.7, "z": 0.9}), ("b", 400.0, {"x": 0.6, "y": 0.8})):
        log = [{"step": 1, "samples": samples, "images_per_s": 10.0}]
        rows = {("zeroshot", name, "top1"): value for name, value in values.items()}
        one = synthetic.run("r", arm, 0, rows, log)
        runs.append(replace(one, environment={"device": "NVIDIA H100", "processes": 8}))
    figures = error_against_cost(headline_metrics(summarise_metrics(group_runs(runs))))
    assert {figure.name: figure.data.rows for figure in figures} == {
        "cost-samples": [["r-a", 100.0, pytest.approx(0.4)], ["r-b", 400.0, pytest.approx(0.3)]],
        "cost-GPU-hours": [
            ["r-a", pytest.approx(80 / 3600), pytest.approx(0.4)],
            ["r-b", pytest.approx(320 / 3600), pytest.approx(0.3)],
        ],
        "cost-FLOPs": [["r-a", 200e9, pytest.approx(0.4)], ["r-b", 800e9, pytest.approx(0.3)]],
    }


def lost_and_finished() -> list[Run]:
    """Return a diverged seed 0 of ten steps and a finished seed 1 of a hundred."""
    log = [{"step": step, "samples": 64 * step, "images_per_s": 64.0} for step in range(10, 101, 10)]
    lost = synthetic.run("r", "a", 0, {("train", "d", "loss"): math.nan}, log[:1])
    return [lost, synthetic.run("r", "a", 1, {("zeroshot", "x", "top1"): 0.5}, log)]


def test_steps_and_cost_are_not_those_of_a_diverged_first_seed() -> None:
    groups = group_runs(lost_and_finished())
    (listed,) = settings(groups)
    assert isinstance(listed, KeyValues)
    shown = dict(listed.pairs)
    assert (shown["Steps"], shown["Samples seen"], shown["Training time"]) == ("100", "6,400", "1 min 40 s")
    costs = training._costs({groups[0].label: groups[0]})
    assert costs["samples"] == {"r-a": 6400.0} and costs["CPU-hours"] == {"r-a": pytest.approx(100 / 3600)}


def test_a_diverged_seed_is_named_and_its_missing_loss_is_no_metric() -> None:
    groups = group_runs(lost_and_finished())
    metrics = summarise_metrics(groups)
    assert [metric.row.task for metric in metrics] == ["zeroshot"]
    first, *_ = results(headline_metrics(metrics), groups, Published(lost_and_finished()))
    assert isinstance(first, Text) and first.text == "Diverged: r-a (seed 0)."
    only_lost = group_runs(lost_and_finished()[:1])
    (sentence,) = results([], only_lost, Published(lost_and_finished()))
    assert sentence == first
