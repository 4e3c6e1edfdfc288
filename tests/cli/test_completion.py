"""Completion: the words that each command offers, in each shell, quickly and without error messages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cli import completion
from cli.main import COMMANDS, help_of
from clipx.config.setting import settings_of
from clipx.utils.files import write_text


@pytest.fixture(scope="module")
def table() -> completion.Completions:
    return completion.build_table()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("clipx ", ["train ", "eval ", "completion "]),
        ("clipx --v", ["--version "]),
        ("clipx train t", ["temperature.", "train."]),
        ("clipx train temperature.kind=l", ["temperature.kind=learned ", "temperature.kind=linear "]),
        ("clipx train train.compile=", ["train.compile=true ", "train.compile=false "]),
        ("clipx train objective=sig", ["objective=siglip "]),
        ("clipx train recipe=gap_mini arm=hs_r", ["arm=hs_rows "]),
        ("clipx reproduce recipe=demo,gap_mini arms=hs_rows,bas", ["arms=hs_rows,base "]),
        ("clipx train objective.nuclr.zeta", ["objective.nuclr.zeta0="]),
        ("clipx eval tasks=[zeroshot,retr", ["tasks=[zeroshot,retrieval"]),
        ("clipx eval datasets=wd", ["datasets=wds:"]),
        ("clipx report co", ["compare "]),
        ("clipx report compare by=z", ["by=zeroshot "]),
        ("clipx data verify x wor", ["workers="]),
        ("clipx data embed rec", ["recipe="]),
        ("clipx report claims runs o", []),  # `claims` has none of the options of `report`
        ("clipx eval runs/", []),  # left to the shell, as the next
        ("clipx train data.root=/da", []),
        ("clipx nonsense x", []),
        ("clipx watch runs e", ["every="]),
    ],
)
def test_every_command_completes_its_words(line: str, expected: list[str], table: completion.Completions) -> None:
    found = completion.complete(line, list(COMMANDS), table)
    assert set(expected) <= set(found) and bool(found) == bool(expected)
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_own_recipes_and_their_arms(tmp_path: Path, table: completion.Completions) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"# f\xfcr\n")
    (tmp_path / "quick.yaml").write_text("# mine\ntrain: {samples: 8}\narms:\n  one: []\n  two: [seed=1]\nseeds: 2\n")
    line = f"clipx train --config-dir {tmp_path} recipe=quick arm="
    assert completion.complete(line, list(COMMANDS), table) == ["arm=one ", "arm=two "]
    assert completion.complete(line[: line.index("=qui") + 3], list(COMMANDS), table) == ["recipe=quick "]


def test_the_arms_of_the_installed_recipes_equal_those_of_the_yaml_parser(table: completion.Completions) -> None:
    from cli.settings.recipes import recipe, recipes

    assert table["arms"] == {name: list(recipe(name).arms) for name in recipes()}


def test_every_option_is_in_the_help_of_its_command() -> None:
    for command, schema in completion.options().items():
        text = help_of(command.split()[0])
        assert [key for key in settings_of(schema) if f"{key}=" not in text] == [], command


@pytest.mark.usefixtures("empty_cache")
def test_the_first_answer_writes_the_table_and_bash_gets_only_the_part_after_the_last_separator(
    table: completion.Completions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "build_table", MagicMock(side_effect=[table]))
    for shell, expected in {
        "bash": "learned \nlinear \n",
        "zsh": "temperature.kind=learned \ntemperature.kind=linear \n",
    }.items():
        completion.answer([shell, "clipx train temperature.kind=l"], COMMANDS)
        assert capsys.readouterr().out == expected
    completion.answer(["zsh"], COMMANDS)  # without the line: prints nothing
    assert capsys.readouterr().out == ""


def test_an_answer_loads_no_slow_library(table: completion.Completions) -> None:
    write_text(completion._table_file(), json.dumps(table))
    code = (
        "import sys; sys.argv = ['clipx', '--complete', 'bash', 'clipx train temperature.k']\n"
        "from cli.main import main; main(); print({'torch', 'omegaconf', 'hydra', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.stdout, done.stderr) == ("temperature.kind=\nset()\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_scripts_are_valid_and_silent_if_clipx_is_missing(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    completion.script([shell])
    text = capsys.readouterr().out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    parsed = subprocess.run([program, "-n", "-c", text], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert parsed.stderr == ""
    if shell == "bash":
        call = f'{text}\nPATH=\nCOMP_LINE="clipx tr"; COMP_POINT=8; _clipx; echo "[${{COMPREPLY[@]}}]"'
        done = subprocess.run([program, "-c", call], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.stdout, done.stderr) == ("[]\n", "")
