"""Figures of numbers that a logarithmic axis cannot show."""

from pathlib import Path

import numpy as np

from clipx.theory.experiment import Curve, Panel, write_figure


def test_panels_without_positive_numbers_are_drawn(tmp_path: Path) -> None:
    drawn = [
        Panel("x", "y", [Curve(f"at {y}", np.array([1.0, 10.0]), np.array([y, y]))], log="xy")
        for y in (-1.0, 0.0, np.nan)
    ]
    write_figure(drawn, tmp_path / "figure.svg")
    for name in ("at -1.0", "at 0.0", "at nan"):
        assert name in (tmp_path / "figure.svg").read_text()
