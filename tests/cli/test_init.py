"""`clipx init` and `clipx cp` write files that run without changes, and overwrite no file."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.settings.recipes import load_recipe
from tests.helpers.commands import clipx_here


@pytest.mark.long
def test_the_written_files_pass_their_own_tests(tmp_path: Path) -> None:
    for kind, name in (("term", "my_term"), ("task", "my_task"), ("recipe", "my_recipe")):
        done = clipx_here("init", kind, name, cwd=tmp_path)
        assert f"test_{name}.py" in done.stdout, done.stderr
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 and "4 passed" in ran.stdout, ran.stdout


def test_a_copied_recipe_has_the_arms_of_the_recipe(tmp_path: Path) -> None:
    clipx_here("cp", "gap_mini", "mine.yaml", cwd=tmp_path)
    clipx_here("cp", "gap_mini", ".", cwd=tmp_path)
    for name in ("mine", "gap_mini"):
        assert "flt_4e-2" in load_recipe(tmp_path / f"{name}.yaml").arms
