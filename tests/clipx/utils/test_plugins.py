"""Plug-ins add rows to the tables; every mistake gives a message of one line that names the module."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from clipx import objectives
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from clipx.utils import plugins
from clipx.utils.plugins import load_plugins, load_plugins_of_file
from evaluation.datasets.opening import open_dataset
from tests.helpers import plugin_tables
from tests.helpers.folder import settings

TERM = """
from clipx.objectives.base import Term

class Mine(Term):
    def __call__(self, embeddings, rows, progress):
        return embeddings.image.sum(), {}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty folder, and restore the tables afterwards."""
    monkeypatch.chdir(tmp_path)
    with plugin_tables.restored():
        yield tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"plugins=wrong: there is no module wrong; install it, or add its folder to PYTHONPATH"),
        ("x = 1", r"plugins=wrong adds nothing; a plug-in has one or more of TERMS, "),
        ("TERMS = [1]", r'plugins=wrong: TERMS must be a dict, \{"name": row\}'),
        ("\n1 / 0", r"plugins=wrong cannot be imported: ZeroDivisionError: division by zero, .*wrong\.py:2"),
        ("def f(:", r"plugins=wrong cannot be imported: SyntaxError: .*wrong\.py:1"),
        ('DATA = {"shards": {}, "new": {}}', r"plugins=wrong: DATA has a 'shards' already; choose another name"),
        ("import sys\nsys.exit(5)", r"plugins=wrong cannot be imported: SystemExit: 5, .*wrong\.py:2"),
        ('TERMS = {"new": int}', r"plugins=wrong: TERMS has the row 'new': <class 'int'>; .* the row a Term class"),
        ("DATA = {3: {}}", r"plugins=wrong: DATA has the row 3: \{\}; the name must be a string"),
        ("RECIPES = 3", r"plugins=wrong: RECIPES=3 is not a folder"),
    ],
)
def test_a_mistake_gives_one_line_and_changes_no_table(here: Path, text: str | None, message: str) -> None:
    if text is not None:
        (here / "wrong.py").write_text(text)
    tables = {name: plugins._object(table.location) for name, table in plugins.TABLES.items()}
    before = {table: dict(rows) for table, rows in tables.items()}
    with pytest.raises(UserError, match=message) as raised:
        load_plugins(["wrong"])
    assert "\n" not in str(raised.value) and before == tables


@pytest.mark.parametrize("path", ["mine.py", "../mine"])
def test_a_path_is_refused_with_the_name_of_the_module(path: str) -> None:
    with pytest.raises(UserError, match=rf"^plugins={re.escape(path)} is a path: name the module, plugins=\[mine\]"):
        load_plugins([path])


def test_the_rows_of_clipx_are_of_the_kind_that_plugins_must_give() -> None:
    for name, table in plugins.TABLES.items():
        rows = [row for row in plugins._object(table.location).values() if row is not None]  # None: mixing.kind=none
        assert rows and all(map(table.is_row, rows)), name


def test_a_recipe_of_an_existing_name_is_refused(here: Path) -> None:
    (here / "mine.yaml").write_text("seeds: 1\n")
    (here / "demo.yaml").write_text("seeds: 1\n")
    (here / "own.py").write_text("from pathlib import Path\nRECIPES = Path(__file__).parent\n")
    with pytest.raises(UserError, match=r"plugins=own: RECIPES has a 'demo' already"):
        load_plugins(["own"])
    (here / "demo.yaml").unlink()
    load_plugins(["own"])
    assert plugins.added("RECIPES") == {"mine": here / "mine.yaml"}


def test_a_file_in_this_folder_hides_no_installed_package(here: Path) -> None:
    (here / "colorsys.py").write_text("raise RuntimeError\n")  # also a module of the standard library
    with pytest.raises(UserError, match=r"plugins=colorsys adds nothing"):
        load_plugins(["colorsys"])


def test_a_file_may_name_an_installed_package_without_permission() -> None:
    with pytest.raises(UserError, match=r"plugins=rich adds nothing"):  # so it was imported
        load_plugins_of_file(["rich"])


def test_two_plugins_cannot_add_the_same_name_and_runs_that_need_a_loaded_one_are_read(here: Path) -> None:
    for name in ("one", "two"):
        (here / f"{name}.py").write_text(TERM + 'TERMS = {"mine": Mine}\n')
    (here / "again.py").write_text("from one import TERMS\n")
    config = settings(here)
    config.plugins = ["one"]
    run = RunFolder.create(config).path
    load_plugins(["one", "again"])  # `again` has the same row, so it is accepted
    assert RunFolder(run).load_config().plugins == ["one"]
    with pytest.raises(UserError, match=r"plugins=two: TERMS has a 'mine' already"):
        load_plugins(["two"])


def test_entry_points_of_an_installed_package_are_loaded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "okapi.py").write_text(TERM)
    folder = here / "okapi-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: okapi\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[clipx.terms]\nokapi = okapi:Mine\n")
    monkeypatch.syspath_prepend(str(here))
    plugins._load_installed.cache_clear()
    load_plugins([])
    assert "okapi" in objectives.TERMS
    (folder / "entry_points.txt").write_text("[clipx.tasks]\nbroken = okapi:NoSuch\n")
    plugins._load_installed.cache_clear()
    message = r"entry point broken = okapi:NoSuch of okapi cannot be loaded \(AttributeError.*repair or uninstall it"
    with pytest.raises(UserError, match=message):
        load_plugins([])
    plugins._load_installed.cache_clear()


def test_the_message_about_a_missing_plugin_names_the_config_of_the_run(here: Path) -> None:
    config = settings(here)
    config.plugins = ["gone_plugin"]
    run = RunFolder.create(config).path
    with pytest.raises(UserError, match=re.escape(f"{run}/config.yaml: plugins=[gone_plugin] stands in a file")):
        RunFolder(run).load_config()
    config.plugins = []  # the run no longer needs the plug-in, and can be claimed without it
    (run / "log.jsonl").write_text("")
    assert RunFolder.create(config).load_config().plugins == []


def test_a_layout_of_a_plugin_opens_its_evaluation_sets(here: Path) -> None:
    (here / "sets.py").write_text("LAYOUTS = {'mine': lambda spec, folder, settings: (spec, folder, settings)}\n")
    with pytest.raises(UserError, match=r"datasets layout=mine is not known"):
        open_dataset("mine:x")
    load_plugins(["sets"])
    spec, folder, _ = cast(tuple[str, Path, object], open_dataset("mine:x"))
    assert (spec, folder) == ("mine:x", Path("x"))
