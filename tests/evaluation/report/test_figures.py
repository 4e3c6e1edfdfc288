"""Figures: content, and robustness to long names, special characters and many points."""

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from evaluation.report.blocks import Figure
from evaluation.report.figures.plots import (
    MAX_CLASS_LABELS,
    MAX_POINTS,
    Bars,
    Line,
    bar_chart,
    confusion_matrix,
    line_plot,
)


def texts(figure: Figure) -> list[str]:
    svg = ElementTree.fromstring(f"<svg>{figure.body}</svg>")
    return ["".join(element.itertext()) for element in svg.iter("text")]


def test_lines_and_text_have_the_pages_colour() -> None:
    figure = line_plot("a", "", [Line("a", [1, 2], [1, 2])], "step", "loss")
    assert "currentColor" in figure.body
    assert "#000" not in figure.body
    assert "black" not in figure.body


@pytest.mark.parametrize(("last", "logarithmic"), [(1.2, False), (80.0, True)])
def test_the_y_axis_is_logarithmic_only_for_a_wide_range(last: float, logarithmic: bool) -> None:
    labels = texts(line_plot("a", "", [Line("a", [1, 2, 3], [1, 1.1, last])], "step", "loss"))
    assert ({"1", "10"} <= set(labels)) == logarithmic


def test_long_logs_are_averaged_down() -> None:
    few, many = (
        line_plot("a", "", [Line("a", [float(i) for i in range(n)], [float(i % 7) for i in range(n)])], "x", "y")
        for n in (MAX_POINTS, 100 * MAX_POINTS)
    )
    assert len(many.body) < 1.5 * len(few.body)


def test_special_characters_in_names_are_kept() -> None:
    names = ["$x^2$", "<b>", "狐", "_private"]
    labels = texts(confusion_matrix("c", "", names, [[1, 0, 0, 0]] * 4))
    assert set(names) <= set(labels)
    legend = texts(line_plot("l", "", [Line(name, [1, 2], [1, 2]) for name in names], "x", "y"))
    assert {"$x^2$", "<b>", "狐", "private"} <= set(legend)


def test_cells_are_shares_of_the_true_class() -> None:
    labels = texts(confusion_matrix("c", "", ["a", "b"], [[3, 1], [0, 0]]))
    assert sorted(label for label in labels if label.isdigit()) == ["25", "75"]


def test_many_classes_have_no_labels() -> None:
    names = [f"name{i}" for i in range(MAX_CLASS_LABELS + 1)]
    labels = texts(confusion_matrix("c", "", names, [[1] * len(names)] * len(names)))
    assert not set(names) & set(labels)


def test_bars_have_intervals_and_a_chance_line() -> None:
    bars = Bars("a", [0.5, float("nan")], [0.4, float("nan")], [0.6, float("nan")])
    assert "chance" in texts(bar_chart("b", "", ["one", "two"], [bars], 0.25))
    without = bar_chart("b", "", ["one", "two"], [bars], None)
    assert "chance" not in texts(without)
    assert "nan" not in re.sub(r"<text.*?</text>", "", without.body)


def test_matplotlibs_options_are_restored() -> None:
    before = dict(mpl.rcParams)
    line_plot("a", "", [Line("a", [1, 2], [1, 2])], "x", "y")
    assert dict(mpl.rcParams) == before
