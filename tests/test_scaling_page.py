"""docs/scaling.md: the results follow from the inputs, the inputs equal the recipe's, and the settings exist."""

import math
import re
from pathlib import Path

import pytest

from cli.reproduce.plan import COSTS
from cli.settings.compose import compose_run
from clipx.config.presets import PAIRS
from clipx.config.schema import RunConfig
from clipx.config.setting import settings_of

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
TEXT = PAGE.read_text()
INPUTS = {name: float(value) for name, value in re.findall(r"^\| (\w+) \| ([\d.e]+) \|", TEXT, re.MULTILINE)}
ROWS = re.findall(r"^\| (1|8|64) \|( [\d.,]+ \|.*)\|$", TEXT, re.MULTILINE)


def costs(i: dict[str, float], N: int) -> dict[str, float]:
    """The page's formulas."""
    M = max(1, N // int(i["G"]))
    S = i["n"] // i["B"] * i["epochs"]
    r = 4 / 3 if i["a"] * i["B"] / N > i["m"] else 1
    g = 3 * i["B"] * i["E"] * 4 * (N - 1) / N
    k = min(N, i["G"])
    t1 = i["F"] * r / (N * i["P"] * i["u"])
    t2 = 8 * i["B"] ** 2 * i["E"] / (N * i["P32"] * i["u32"])
    t3 = (2 * (k - 1) / k * 4 * i["p"] + g) / i["b_in"] if N > 1 else 0.0
    t4 = (2 * (M - 1) / M * 4 * i["p"] + g) / i["b_out"] if M > 1 else 0.0
    t = t1 + t2 + t3 + t4
    moved = 2 * (k - 1) / k * 4 * i["p"] + g
    return {
        "t_1": t1 * 1e3,
        "t_2": t2 * 1e3,
        "t_3": t3 * 1e3,
        "t_4": t4 * 1e3,
        "t": t * 1e3,
        "GB moved": moved / 1e9,
        "images/s": i["B"] / t,
        "days": S * t / 86400,
        "GPU-hours": N * S * t / 3600,
    }


def rounded(value: float) -> str:
    """Three digits, or whole numbers above a hundred."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@pytest.mark.parametrize(("number", "cells"), ROWS, ids=[row[0] for row in ROWS])
def test_the_costs_follow_from_the_inputs(number: str, cells: str) -> None:
    expected = [rounded(value) for value in costs(INPUTS, int(number)).values()]
    assert [cell.strip() for cell in cells.split("|")] == expected


def test_all_rows_exist_and_the_numbers_in_the_text_agree() -> None:
    assert [row[0] for row in ROWS] == ["1", "8", "64"]
    i = INPUTS
    assert f"epochs = {i['n'] // i['B'] * i['epochs']:,.0f}." in TEXT
    assert f"12 p bytes = {12 * i['p'] / 1e9:.2f} GB" in TEXT
    assert f"per column: 3 for SogCLR ({12 * i['n'] / 1e9:.2f} GB), 5 for NUCLR ({20 * i['n'] / 1e9:.2f} GB)" in TEXT
    assert math.isclose(i["a"], 34 * 12 * (197 * 768 + 77 * 512), rel_tol=1e-2)


def test_dry_runs_assume_the_pairs_and_the_chip_of_the_page() -> None:
    assert f"assumes {PAIRS['cc12m']:,} pairs (paper 3) and an {COSTS['chip']}," in TEXT


def test_the_inputs_are_those_of_the_recipe() -> None:
    from clipx.models import clip
    from clipx.training.flops import step_flops

    imq, plain = (compose_run(["recipe=wpse_cc12m", f"arm={arm}", "data.root=x"]) for arm in ("imq", "clip"))
    flops = step_flops(imq)
    assert INPUTS["F"] == pytest.approx(flops, rel=1e-3)
    assert (INPUTS["B"], INPUTS["epochs"]) == (imq.train.batch_size, imq.train.epochs)
    assert INPUTS["E"] == 512 + imq.model.points.features_train
    assert f"a WPSE step is {flops / step_flops(plain):.3f} of a CLIP step" in TEXT
    import torch

    with torch.device("meta"):
        assert INPUTS["p"] == sum(p.numel() for p in clip.build_model(imq, pretrained=False).parameters())


def test_settings_of_the_page_exist() -> None:
    keys = set(re.findall(r"`((?:train|data|log|launch)\.\w+)", TEXT))
    assert len(keys) >= 12
    assert keys <= settings_of(RunConfig).keys()
