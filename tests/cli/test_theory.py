"""`clipx theory` writes claims and figures, and refuses wrong settings in one line."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from cli.theory import theory
from clipx.theory import THEORY
from evaluation.claims.table import CLAIMS

FAST = {
    "margin": ["equal_steps=200", "more_steps=100", "K=3"],
    "robust_g": ["sweep=2", "starts=2"],
    "true_negatives": ["p2_grid=5", "theta0_grid=3"],
    "popularity": ["n=50,100", "seeds=2"],
    "gap_flow": ["draws=2", "growth_n=16"],
    "pmi": ["N=6", "iterations=50", "starts=1", "d=2,3", "M=1,2"],
}


@pytest.mark.parametrize("name", THEORY)
def test_claims_and_figures_are_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels of all problems are drawn; to save them takes longer than to solve, so only one problem's are saved."""
    if name != "popularity":
        monkeypatch.setattr(Figure, "savefig", lambda figure, path, metadata: path.write_text("<svg></svg>"))
    theory([name, *FAST[name], f"out={tmp_path}"])
    rows = json.loads((tmp_path / "claims.json").read_text())
    assert rows
    for row in rows:
        assert set(row) == {"claim", "statement", "measured", "expected", "verdict", "settings"}
        assert row["measured"].keys() == row["expected"].keys() != set()
        assert row["claim"] in {claim.id for claim in CLAIMS}
        assert row["settings"] == dict(given.split("=") for given in FAST[name])
    figures = list(tmp_path.glob("*.svg"))
    assert figures
    assert all("</svg>" in figure.read_text() for figure in figures)
    assert str(tmp_path / "claims.json") in capsys.readouterr().out.replace("\n", "")


def test_claims_name_only_theory_commands_that_exist() -> None:
    programs = {claim.program for claim in CLAIMS if claim.program.startswith("clipx theory")}
    assert programs <= {f"clipx theory {name}" for name in THEORY}


@pytest.mark.long
@pytest.mark.parametrize("name", THEORY)
def test_with_its_default_settings_every_claim_holds_but_theorem_a_1(name: str, tmp_path: Path) -> None:
    theory([name, f"out={tmp_path}"])
    rows = json.loads((tmp_path / "claims.json").read_text())
    assert {row["claim"] for row in rows if row["verdict"] != "holds"} == ({"1.16"} if name == "margin" else set())
