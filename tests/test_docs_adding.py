"""Follow docs/add_*.md twice, as each page describes: write a plug-in, or add code and table rows to the package."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.init import filled
from cli.settings.compose import compose_run
from clipx import objectives
from clipx.utils.plugins import load_plugins
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


def put_into_the_package(page: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the page's module inside the package, without its plug-in tables, and apply the page's diffs."""
    files, diffs = blocks(page)
    text = re.sub(
        r"^(TERMS|TASKS|SOURCES|DATA) = (.|\n)*", "", files[module.rpartition(".")[2] + ".py"], flags=re.MULTILINE
    )
    created = ModuleType(module)
    monkeypatch.setitem(sys.modules, module, created)
    exec(compile(text, module, "exec"), vars(created))
    for lines in diffs:
        patch(lines, monkeypatch)


def patch(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply a diff (line 0: file) to a module's source, execute the result, add its new rows to the module's tables."""
    path = lines[0].removeprefix("--- ")
    source = (ROOT / path).read_text().splitlines()
    at = 0
    for line in lines[1:]:
        if line.startswith("+"):
            source.insert(at, line[1:])
            at += 1
        else:
            at = source.index(line[1:], at) + 1
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    patched: dict[str, Any] = {"__name__": module.__name__}
    exec(compile("\n".join(source), path, "exec"), patched)
    for name, value in patched.items():
        old = getattr(module, name, None)
        if isinstance(old, dict):
            for key in value.keys() - old.keys():
                monkeypatch.setitem(old, key, value[key])


def train(*overrides: str) -> Path:
    """Train for two steps; return the run directory."""
    short = ["train.samples=16", "train.batch_size=8", "schedule.warmup_steps=1", "log.every=1"]
    config = compose_run(["recipe=demo", *short, *overrides])
    return trained(config)


def write_zoo() -> None:
    for number, name in enumerate(("okapi", "red_panda") * 8):
        Path("zoo", name).mkdir(parents=True, exist_ok=True)
        Path("zoo", name, f"{number}.jpg").write_bytes(jpeg("red", 48 + number))


@pytest.mark.parametrize(
    ("page", "kind", "name", "other"),
    [
        ("add_objective.md", "term", "uniform", "Uniform"),
        ("add_task.md", "task", "reciprocal_rank", "ReciprocalRank"),
    ],
)
def test_the_page_shows_the_files_that_clipx_init_writes(page: str, kind: str, name: str, other: str) -> None:
    assert blocks(page)[0] == {f"{name}.py": filled(kind, name), f"test_{name}.py": filled(f"test_{kind}", name)}
    assert other in filled(kind, name)


def plugin(page: str, name: str, tests: int) -> Callable[[pytest.MonkeyPatch], list[str]]:
    """Return a function that follows a page as a plug-in: write its files, run its `tests` tests, select its module."""

    def follow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
        assert write_and_test(page) == tests
        return [f"plugins=[{name}]"]

    return follow


def package(page: str, module: str) -> Callable[[pytest.MonkeyPatch], list[str]]:
    """Return a function that follows a page by changing the package."""

    def follow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
        put_into_the_package(page, module, monkeypatch)
        return []

    return follow


Follow = Callable[[pytest.MonkeyPatch], list[str]]  # follows a page; returns overrides of `clipx train`


@pytest.mark.parametrize(
    "follow", [plugin("add_objective.md", "uniform", 1), package("add_objective.md", "clipx.objectives.uniform")]
)
def test_a_run_trains_with_the_added_objective(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = follow(monkeypatch)
    write_shards(Path("shards"), samples=16)
    data = ["data=shards", "data.root=shards", "data.name=mine", "data.workers=0"]
    run = train(*chosen, *data, "objective.uniform.weight=0.5", "objective.uniform.t=3")
    assert '"uniform":' in (run / "log.jsonl").read_text()
    assert "uniform" in objectives.TERMS and compose_run(["recipe=demo", *chosen, "objective=uniform"])


@pytest.mark.parametrize(
    "follow", [plugin("add_data.md", "class_folders", 2), package("add_data.md", "clipx.data.sources.class_folders")]
)
def test_a_run_trains_on_the_added_data_set(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = follow(monkeypatch)
    write_zoo()
    run = train(*chosen, "data=zoo", "data.root=zoo", "data.workers=0")
    assert (run / "checkpoints" / "step_00000002").is_dir()


@pytest.mark.parametrize(
    "follow",
    [plugin("add_task.md", "reciprocal_rank", 2), package("add_task.md", "evaluation.tasks.reciprocal_rank")],
)
def test_an_evaluation_runs_the_added_task(follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_plugins(name for argument in follow(monkeypatch) for name in re.findall(r"\[(.*)\]", argument))
    assert "reciprocal_rank" in TASKS
    spec = fakes.captioned(tmp_path / "data")
    (row,) = evaluate(fakes.encoder(), [spec], ["reciprocal_rank"], tmp_path / "out", tmp_path / "cache", 8, 0, "cpu")
    assert row.metric == "mrr" and 0 < row.low <= row.value <= row.high <= 1
