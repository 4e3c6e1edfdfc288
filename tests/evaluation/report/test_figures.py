"""Figures: content, colours, special characters, many points."""

from collections import Counter
from itertools import combinations

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pytest

from clipx.utils.figures import COLOURS
from evaluation.report.figures import MAX_POINTS, Line, line_plot, slug
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


def test_a_figure_has_its_numbers_the_pages_colour_and_a_pdf_with_one_font_not_of_type_3(pdf: None) -> None:
    before = dict(mpl.rcParams)
    lines = [Line("a", [1, 2], [3, 4], seed=5), Line("fit of τ", [1], [0.5], spread=[(0, 1)])]
    figure = line_plot("a", "", lines, "step", "loss")
    assert figure.columns == ["curve", "seed", "step", "loss", "low", "high"]
    assert figure.rows == [["a", 5, 1, 3, "", ""], ["a", 5, 2, 4, "", ""], ["fit of τ", "", 1, 0.5, 0, 1]]
    assert figure.pdf == line_plot("a", "", lines, "step", "loss").pdf, "the same numbers give the same bytes"
    assert figure.pdf.startswith(b"%PDF") and b"/Type3" not in figure.pdf and figure.pdf.count(b"/FontFile2") == 1
    assert "currentColor" in figure.body and "#000" not in figure.body and "black" not in figure.body
    assert dict(mpl.rcParams) == before, "matplotlib's options are restored"


def test_curves_name_the_elements_of_each_label_and_seed() -> None:
    lines = [Line("a", [1, 2], [3, 4], seed=5), Line("a", [1, 2], [2, 3], seed=6), Line("b", [1], [1])]
    figure = line_plot("one", "", lines, "step", "loss")
    assert sorted(Counter(figure.curves.values()).items(), key=str) == [(("a", 5), 1), (("a", 6), 1), (("b", None), 1)]
    assert all(f'<g id="{name}">' in figure.body for name in figure.curves)
    assert dict(zip("ab", COLOURS, strict=False)) == figure.colours


def test_long_logs_are_averaged_down() -> None:
    few, many = (
        line_plot("a", "", [Line("a", [float(i) for i in range(n)], [float(i % 7) for i in range(n)])], "x", "y")
        for n in (MAX_POINTS, 100 * MAX_POINTS)
    )
    assert len(many.body) < 1.5 * len(few.body)


def test_special_characters_in_names_are_kept() -> None:
    names = ["$x^2$", "<b>", "狐", "_private"]
    legend = texts(line_plot("l", "", [Line(name, [1, 2], [1, 2]) for name in names], "x", "y"))
    assert {"$x^2$", "<b>", "狐", "private"} <= set(legend)


def test_long_names_that_differ_at_their_end_give_different_files() -> None:
    a, b = (slug(f"wpse_mini-gaussian-model.points.features_eval_512-optimizer.lr_{rate}") for rate in ("1e-3", "2e-3"))
    assert a != b and len(a) == len(b) == 60
    assert slug("demo (写真/runs)") != slug("demo (絵/runs)"), "nor do names in other scripts"
