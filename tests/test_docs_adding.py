"""Apply the examples of docs/add_*.md: create their files, add their lines to the tables, run their tests."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.settings.compose import compose_run
from clipx.run import directory
from clipx.train import fit
from evaluation.runner import evaluate
from tests.helpers import fakes
from tests.helpers.folder import jpeg, write_shards

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```(python|diff)\n(.*?)```", re.DOTALL)


def apply(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Create the page's modules, patch its tables, run its tests; return the number of tests."""
    found = BLOCK.findall((ROOT / "docs" / page).read_text())
    files = {text.splitlines()[0].removeprefix("# "): text for kind, text in found if kind == "python"}
    for path, text in files.items():
        if not path.startswith("tests/"):
            create_module(path, text, monkeypatch)
    for kind, text in found:
        if kind == "diff":
            patch(text.splitlines(), monkeypatch)
    tests = 0
    for path, text in files.items():
        if path.startswith("tests/"):
            for name, test in vars(create_module(path, text, monkeypatch)).items():
                if name.startswith("test_"):
                    (tmp_path / name).mkdir()
                    test(*([tmp_path / name] if "tmp_path" in inspect.signature(test).parameters else []))
                    tests += 1
    return tests


def create_module(path: str, text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the file's text as an imported module; the file must not exist yet."""
    assert not (ROOT / path).exists()
    name = path.removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, path, "exec"), vars(module))
    return module


def patch(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Insert the + lines after the lines above them, execute the result, copy new names and rows to the module."""
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
        elif old is None:
            monkeypatch.setattr(module, name, value, raising=False)


def test_the_added_objective_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply("add_objective.md", tmp_path, monkeypatch) == 1
    write_shards(tmp_path / "shards", samples=16)
    data = ["data=shards", f"data.root={tmp_path / 'shards'}", "data.name=mine", "data.workers=0"]
    short = [
        "train.samples=16",
        "schedule.warmup_steps=1",
        "train.batch_size=8",
        "log.every=1",
        f"runs={tmp_path / 'runs'}",
    ]
    config = compose_run(["recipe=demo", *data, *short, "objective.uniform.weight=0.5", "objective.uniform.t=3"])
    run = directory.claim(config)
    fit(config, run)
    assert '"uniform":' in (run / "log.jsonl").read_text()


def test_the_added_data_set_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply("add_data.md", tmp_path, monkeypatch) == 2
    for number, name in enumerate(("okapi", "red_panda") * 8):
        (tmp_path / "zoo" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "zoo" / name / f"{number}.jpg").write_bytes(jpeg("red", 48 + number))
    short = [
        "train.samples=8",
        "schedule.warmup_steps=1",
        "train.batch_size=8",
        "data.workers=0",
        f"runs={tmp_path / 'runs'}",
    ]
    config = compose_run(["recipe=demo", "data=zoo", f"data.root={tmp_path / 'zoo'}", *short])
    run = directory.claim(config)
    fit(config, run)
    assert (run / "checkpoints" / "step_00000001").is_dir()


def test_the_added_task_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply("add_task.md", tmp_path, monkeypatch) == 2
    spec = fakes.captioned(tmp_path / "data")
    cache = tmp_path / "cache"
    (row,) = evaluate(fakes.encoder(), [spec], ["reciprocal_rank"], tmp_path / "out", cache, 8, 0, "cpu")
    assert row.metric == "mrr" and 0 < row.low <= row.value <= row.high <= 1
