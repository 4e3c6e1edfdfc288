"""Follow docs/add_*.md: write each page's plug-in and use it; its diffs have lines of the package."""

import ast
import importlib
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import pytest

from cli.settings.compose import compose_run
from clipx import objectives
from clipx.utils.plugins import load_plugins
from evaluation.embedding.features import Loading
from evaluation.runner import evaluate
from evaluation.tasks import TASKS
from tests.helpers import fakes, plugin_tables
from tests.helpers.folder import jpeg, write_shards
from tests.helpers.runs import trained

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(python|diff)\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, and restore the package's tables afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with plugin_tables.restored():
        yield


def blocks(page: str) -> tuple[dict[str, str], list[list[str]]]:
    """Return the page's modules as file -> text, and the lines of each of its diffs."""
    found = BLOCK.findall((ROOT / "docs" / page).read_text())
    files = [text.partition("\n") for kind, text in found if kind == "python"]
    return {name.removeprefix("# "): text for name, _, text in files}, [t.splitlines() for k, t in found if k == "diff"]


def write_and_test(page: str) -> int:
    """Write the page's files into the current folder and run their tests; return the number of tests."""
    files, tests = blocks(page)[0], 0
    for name, text in files.items():
        Path(name).write_text(text)
    for name in [name for name in files if name.startswith("test_")]:
        for function, test in vars(importlib.import_module(name.removesuffix(".py"))).items():
            if function.startswith("test_"):
                Path(function).mkdir()
                test(*([Path(function)] if signature(test).parameters else []))
                tests += 1
    return tests


def train(*overrides: str) -> Path:
    """Train for two steps; return the run directory."""
    short = ["train.samples=16", "train.batch_size=8", "schedule.warmup_steps=1", "log.every=1"]
    config = compose_run(["recipe=demo", *short, *overrides])
    return trained(config)


@pytest.mark.parametrize("page", ["add_objective.md", "add_data.md", "add_task.md"])
def test_the_diffs_of_a_page_have_lines_of_the_files(page: str) -> None:
    _, diffs = blocks(page)
    for head, *lines in diffs:
        source, at = (ROOT / head.removeprefix("--- ")).read_text().splitlines(), 0
        added = [line[1:] for line in lines if line.startswith("+")]
        for line in lines:
            if line.startswith("+"):
                source.insert(at, line[1:])
                at += 1
            else:
                assert line[1:] in source[at:], f"{head} has no line {line[1:]}"
                at = source.index(line[1:], at) + 1
        assert added and ast.parse("\n".join(source))
    assert diffs


def test_a_run_trains_with_the_added_objective() -> None:
    assert write_and_test("add_objective.md") == 1
    write_shards(Path("shards"), samples=16)
    data = ["data=shards", "data.root=shards", "data.name=mine", "data.workers=0"]
    run = train("plugins=[uniform]", *data, "objective.uniform.weight=0.5", "objective.uniform.t=3")
    assert '"uniform":' in (run / "log.jsonl").read_text()
    assert "uniform" in objectives.TERMS and compose_run(["recipe=demo", "plugins=[uniform]", "objective=uniform"])


def test_a_run_trains_on_the_added_data_set() -> None:
    assert write_and_test("add_data.md") == 2
    for number, name in enumerate(("okapi", "red_panda") * 8):
        Path("zoo", name).mkdir(parents=True, exist_ok=True)
        Path("zoo", name, f"{number}.jpg").write_bytes(jpeg("red", 48 + number))
    run = train("plugins=[class_folders]", "data=zoo", "data.root=zoo", "data.workers=0")
    assert (run / "checkpoints" / "step_00000002").is_dir()


def test_an_evaluation_runs_the_added_task(tmp_path: Path) -> None:
    assert write_and_test("add_task.md") == 2
    load_plugins(["reciprocal_rank"])
    assert "reciprocal_rank" in TASKS
    spec = fakes.captioned(tmp_path / "data")
    loading = Loading(8, 0, "cpu", tmp_path / "cache")
    (row,) = evaluate(fakes.encoder(), [spec], ["reciprocal_rank"], tmp_path / "out", loading)
    assert row.metric == "mrr" and 0 < row.low <= row.value <= row.high <= 1
