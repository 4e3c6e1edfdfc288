"""Sections on training, fine-tuning and published models, built from runs."""

import csv
import math
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from cli.settings.compose import compose_run
from evaluation.compare.forgetting import fine_tunings
from evaluation.report.blocks import Details, Figure, Figures, KeyValues, Table, Text
from evaluation.report.figures import drawing
from evaluation.report.sections.forgetting import forgetting
from evaluation.report.sections.results import headline_metrics, nearest_models, results
from evaluation.report.sections.settings import settings
from evaluation.report.sections.tasks import confusions, popularity
from evaluation.report.sections.training import curves, score_curves
from evaluation.report.writer import write_report
from evaluation.runs import reader
from evaluation.runs.groups import group_runs, summarise_metrics
from evaluation.runs.reader import Run, no_config
from evaluation.runs.results import write as write_rows
from tests.helpers import report_runs, synthetic
from tests.helpers.fine_tuning_runs import MIDDLE, all_runs, values
from tests.helpers.published_rows import COCO, IMAGENET
from tests.helpers.report_pages import texts
from tests.helpers.report_runs import write_run

SCORE = "scenes_shape zeroshot top1"


def test_each_score_is_a_figure_with_one_curve_per_run() -> None:
    def run(seed: int, scores: dict[str, float]) -> tuple[str, Run]:
        log: list[dict[str, Any]] = [{"step": step, "evaluation": scores} for step in (1, 2)]
        return "demo", Run(Path("r"), "demo", seed, no_config(), log, [], {}, {})

    scores = {SCORE: 0.5, "scenes_pairs pairs pair_accuracy": math.nan}
    (block,) = score_curves([run(0, scores), run(4, scores)])  # none for the other score, which is always NaN
    assert isinstance(block, Figures)
    (figure,) = block.figures
    assert isinstance(figure, Figure) and figure.name == "evaluation-01-scenes_shape-zeroshot-top1"
    assert sorted(figure.curves.values()) == [("demo", 0), ("demo", 4)]
    assert score_curves([run(0, {})]) == []


def test_the_logged_geometry_is_drawn_against_the_step() -> None:
    log: list[dict[str, Any]] = [{"step": step, "geometry": {"gap": step / 10}} for step in (1, 2)]
    (block,) = curves([("m", Run(Path("r"), "m", 0, no_config(), log, [], {}, {}))])
    assert isinstance(block, Figures)
    (figure,) = block.figures
    assert isinstance(figure, Figure) and figure.name == "gap"
    assert figure.rows == [["m", 0, 1.0, 0.1], ["m", 0, 2.0, 0.2]]


def lost_and_finished() -> list[Run]:
    """Return a diverged seed 0 of ten steps and a finished seed 1 of a hundred."""
    log = [{"step": step, "samples": 64 * step, "images_per_s": 64.0} for step in range(10, 101, 10)]
    lost = synthetic.run("r", "a", 0, {("train", "d", "loss"): math.nan}, log[:1])
    return [lost, synthetic.run("r", "a", 1, {("zeroshot", "x", "top1"): 0.5}, log)]


def test_steps_and_time_are_not_those_of_a_diverged_first_seed() -> None:
    groups = group_runs(lost_and_finished())
    (listed,) = settings(groups)
    assert isinstance(listed, KeyValues)
    shown = dict(listed.pairs)
    assert (shown["Steps"], shown["Samples seen"], shown["Training time"]) == ("100", "6,400", "1 min 40 s")


def test_a_diverged_seed_is_named_and_its_missing_loss_is_no_metric() -> None:
    groups = group_runs(lost_and_finished())
    metrics = summarise_metrics(groups)
    assert [metric.row.task for metric in metrics] == ["zeroshot"]
    first, *_ = results(headline_metrics(metrics), groups, {})
    assert isinstance(first, Text) and first.text == "Diverged: r-a (seed 0)."
    assert results([], group_runs(lost_and_finished()[:1]), {}) == [first]


def test_confusions_are_summed_over_seeds() -> None:
    cells = {0: [[0, 1, 2]], 1: [[0, 0, 2], [0, 1, 1], [2, 1, 1]]}
    confused = {"kind": "confused", "classnames": ["a", "b", "c"]}
    runs = [
        replace(synthetic.run("r", arm, seed, {}), artifacts={"zeroshot-x": {**confused, "cells": found}})
        for arm in ("a", "b")
        for seed, found in cells.items()
    ]
    first, second = confusions(group_runs(runs))
    assert isinstance(first, Details) and isinstance(second, Details)
    assert (first.summary, second.summary) == ("x · a · sum of 2 seeds", "x · b · sum of 2 seeds")
    (table,) = first.blocks
    assert isinstance(table, Table) and first.blocks == second.blocks
    assert [[cell.text for cell in row] for row in table.rows] == [["a", "b", "3", "60.0%"], ["c", "b", "1", "100.0%"]]


def test_a_quantile_that_the_log_does_not_tell_is_left_out() -> None:
    """The log has null for nan and infinity."""
    log: list[dict[str, Any]] = [
        {"step": step, "columns": {"nuclr_zeta_text": [0.0, low, 0.1, 0.2, 0.3, 0.4, 0.5]}}
        for step, low in ((1, -0.1), (2, None))
    ]
    (block,) = popularity(group_runs([synthetic.run("r", "a", 0, {}, log)]))
    assert isinstance(block, Figures) and isinstance(block.figures[0], Figure)
    assert [row[2:] for row in block.figures[0].rows if row[0] == "5%"] == [[1.0, -0.1]]


def test_without_a_result_of_a_main_metric_the_first_metric_is_shown() -> None:
    values = {("retrieval", "coco", f"{way}_recall@5"): math.nan for way in ("image_to_text", "text_to_image")}
    groups = group_runs([synthetic.run("r", "a", 0, values)])
    table, *_ = results(headline_metrics(summarise_metrics(groups)), groups, {})
    assert isinstance(table, Table)
    ((name, value, interval, *_),) = table.rows
    assert (name.text, value.text, interval.text) == ("retrieval image_to_text_recall@5", "-", "-")


def fine_tuned(root: Path) -> list[Run]:
    for one in all_runs(3):
        folder = synthetic.write(root, one)
        if one.config.arm == "clip":
            rows = [synthetic.result(*key, value, one.seed) for key, value in values(MIDDLE, one.seed).items()]
            write_rows(folder / "interpolated/0.5/results.jsonl", rows)
    return reader.find([root])


def test_fine_tuning_has_the_plane_the_changes_and_a_row_per_arm(tmp_path: Path) -> None:
    groups = group_runs(fine_tuned(tmp_path / "runs"))
    explanation, drawn, table, _, by_set = forgetting(groups)
    assert isinstance(explanation, Text) and "Area: " in explanation.text
    assert isinstance(table, Table)
    assert table.columns == ["Method", "Gain", "Forgetting", "Gain − forgetting", "Area", "Seeds"]
    clip, frozen = table.rows
    assert [cell.text for cell in (frozen[0], frozen[4], frozen[5])] == ["frozen", "-", "3"]
    assert clip[0].text == "clip" and clip[2].text == "+0.250" and clip[4].text.startswith("+0.1")
    assert clip[1].tone == "good" and clip[1].note.startswith("[+0.")
    assert isinstance(drawn, Figures)
    (plane,) = drawn.figures
    assert isinstance(plane, Figure) and plane.name == "forgetting-finetune_mini"
    assert isinstance(by_set, Table)
    assert [row[0].text.partition(":")[0] for row in by_set.rows] == ["new", "new", "new", "kept", "kept"]
    assert [cell.text for cell in by_set.rows[0]] == ["new: retrieval new_captions", "+0.470", "+0.0700"]
    assert [*plane.colours] == ["clip", "frozen"] and {*plane.columns[1::3]} <= {*texts(plane)}
    (arm, *_) = fine_tunings(groups)[0].arms
    gain, (lost, gained) = arm.mean(lambda change: change.gain), arm.path()[1]  # at alpha = 1 and 0.5
    end = ["clip", pytest.approx(0.25), "", "", gain.value, *gain.span]  # all seeds forget alike: no interval
    assert plane.rows[:2] == [end, ["clip", lost, "", "", gained, "", ""]]
    assert forgetting(group_runs([synthetic.run("gap_mini", "base", 0, values(MIDDLE, 0))])) == []


def published_run(root: Path, recipe: str, arm: str, changes: dict[str, Any] | None = None) -> Path:
    """Write a run with the recipe's config, invented results on ImageNet and COCO, and one without counterpart."""
    rows = [vars(replace(row, **(changes or {}))) for row in (IMAGENET, COCO)]
    rows.append(report_runs.row("zeroshot", "scenes_shape", "top1", 0.9, 0))
    folder = write_run(root, recipe, results=rows, with_artifacts=False)
    config = compose_run([f"recipe={recipe}", f"arm={arm}", "data.root=/none"])
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))
    return folder


def test_rn50_cc12m_is_shown_beside_the_runs_on_cc12m_without_a_download(
    no_curves: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_run(tmp_path / "runs", "wpse_cc12m", "imq")

    def no_network(*arguments: object, **settings: object) -> None:
        raise AssertionError(f"the report opens a connection: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    written = write_report([tmp_path / "runs"], tmp_path / "out")
    page, text = written.html.read_text(), written.markdown.read_text()
    for shown in ("35.91", "RN50/cc12m, ours +4.09", "23.67", "RN50/cc12m, ours +16.33", "commit 89fb801"):
        assert shown in page and shown in text, shown
    rows = {row["dataset"]: row for row in csv.DictReader(written.csv.read_text().splitlines())}
    assert (rows["imagenet"]["published_model"], rows["imagenet"]["published"]) == ("RN50/cc12m", "0.3591")
    assert float(rows["mscoco"]["published_difference"]) == pytest.approx(0.4 - 0.2367)
    assert rows["scenes_shape"]["published_model"] == ""


def first_table(root: Path) -> Table:
    """Return the first table of the section "Results"."""
    runs = reader.find([root])
    groups = group_runs(runs)
    table, *_ = results(headline_metrics(summarise_metrics(groups)), groups, nearest_models(runs))
    assert isinstance(table, Table)
    return table


def test_a_result_of_another_protocol_is_named_and_not_compared(tmp_path: Path) -> None:
    published_run(tmp_path, "nuclr_cc12m", "nuclr", {"split": "test, paper protocol"})
    shown = [f"{cell.text} {cell.note}" for row in first_table(tmp_path).rows for cell in row]
    assert any("protocol=paper; published: exact recall" in text for text in shown)
    assert not any("23.67" in text for text in shown)


def test_in_a_table_of_many_methods_published_models_are_rows(tmp_path: Path) -> None:
    for number, recipe in enumerate(["wpse_cc12m", "nuclr_cc12m"] * 3):
        published_run(tmp_path / str(number), recipe, "clip")
    (published,) = [row for row in first_table(tmp_path).rows if row[0].note == "published"]
    assert {"RN50/cc12m", "35.91", "23.67"} <= {cell.text for cell in published}


def of_cc3m(arm: str, batch_size: int = 512) -> Run:
    """Return a run of nuclr_cc3m that logged its zeta and scores after the first and the last of 30 epochs."""
    zeta = [-0.05, -0.05, -0.05, -0.04, -0.03, 0.1, 0.2]
    scores = {"cifar100 zeroshot top1": 0.3, "mscoco retrieval image_to_text_recall@1": 0.4, "dtd zeroshot top1": 0.2}
    columns = {"nuclr_zeta_image": zeta, "nuclr_zeta_text": zeta} if arm == "nuclr" else {}
    log: list[dict[str, Any]] = [
        {"step": step, "loss": 1.0, "columns": columns, "evaluation": scores} for step in (5_318, 159_540)
    ]
    train = {"batch_size": batch_size, "epochs": 30}
    one = synthetic.run("nuclr_cc3m", arm, 0, {}, log, {"data": {"name": "cc3m"}, "train": train})
    return replace(one, environment={"data": "2723200:digest"})


def points(block: Any, figure: str) -> dict[str, dict[float, float]]:
    """Return curve -> x -> y of the figure whose name contains `figure`."""
    (found,) = [one for one in block.figures if figure in one.name]
    curves: dict[str, dict[float, float]] = {}
    for curve, _, x, y in found.rows:
        curves.setdefault(curve, {})[x] = y
    return curves


def test_a_run_of_paper_3_has_the_authors_public_log_beside_its_zeta_and_scores() -> None:
    """Epoch 30 of the log is at our last step: 30 times 2,723,200 // 512 steps."""
    (zeta,) = popularity(group_runs([of_cc3m("nuclr")]))
    assert isinstance(zeta, Figures)
    image, text = points(zeta, "zeta_image"), points(zeta, "zeta_text")
    assert image.keys() == {"5%", "median", "95%"} | {f"public: nuclr {of}" for of in ("mean", "smallest", "largest")}
    assert image["public: nuclr mean"][159_540] == -0.044052 and text["public: nuclr largest"][159_540] == 0.192827
    assert image["public: nuclr mean"][5_318] == -0.05
    (figure, _) = zeta.figures
    assert isinstance(figure, Figure)
    assert (
        figure.caption.count("dashed: public log of bokun-wang/NUCLR") == 1
        and figure.body.count("stroke-dasharray") > 3
    )
    (scores,) = score_curves([("nuclr", of_cc3m("nuclr")), ("sogclr", of_cc3m("sogclr"))])
    cifar, coco = points(scores, "cifar100"), points(scores, "mscoco")
    assert (cifar["public: nuclr"][159_540], cifar["public: sogclr"][159_540]) == (36.81, 33.12)
    assert coco["public: nuclr both ways"][159_540] == 29.57
    assert points(scores, "dtd").keys() == {"nuclr", "sogclr"}


def test_public_curves_are_dashed_and_have_the_colour_of_their_arm_beside_any_number_of_arms() -> None:
    labels = [*map(str, range(7)), "nuclr", "public: nuclr", "public: sogclr"]
    with drawing("x", 300, 200, labels) as (plot, _):
        assert plot.colours["public: nuclr"] == plot.colours["nuclr"]
        assert plot.style("public: nuclr") == plot.style("public: sogclr") != plot.style("nuclr")


def test_other_runs_have_no_public_log() -> None:
    others = [of_cc3m("gcl"), of_cc3m("nuclr", batch_size=1024), synthetic.changed(of_cc3m("nuclr"), recipe="mine")]
    for run in [*others, synthetic.changed(of_cc3m("nuclr"), data={"name": "cc12m"})]:
        for block in [*popularity(group_runs([run])), *score_curves([("x", run)])]:
            assert isinstance(block, Figures)
            for figure in block.figures:
                assert isinstance(figure, Figure) and "dashed" not in figure.caption
                assert not [row for row in figure.rows if "public" in str(row[0])]
