"""Random values in the fields of what clipx reads from a run or a recipe give one line, start nothing and end soon."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from cli.settings.compose import compose_run
from clipx.config.schema import RunConfig
from clipx.data.shards import index
from clipx.data.shards.index import open_index
from clipx.errors import Fault, UserError, printable_line
from clipx.run.checkpoint import checkpoints, file_sha256, verify
from clipx.run.folder import RunFolder
from clipx.utils.files import cache_home
from evaluation.claims.design import Design, describe_claims, find_designs, store
from evaluation.runs import results
from evaluation.runs.reader import SHAPES, find

# the same examples in every run
FUZZ = settings(derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(10**38), st.just("\x1b[2J"),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.just("../../PWNED"), st.just("${oc.env:HOME}"), st.just("pipe:touch PWNED"),
)  # fmt: skip
FILES = (
    "results.jsonl", "log.jsonl", "environment.json", "outcome.json", "timing.json", "checkpoint.json",
    "designs/clip_reg_mini.json",
)  # fmt: skip
ARTIFACTS: dict[str, dict[str, Any]] = {  # one of each kind that the helper of reports does not write
    "geometry": {
        "margins": {"first": -1.0, "last": 1.0, "counts": [1, 2]},
        "pca": {"image": [[0.0, 1.0]], "text": [[1.0, 0.0]]},
    },
    "popularity": {
        "captions": {"low": [{"caption": "a", "text": 0.1, "image": 0.2, "popularity": None}]},
        "curve": {"x": [1.0], "y": [2.0]},
    },
    "zeroshot_draws": {"top1": [0.1, 0.2], "mean_per_class": [0.1, 0.2]},
}


@contextmanager
def within_two_seconds() -> Iterator[None]:
    """Fail if the block takes more than 2 s of processor time: a value may expand or repeat without end."""
    started = time.process_time()  # unlike the clock, the same on a loaded machine
    yield
    assert time.process_time() - started < 2


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path (keys and positions) to each value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, one in items for inner in fields_of(one, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a JSON value with another one in place of that at `path`."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def read_everything(run: Path) -> None:
    """Read all that eval, resume and report read from a run."""
    folder = RunFolder(run)
    for read in (
        folder.load_config,
        lambda: index.load(run / "index"),
        lambda: folder.log,
        lambda: folder.environment,
        folder.divergence,
        lambda: folder.evaluation_seconds,
        lambda: results.read(run / "results.jsonl"),
        lambda: [(found.results, [*map(found.artifacts_of, SHAPES)]) for found in find([run])],
        lambda: find_designs([run]),
        lambda: verify(checkpoints(run)[-1]),
    ):
        try:
            read()
        except (UserError, Fault) as error:
            assert 0 < len(printable_line(str(error))) < 1000  # as commands print it


def shrink(folder: Path) -> None:
    """Replace the files of a checkpoint by small ones of the same names, so that each example reads them quickly."""
    manifest = json.loads((folder / "checkpoint.json").read_text())
    for name in manifest["sha256"]:
        (folder / name).write_bytes(name.encode())
        manifest["sha256"][name] = file_sha256(folder / name)
    (folder / "checkpoint.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def contents(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], RunConfig]:
    """Return a copy of a run, the content of each of its files as a JSON value, and its settings."""
    from tests.helpers.report_runs import artifacts, row
    from tests.helpers.shared import copy_of

    _, run = copy_of(trained_run, tmp_path_factory.mktemp("fuzz"))
    (run / "results.jsonl").write_text(json.dumps(row("zeroshot", "cifar10", "top1", 0.5, 0)) + "\n")
    (run / "outcome.json").write_text(
        json.dumps({"step": 3, "bad_steps": 2, "checkpoint": None, "outcome": "diverged"})
    )
    (run / "timing.json").write_text(json.dumps({"evaluation_seconds": 1.0}))
    (run / "artifacts").mkdir(exist_ok=True)
    kinds = artifacts("a dog") | {f"{kind}-x": {"kind": kind, **content} for kind, content in ARTIFACTS.items()}
    assert {str(content["kind"]) for content in kinds.values()} == SHAPES.keys()
    for name, content in kinds.items():
        (run / "artifacts" / f"{name}.json").write_text(json.dumps(content))
    assert find([run])[0].artifacts.keys() == kinds.keys()  # all are valid
    store(run, Design("clip_reg_mini", "abc", ("clip",), (3, 5), describe_claims("clip_reg_mini")))
    shrink(checkpoints(run)[-1])
    open_index(trained_run.parents[2] / "train")
    shutil.copytree(next((cache_home() / "index").iterdir()), run / "index")
    config = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    found = {str(run / "config.yaml"): config}  # JSON is YAML
    found[str(run / "index/shards.json")] = json.loads((run / "index/shards.json").read_text())
    for name in (*FILES, *(f"artifacts/{name}.json" for name in kinds)):
        file = checkpoints(run)[-1] / name if name == "checkpoint.json" else run / name
        lines = file.read_text().splitlines() if name.endswith("jsonl") else [file.read_text()]
        found[str(file)] = json.loads(lines[-1])
    read_everything(run)  # imports what the first example would import
    return run, found, RunFolder(run).config


@settings(FUZZ, max_examples=200)
@given(data=st.data())
def test_random_values_in_the_files_of_a_run_give_no_traceback(
    contents: tuple[Path, dict[str, Any], RunConfig],
    data: st.DataObject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.socket.connect", None)  # a call would fail
    run, found, config = contents
    file = Path(data.draw(st.sampled_from(sorted(found))))
    path = data.draw(st.sampled_from(fields_of(found[str(file)])))
    before = file.read_bytes()
    try:
        file.write_text(json.dumps(replaced(found[str(file)], path, data.draw(VALUES))) + "\n")
        with pytest.MonkeyPatch.context() as patch, within_two_seconds():
            if file.name != "config.yaml":  # else half of the time would be spent on reading the same settings again
                patch.setattr("clipx.run.folder._read_config", lambda unchanged: config)
            read_everything(run)
    finally:
        file.write_bytes(before)
    assert not (run / "PWNED").exists()
    assert not any(name == "PWNED" for _, _, names in os.walk(tmp_path) for name in names)


GIVEN: dict[str, Any] = {  # a recipe with each of its kinds of content
    "defaults": ["gap_mini", {"override /objective": "clip"}],
    "claims": ["4.1"],
    "model": {"image": {"name": "small:conv", "size": 32}, "embed_dim": 16},
    "objective": {"clip": {"weight": 1.0}},
    "data": {"root": "x", "urls": ["a.tar"], "evaluation": ["wds:x"]},
    "train": {"epochs": None, "samples": 1280, "batch_size": 8},
    "arms": {"base": ["temperature.tau=0.1"], "hot": []},
    "evaluations": [["tasks=[retrieval]"]],
    "seeds": 2,
}


@settings(FUZZ, max_examples=40)
@given(data=st.data())
def test_random_values_in_a_recipe_give_no_traceback(
    data: st.DataObject, own_recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", None)  # a call would fail
    monkeypatch.chdir(own_recipes)
    path = data.draw(st.sampled_from(fields_of(GIVEN)))
    value = data.draw(VALUES)
    (own_recipes / "odd.yaml").write_text(json.dumps(replaced(GIVEN, path, value)))
    with within_two_seconds():
        try:
            compose_run(["recipe=odd"])
        except UserError as error:
            assert printable_line(str(error))
    assert {file.name for file in own_recipes.iterdir()} == {"odd.yaml"}
