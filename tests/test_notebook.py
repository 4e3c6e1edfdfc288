"""The notebook runs from its first to its last cell, and its stored outputs name no folder of a machine."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import plugin_tables

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebooks" / "first_experiment.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line if this is an expression, as a notebook shows it."""
    *body, last = ast.parse(source).body
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return exec(compile(ast.Module([last], []), "cell", "exec"), names)


@pytest.mark.long
def test_all_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with plugin_tables.restored():
        shown = [run("".join(cell["source"]), names) for cell in CELLS]
    assert set(names["found"].table["method"]) == {"clip", "hinge"} and list(names["found"].table["seeds"]) == [3, 3]
    assert (names["found"].table["mean of tasks (%)"] > 20).all(), "the loss must train"
    assert shown[-1]._repr_png_()


def test_the_stored_outputs_have_a_table_and_a_figure_but_no_folder_of_a_machine() -> None:
    kinds = {kind for cell in CELLS for output in cell["outputs"] for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds
    assert all(cell["execution_count"] == number for number, cell in enumerate(CELLS, 1))
    text = json.dumps([output for cell in CELLS for output in cell["outputs"] if "image/png" not in str(output)])
    assert "Error" not in text
    assert re.findall(r"(?<![\w.<])/\w+/", text) == [], "the folder of a machine"
