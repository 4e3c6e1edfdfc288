"""Figures: content, colours, special characters, many points."""

import re
from itertools import combinations

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pytest

from clipx.utils.figures import COLOURS
from evaluation.report.figures.plots import (
    MAX_CLASS_LABELS,
    MAX_POINTS,
    Bars,
    Line,
    bar_chart,
    confusion_matrix,
    line_plot,
)
from evaluation.report.figures.svg import slug
from tests.helpers.report_pages import texts

# protanopia, deuteranopia, tritanopia in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
COLOUR_BLIND = (
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
PAGES = ("#ffffff", "#1b1f25")  # --card of report.css, light and dark
Vector = npt.NDArray[np.float64]


def linear(colour: str) -> Vector:
    shares = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    high, low = sorted((float(np.dot(TO_XYZ[1], linear(colour))) for colour in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Vector) -> Vector:
    x, y, z = np.cbrt(np.array(TO_XYZ) @ np.clip(rgb, 0, 1) / (0.95047, 1, 1.08883))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("page", PAGES)
def test_every_colour_has_contrast_on_the_light_and_on_the_dark_page(page: str) -> None:
    assert min(contrast(colour, page) for colour in COLOURS) >= 3  # WCAG 1.4.11


@pytest.mark.parametrize("matrix", [np.eye(3), *map(np.array, COLOUR_BLIND)])
def test_no_two_colours_look_alike_to_colour_blind_readers(matrix: Vector) -> None:
    seen = [lab(matrix @ linear(colour)) for colour in COLOURS]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 18  # CIE 1976


def test_a_figure_has_its_numbers_and_a_pdf_without_type_3_fonts() -> None:
    lines = [Line("a", [1, 2], [3, 4], seed=5), Line("b", [1], [0.5], spread=[(0, 1)])]
    figure = line_plot("a", "", lines, "step", "loss")
    assert figure.data.columns == ["curve", "seed", "step", "loss", "low", "high"]
    assert figure.data.rows == [["a", 5, 1, 3], ["a", 5, 2, 4], ["b", "", 1, 0.5, 0, 1]]
    assert figure.pdf.startswith(b"%PDF") and b"/Type3" not in figure.pdf and b"/FontFile2" in figure.pdf


def test_labels_after_the_eighth_differ_in_dashes() -> None:
    figure = line_plot("a", "", [Line(f"m{n}", [1, 2], [n, n]) for n in range(16)], "x", "y")
    drawn = re.findall(r'data-label="m(\d+)".*?<path [^>]*style="([^"]*)"', figure.body, re.DOTALL)
    styles = {label: tuple(re.findall(r"stroke(?:-dasharray)?: ([^;]*)", style)) for label, style in drawn}
    assert len(styles) == 16 and len(set(styles.values())) == 16


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


def test_long_names_that_differ_at_their_end_give_different_files() -> None:
    a, b = (slug(f"wpse_mini-gaussian-model.points.features_eval_512-optimizer.lr_{rate}") for rate in ("1e-3", "2e-3"))
    assert a != b and len(a) == len(b) == 60


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
