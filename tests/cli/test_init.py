"""`clipx init` and `clipx cp` write files that run without changes, and overwrite no file."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.settings.recipes import load_recipe
from tests.helpers import plugin_tables
from tests.helpers.commands import clipx_here


@pytest.mark.long
def test_the_written_files_pass_their_own_tests(tmp_path: Path) -> None:
    for kind, name in (("term", "my_term"), ("task", "my_task"), ("recipe", "my_recipe")):
        done = clipx_here("init", kind, name, cwd=tmp_path)
        assert f"test_{name}.py" in done.stdout, done.stderr
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 and "4 passed" in ran.stdout, ran.stdout


def test_ls_lists_the_written_modules_as_plugins(tmp_path: Path) -> None:
    with plugin_tables.restored():
        for kind, name in (("term", "my_term"), ("task", "my_task")):
            clipx_here("init", kind, name, cwd=tmp_path)
            assert name in clipx_here("ls", f"{kind}s", f"plugins=[{name}]", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("init term", "`clipx init` needs term|task|recipe NAME"),
        ("init tower mine", "clipx init tower is not known; did you mean"),
        ("init term My-Term", "clipx init term My-Term: the name must be lower-case letters, digits and _"),
        (
            "init term class",
            "clipx init term class: the name must be lower-case letters, digits and _, and no keyword of Python",
        ),
        ("init task _", "clipx init task _: the name must be"),
        ("init term clip", "clipx init term clip: this name is taken"),
        ("init task json", "clipx init task json: this name is taken"),
        ("init recipe demo", "clipx init recipe demo: this name is taken"),
        ("init term there", "there.py exists; choose another name, or remove it"),
        ("init term tested", "test_tested.py exists"),
        ("cp demo", "`clipx cp` needs RECIPE FILE.yaml"),
        ("cp dmo x.yaml", "clipx cp dmo is not known; did you mean 'demo'"),
        ("cp demo x.txt", "clipx cp demo x.txt: the target must be FILE.yaml in a folder that exists"),
        ("cp demo no/x.yaml", "clipx cp demo no/x.yaml: the target must be"),
        ("cp demo mine.yaml", "mine.yaml exists"),
    ],
)
def test_mistakes_write_nothing(tmp_path: Path, command: str, message: str) -> None:
    for name in ("there.py", "test_tested.py", "mine.yaml"):
        (tmp_path / name).write_text("the user's")
    before = sorted(tmp_path.iterdir())
    done = clipx_here(*command.split(), cwd=tmp_path, code=2)
    assert done.stderr.startswith("clipx: ") and message in done.stderr
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "there.py").read_text() == "the user's"


def test_a_copied_recipe_has_the_arms_of_the_recipe(tmp_path: Path) -> None:
    clipx_here("cp", "gap_mini", "mine.yaml", cwd=tmp_path)
    clipx_here("cp", "gap_mini", ".", cwd=tmp_path)
    for name in ("mine", "gap_mini"):
        assert "flt_4e-2" in load_recipe(tmp_path / f"{name}.yaml").arms
