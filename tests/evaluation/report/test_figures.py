"""The figures: what is drawn, and that neither names nor sizes break them."""

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from evaluation.report.blocks import Figure
from evaluation.report.figures.plots import MAX_NAMED, MAX_POINTS, Bars, Line, bars, confusion, curves


def texts(figure: Figure) -> list[str]:
    svg = ElementTree.fromstring(f"<svg>{figure.body}</svg>")
    return ["".join(element.itertext()) for element in svg.iter("text")]


def test_line_colours_and_text_follow_the_page() -> None:
    figure = curves("a", "", [Line("a", [1, 2], [1, 2])], "step", "loss")
    assert "currentColor" in figure.body
    assert "#000" not in figure.body
    assert "black" not in figure.body


@pytest.mark.parametrize(("last", "expected"), [(1.2, False), (80.0, True)])
def test_axis_is_logarithmic_only_where_values_span(last: float, expected: bool) -> None:
    shown = texts(curves("a", "", [Line("a", [1, 2, 3], [1, 1.1, last])], "step", "loss"))
    assert ({"1", "10"} <= set(shown)) == expected


def test_long_logs_are_averaged_down() -> None:
    few, many = (
        curves("a", "", [Line("a", [float(i) for i in range(n)], [float(i % 7) for i in range(n)])], "x", "y")
        for n in (MAX_POINTS, 100 * MAX_POINTS)
    )
    assert len(many.body) < 1.5 * len(few.body)


def test_names_are_written_as_they_are() -> None:
    names = ["$x^2$", "<b>", "狐", "_private"]
    shown = texts(confusion("c", "", names, [[1, 0, 0, 0]] * 4))
    assert set(names) <= set(shown)
    legend = texts(curves("l", "", [Line(name, [1, 2], [1, 2]) for name in names], "x", "y"))
    assert {"$x^2$", "<b>", "狐", "private"} <= set(legend)


def test_cells_are_shares_of_the_true_class() -> None:
    shown = texts(confusion("c", "", ["a", "b"], [[3, 1], [0, 0]]))
    assert sorted(text for text in shown if text.isdigit()) == ["25", "75"]


def test_many_classes_are_not_labelled() -> None:
    names = [f"name{i}" for i in range(MAX_NAMED + 1)]
    shown = texts(confusion("c", "", names, [[1] * len(names)] * len(names)))
    assert not set(names) & set(shown)


def test_bars_have_whiskers_and_a_chance_line() -> None:
    group = Bars("a", [0.5, float("nan")], [0.4, float("nan")], [0.6, float("nan")])
    assert "chance" in texts(bars("b", "", ["one", "two"], [group], 0.25))
    without = bars("b", "", ["one", "two"], [group], None)
    assert "chance" not in texts(without)
    assert "nan" not in re.sub(r"<text.*?</text>", "", without.body)


def test_settings_of_the_process_are_left_alone() -> None:
    before = dict(mpl.rcParams)
    curves("a", "", [Line("a", [1, 2], [1, 2])], "x", "y")
    assert dict(mpl.rcParams) == before
