"""The Python API: tables of several calls in one process, figures, and errors in one line."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from matplotlib.figure import Figure

from clipx import api
from clipx.errors import Fault, UserError
from tests.helpers.commands import tiny


@pytest.fixture
def short(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Work in an empty folder; return the overrides of a run of two steps, without recipe=demo."""
    monkeypatch.chdir(tmp_path)
    other = shutil.copytree(shards / "train", tmp_path / "shards" / "test")  # training pairs count in no score
    return [*tiny(shards)[1:], f"data.evaluation=[captions:{other}]"]


def test_several_calls_in_one_process_give_tables_and_a_figure(short: list[str]) -> None:
    arguments = [*sys.argv]
    cold = api.train("demo", seeds=2, overrides=short)
    hot = api.train("demo", seeds=[0, 1], overrides=[*short, "temperature.tau=0.5"])
    evaluated = api.evaluate([cold, hot], ["pools=[4]", "workers=0"])
    assert list(evaluated.table["seed"]) == [0, 1] * 2 and set(evaluated.table["step"]) == {2}
    assert set(cold.log["step"]) == {2} and "terms.clip" in cold.log
    assert len(evaluated.results) > len(cold.results) > 0

    assert api.read("runs").results.equals(evaluated.results)

    found = api.compare([cold, "runs"], reference="clip temperature.tau=0.07")
    table = found.table.set_index("method")
    assert set(table.index) == {"clip temperature.tau=0.07", "clip temperature.tau=0.5"}
    scores = [runs.table["retrieval (%)"].mean() for runs in (cold, hot)]
    assert table.loc["clip temperature.tau=0.5", "difference"] == pytest.approx(scores[1] - scores[0])
    assert any("Chance is" in note for note in found.notes) and "difference" in found._repr_html_()
    same = api.compare("runs", on="shards/test", reference="clip temperature.tau=0.07")
    assert same.table.equals(found.table)
    figure = found.figure()
    assert figure._repr_png_().startswith(b"\x89PNG") and isinstance(figure, Figure)
    assert sys.argv == arguments and not GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.train("dmeo"), "recipe=dmeo is not known"),
        (lambda: api.train("demo", overrides="train.samples=8"), "must be a list of texts"),
        (lambda: api.train("demo", seeds=0), "seeds=0 must be a number above 0"),
        (lambda: api.train("demo", seeds=[True]), "seeds="),
        (lambda: api.train("demo", seeds=True), "seeds=True must be a number above 0"),
        (lambda: api.train("demo", seeds=2.5), "seeds=2.5 must be a number above 0"),  # type: ignore[arg-type]
        (lambda: api.compare([]), r"runs=\[\] is empty"),
        (lambda: api.train("demo", overrides=["launch.slurm=--time=1"]), "works with the command only"),
        (lambda: api.evaluate("nowhere"), "no run at or below nowhere"),
        (lambda: api.evaluate(3), "runs=3 must be the result of train"),  # type: ignore[arg-type]
    ],
)
def test_wrong_inputs_are_refused_in_one_line(call: Any, message: str, short: list[str]) -> None:
    with pytest.raises(UserError, match=message) as error:
        call()
    assert "\n" not in str(error.value) and not Path("runs").exists()


def test_paths_may_start_with_the_home_folder(
    short: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = api.train("demo", overrides=[*short, "runs=~/mine"]).folders
    assert made == api.read("~/mine").folders
    assert made[0].parent.parent == tmp_path / "home" / "mine"


def test_a_run_that_stopped_early_raises_instead_of_ending_python(
    short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.train.fit", lambda *_: sys.exit(75))
    with pytest.raises(Fault, match="call train again to resume"):
        api.train("demo", overrides=short)
