"""The section on gain and forgetting: a point, intervals and a table row per arm; curves of interpolated weights."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from evaluation.report.blocks import Figure, Figures, Table, Text
from evaluation.report.figures.effects import PlanePoint, plane
from evaluation.report.sections.forgetting import forgetting
from evaluation.report.writer import write_report
from evaluation.runs import reader
from evaluation.runs.groups import group_runs
from tests.helpers.fine_tuning_runs import MIDDLE, all_runs, values
from tests.helpers.report_pages import texts
from tests.helpers.synthetic import result, run, write


def with_curves(root: Path) -> Path:
    for one in all_runs(3):
        below = write(root, one) / "interpolated" / "0.5"
        if one.config.arm == "clip":
            below.mkdir(parents=True)
            rows = [result(*key, value, one.seed) for key, value in values(MIDDLE, one.seed).items()]
            (below / "results.jsonl").write_text("".join(json.dumps(vars(row)) + "\n" for row in rows))
    return root


def test_the_report_has_the_plane_the_changes_and_a_row_per_arm(tmp_path: Path) -> None:
    root = with_curves(tmp_path / "runs")
    written = write_report([root], tmp_path / "out")
    assert "<h2>Gain and forgetting</h2>" in written.html.read_text()
    names = {path.name for path in written.figures}
    assert {"forgetting-finetune_mini.svg", "changes-finetune_mini.svg"} <= names
    explanation, figures, table = forgetting(group_runs(reader.find([root])))
    assert isinstance(explanation, Text) and "Area: " in explanation.text
    assert isinstance(table, Table)
    assert table.columns == ["Method", "Gain", "Forgetting", "Gain − forgetting", "Area", "Seeds"]
    clip, frozen = table.rows
    assert [cell.text for cell in (frozen[0], frozen[4], frozen[5])] == ["frozen", "-", "3"]
    assert clip[0].text == "clip" and clip[2].text == "+0.250" and clip[4].text.startswith("+0.1")
    assert clip[1].tone == "good" and clip[1].note.startswith("[+0.")
    assert isinstance(figures, Figures)
    drawn, _ = figures.figures
    assert isinstance(drawn, Figure)
    points = [row for row in drawn.data.rows if row[0] == "clip"]
    assert len(points) == 2 and points[0][1] == pytest.approx(0.25), "the end of fine-tuning, then alpha = 0.5"


def test_a_report_on_other_runs_has_no_such_section() -> None:
    assert forgetting(group_runs([run("gap_mini", "base", seed, values(MIDDLE, 0)) for seed in range(3)])) == []


def test_the_plane_shows_each_point_its_intervals_and_its_path() -> None:
    points = [
        PlanePoint("a", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), [(0.0, 0.0), (0.05, 0.4), (0.2, 0.5)]),
        PlanePoint("b", (0.0, 0.0, 0.0), (0.1, 0.1, 0.1), []),
    ]
    figure = plane("p", "caption", points, "loss", "gain")
    ElementTree.fromstring(f"<svg xmlns:xlink='x'>{figure.body}</svg>")
    assert list(figure.curves) == ["a", "b"] and {"loss", "gain"} <= set(texts(figure))
    assert figure.data.rows == [
        ["a", 0.2, 0.1, 0.3, 0.5, 0.4, 0.6],
        ["a", 0.05, "", "", 0.4, "", ""],
        ["b", 0.0, 0.0, 0.0, 0.1, 0.1, 0.1],
    ]


def test_a_label_that_would_cover_others_is_left_out() -> None:
    close = [PlanePoint(f"method {k}", (0.2 + k / 1e4,) * 3, (0.5,) * 3, []) for k in range(12)]
    apart = PlanePoint("apart", (0.0,) * 3, (0.1,) * 3, [])
    labels = texts(plane("p", "caption", [*close, apart], "loss", "gain"))
    in_plot = {name: labels.count(name) - 1 for name in labels if labels.count(name) > 1}  # the legend has each once
    assert in_plot["apart"] == 1 and 1 < len(in_plot) < len(close)
