"""Settings from the command line: conversion and ranges; figures of numbers that a logarithmic axis cannot show."""

from pathlib import Path

import numpy as np
import pytest

from clipx.config.setting import parse
from clipx.errors import UserError
from clipx.theory.experiment import Curve, Panel, write_figure
from clipx.theory.paper1 import MarginSettings
from clipx.theory.paper3 import PopularitySettings
from clipx.theory.paper5 import PmiSettings


@pytest.mark.parametrize(
    ("schema", "setting"),
    [
        (MarginSettings, "xi=2"),
        (PopularitySettings, "tau=0"),
        (PopularitySettings, "n=100,1"),
        (PopularitySettings, "n=50"),
        (PopularitySettings, "n=50,50"),
        (PmiSettings, "alpha=-1,0.5"),
        (PmiSettings, "alpha=0.5"),
        (PmiSettings, "alpha=0,0"),
        (PmiSettings, "spread=1000"),  # some probabilities would be 0
    ],
)
def test_a_setting_out_of_its_range_is_reported(schema: type, setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(UserError, match=f"^{setting} is out of range; allowed: "):
        parse(schema, {key: value}, "theory")


def test_panels_without_positive_numbers_are_drawn(tmp_path: Path) -> None:
    drawn = [
        Panel("x", "y", [Curve(f"at {y}", np.array([1.0, 10.0]), np.array([y, y]))], log="xy")
        for y in (-1.0, 0.0, np.nan)
    ]
    write_figure(drawn, tmp_path / "figure.svg")
    for name in ("at -1.0", "at 0.0", "at nan"):
        assert name in (tmp_path / "figure.svg").read_text()
