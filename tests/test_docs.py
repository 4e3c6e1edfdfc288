"""The commands of docs/data.md are real ones: settings exist, and what needs no network runs."""

import re
import shlex
from pathlib import Path

import pytest

from cli.compose import compose_run
from cli.data import data
from tests.clipx.folder import write_shards

PAGE = Path(__file__).parent.parent / "docs" / "data.md"
BLOCKS = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
LINES = [shlex.split(line, comments=True)[1:] for block in BLOCKS for line in block.splitlines()]


@pytest.mark.parametrize("words", [words for words in LINES if words[0] == "train"], ids=" ".join)
def test_settings_of_the_page_exist(words: list[str]) -> None:
    given = [word for word in words[1:] if word.startswith("recipe=")]
    assert f"recipe={compose_run(words[1:]).recipe}" in given


@pytest.mark.parametrize("words", [words for words in LINES if words[0] == "data"], ids=" ".join)
def test_data_commands_of_the_page_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "FOLDER", samples=8)
    monkeypatch.setattr("evaluation.datasets.pull", lambda name, root: None)
    data([*words[1:], "dry=true"] if words[1] == "make" else words[1:])
    assert capsys.readouterr().out


def test_nothing_on_the_page_is_left_out() -> None:
    assert {words[0] for words in LINES} == {"train", "data"} and len(LINES) >= 14
