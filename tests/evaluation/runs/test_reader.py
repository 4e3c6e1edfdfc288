"""Run directories: reading, grouping seeds, summaries of metrics with t intervals, descriptions of runs."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from clipx.errors import UserError
from evaluation.report.blocks import shown
from evaluation.runs.description import describe, last, training_flops, training_seconds
from evaluation.runs.groups import group_runs, summarise_metrics
from evaluation.runs.reader import find, other_data_note, read
from tests.helpers.report_runs import log_lines, row, write_lines, write_run
from tests.helpers.synthetic import run, write


def test_a_half_written_last_line_is_ignored(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for name in ("log.jsonl", "results.jsonl"):
        text = (folder / name).read_text()
        (folder / name).write_text(text[:-20])
    (run,) = find([tmp_path])
    assert [line["step"] for line in run.log] == list(range(10, 200, 10))
    assert len(run.results) == 5


def test_steps_repeated_by_a_resume_count_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    again = [line | {"loss": 0.125} for line in log_lines(200)[15:]]
    write_lines(folder / "log.jsonl", [*log_lines(180), *again])
    (run,) = find([tmp_path])
    assert [line["step"] for line in run.log] == list(range(10, 201, 10))
    assert [line["loss"] == 0.125 for line in run.log] == [False] * 15 + [True] * 5
    assert training_seconds(run) == pytest.approx(200 * 128 / 512)


def test_log_lines_without_a_training_step_do_not_change_the_training_time(tmp_path: Path) -> None:
    """Geometry and evaluation lines add no training time; a skipped step counts like any other step."""
    folder = write_run(tmp_path)
    others = [{"step": 0, "geometry": {"gap": 0.5}}, {"step": 205, "evaluation": {"cifar10 zeroshot top1": 0.5}}]
    skipped = log_lines(210)[-1] | {"loss": None, "terms": {"clip": None}, "grad_norm": None}
    write_lines(folder / "log.jsonl", [others[0], *log_lines(200), others[1], skipped])
    (run,) = find([tmp_path])
    assert training_seconds(run) == pytest.approx(210 * 128 / 512)
    assert describe(run)["Samples seen"] == "26,880"
    assert last(run, "loss") == log_lines(200)[-1]["loss"]


def test_folders_inside_a_run_and_hidden_folders_are_not_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for inner in (folder / "checkpoints" / "step_00000200", tmp_path / ".hydra"):
        inner.mkdir(parents=True)
        (inner / "config.yaml").write_text("name: inner\n")
    assert [run.path for run in find([tmp_path, folder])] == [folder]


def test_the_folder_of_a_report_beside_runs_is_passed_over(tmp_path: Path) -> None:
    runs, report = tmp_path / "runs", tmp_path / "runs-report"
    folder = write_run(runs)
    report.mkdir()
    (report / "report.md").touch()
    assert [run.path for run in find([runs, report])] == [folder]
    with pytest.raises(UserError, match=r"no run .* at or below .*runs-report"):
        find([report])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", "a: [1"),
        ("config.yaml", "seed: abc\n"),
        ("environment.json", "{"),
        ("timing.json", '{"evaluation_seconds": null}'),
        ("artifacts/retrieval-x.json", '{"kind": "retrieval", "image_to_text": [], "text_to_image": [{"rank": 1}]}'),
        ("artifacts/zeroshot-x.json", '{"kind": "confused", "classnames": ["a"], "cells": [[0, 1, 2]]}'),
        ("results.jsonl", '{"task": "zeroshot"}\n'),
    ],
)
def test_the_error_for_a_corrupt_file_is_one_line_with_its_path(tmp_path: Path, name: str, content: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(UserError) as raised:
        find([tmp_path])
    assert str(folder / name) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_seed_is_that_of_the_config(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0).rename(tmp_path / "demo" / "s5")
    (run,) = find([tmp_path])
    assert run.seed == 0


def test_equal_methods_in_two_folders_have_different_names_in_a_report_which_leaves_out_absolute_folders(
    tmp_path: Path,
) -> None:
    for folder in ("before", "after"):
        write_run(tmp_path / folder, with_artifacts=False)
    assert [shown(group.label) for group in group_runs(find([tmp_path]))] == ["demo (after/demo)", "demo (before/demo)"]


@pytest.mark.parametrize(("folder", "path"), [(".", "vit/s3"), ("vit", "s3"), ("vit/s3", ".")])
def test_results_without_a_config_have_the_name_and_seed_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, path: str
) -> None:
    (tmp_path / "vit" / "s3").mkdir(parents=True)
    (tmp_path / "vit" / "s3" / "results.jsonl").touch()
    monkeypatch.chdir(tmp_path / folder)
    (one,) = find([Path(path)])
    assert (one.name, one.seed) == ("vit", 3)


def test_a_second_evaluation_replaces_the_first(tmp_path: Path) -> None:
    results = [row("zeroshot", "scenes_shape", "top1", value, 0) for value in (0.5, 0.75)]
    write_run(tmp_path, results=results)
    (metric,) = summarise_metrics(group_runs(find([tmp_path])))
    assert (metric.row.value, metric.row.low, metric.seeds) == (0.75, 0.73, 1)


def test_results_of_other_data_under_one_name_have_a_name_of_their_own(tmp_path: Path) -> None:
    """Seed 2 was scored on another file test.csv, and seed 0 on both: they are neither averaged nor overwritten."""
    for seed, sets in enumerate(["ab", "a", "b", "a"]):
        one = run("r", "x", seed, {("retrieval", "test", "recall"): 0.5})
        (row,) = one.results
        rows = [replace(row, value=0.1 * ord(data), hashes={"captions/test": data}) for data in sets]
        write(tmp_path, replace(one, results=rows))
    runs = find([tmp_path])
    usual, other = summarise_metrics(group_runs(runs))
    assert (usual.row.dataset, usual.seeds) == ("test", 3)
    assert other.row.dataset.startswith("test [data ") and other.seeds == 2 and other.row.value == pytest.approx(9.8)
    assert "not averaged" in other_data_note(runs) and str(tmp_path) in other_data_note(runs)


def test_artifacts_of_other_data_under_one_name_have_the_name_of_their_results(tmp_path: Path) -> None:
    for seed, sets in enumerate(["a", "a", "b", "ab"]):
        rows = [row("zeroshot", "x/test", "top1", 0.5, seed, hashes={"labels/test": data}) for data in sets]
        artifacts = write_run(tmp_path, seed=seed, results=rows) / "artifacts"
        (artifacts / "zeroshot-scenes_shape.json").rename(artifacts / "zeroshot-x_test.json")
        (artifacts / "._zeroshot-x_test.json").write_bytes(b"\x00\xff")  # by macOS
    names = [name for one in find([tmp_path]) for name, _ in one.artifacts_of("confused")]
    assert names[:2] == ["x/test", "x/test"] and names[2] == names[3] and names[2].startswith("x/test [data ")


def test_two_sets_that_are_as_frequent_both_have_a_name_of_their_own(tmp_path: Path) -> None:
    one = run("r", "x", 0, {("retrieval", "test", "recall"): 0.5})
    write(tmp_path, replace(one, results=[replace(one.results[0], hashes={"captions/test": data}) for data in "ab"]))
    names = {row.dataset for run in find([tmp_path]) for row in run.results}
    assert len(names) == 2 and all(name.startswith("test [data ") for name in names)


@pytest.mark.parametrize(
    ("values", "half", "source", "standing"),  # each row has the interval value ± 0.02, and a chance of 0.1
    [
        ([0.0], 0.02, "exact binomial", "below chance"),
        ([0.3], 0.02, "bootstrap", "above chance"),
        ([1.0], 0.02, "exact binomial", "above chance"),
        ([0.11, 0.11, 0.11], 0.02, "bootstrap, mean of 3 seeds", "not different"),  # agree on the same few examples
        ([0.7, 0.8, 0.9], 4.302652730 * 0.1 / 3**0.5, "t, 3 seeds", "above chance"),
    ],
)
def test_the_interval_is_students_t_over_three_different_seeds_and_else_their_own(
    values: list[float], half: float, source: str, standing: str, tmp_path: Path
) -> None:
    for at, value in enumerate(values):
        write(tmp_path, run("r", "x", (10, 2, 1)[at], {("retrieval", "test", "recall"): value}))
    runs = find([tmp_path])
    assert [one.seed for one in runs] == [10] if len(values) == 1 else [1, 2, 10], "in the order of numbers"
    (metric,) = summarise_metrics(group_runs(runs))
    expected = (fmean(values), fmean(values) - half, fmean(values) + half)
    assert (metric.row.value, metric.row.low, metric.row.high) == pytest.approx(expected)
    assert (metric.source, metric.standing) == (source, standing)


def test_flops_of_a_pair_depend_on_its_captions_but_not_on_the_batch_and_unknown_towers_have_none(
    tmp_path: Path,
) -> None:
    model = {"image": {"name": "small:conv"}, "text": {"name": "small:bag"}, "embed_dim": 256}
    found = []
    for batch_size, term in ((32, "clip"), (64, "clip"), (64, "negclip")):
        settings: dict[str, Any] = {
            "model": model,
            "objective": {term: {}},
            "train": {"batch_size": batch_size, "epochs": 1},
        }
        one = run(f"{batch_size}_{term}", "", 0, {}, [{"step": 1, "samples": 100}], settings)
        found.append(training_flops(read(write(tmp_path, one))))
    assert found[0] == found[1] > 1e8 and found[2] > found[1]  # negclip has a second caption
    assert training_flops(read(write_run(tmp_path))) == 0
