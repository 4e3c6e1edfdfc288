"""A run directory: paths of other runs, the environments of its starts, and settings that were removed since."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from cli.train import train
from clipx.config.schema import RunConfig, ScenesConfig
from clipx.data.scenes.folder import ensure_rendered
from clipx.errors import UserError
from clipx.run import folder
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder, natural_order, other_run
from tests.helpers.commands import clipx_here
from tests.helpers.folder import write_shards
from tests.helpers.report_runs import write_run


@pytest.mark.parametrize(
    ("arm", "name", "expected"),
    [
        ("clip", "mini-clip", "mini-start"),
        ("clip", "mini-clip-optimizer.lr_1e-3", "mini-start-optimizer.lr_1e-3"),
        ("", "mini", "mini-start"),
        ("", "mini-train.samples_64", "mini-start-train.samples_64"),
        ("clip", "chosen", "mini-start"),
        ("clip", "mini-clip2", "mini-start"),
        ("", "mini_long", "mini-start"),
    ],
)
def test_the_run_of_another_arm_has_the_same_overrides(arm: str, name: str, expected: str) -> None:
    config = RunConfig(recipe="mini", arm=arm, name=name, seed=3, runs="r")
    assert other_run(config, "arm:start") == Path("r") / expected / "s3"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("samples: 25600", "samples: many", "train.samples=many must be a whole number"),
        ("tau: 0.07", "tau: [1]", r"temperature.tau=\[1\] must be a number"),
        ("recipe: demo", "recipes: demo", "recipes is not a setting; did you mean 'recipe'"),
        ("recipe: demo", "", "recipe is missing"),
        ("temperature:", "temperature: 3\nmixing:", "temperature=3 holds no settings|kind"),
    ],
)
def test_a_config_with_a_wrong_field_is_named_with_its_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = write_run(tmp_path) / "config.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UserError, match=rf"^{file}: ({message}).*; restore it from a copy$") as raised:
        _ = RunFolder(file.parent).config
    assert "\n" not in str(raised.value)


def test_runs_are_ordered_by_the_numbers_of_their_seeds() -> None:
    runs = [Path("a/s1_old"), Path("a/s10"), Path("a/s2"), Path("a/m²"), Path("a/m1")]  # ² is no number for int()
    assert [path.name for path in sorted(runs, key=natural_order)] == ["m1", "s2", "s10", "m²", "s1_old"]


@pytest.mark.parametrize("content", ["{", "[]", '{"step": 3}', '{"step": "x", "bad_steps": 1, "checkpoint": null}'])
def test_a_corrupt_outcome_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "outcome.json").write_text(content)
    with pytest.raises(UserError, match=r"outcome\.json is corrupt .*remove it, then run the same command to resume"):
        RunFolder(tmp_path).divergence()


def test_a_wrong_entry_of_later_starts_is_named(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text('{"later": 3}')
    with pytest.raises(UserError, match=r"environment\.json: later=3 has the wrong type; restore it from a copy"):
        _ = RunFolder(tmp_path).environment


def test_later_starts_add_only_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = {"device": "cpu", "processes": 1, "packages": {"torch": "1"}}

    def start(step: int, **changes: object) -> dict[str, object]:
        current.update(changes)
        monkeypatch.setattr(folder, "_current", lambda device: dict(current))
        folder.record_environment(tmp_path, torch.device("cpu"), step)
        read: dict[str, object] = json.loads((tmp_path / "environment.json").read_text())
        return read

    first = start(0)
    assert first == current
    assert start(10) == first  # no change
    later: dict[str, object] = {"step_20": {"device": "gpu"}}
    assert start(20, device="gpu") == {**first, "later": later}
    assert start(30) == {**first, "later": later}
    later["step_40"] = {"device": "cpu", "processes": 2}  # compared with the latest start, not the first
    assert start(40, device="cpu", processes=2) == {**first, "later": later}
    (tmp_path / "environment.json").write_text("{")
    assert start(50) == current


CONFIG = Path(__file__).parents[2] / "golden" / "config_0.1.yaml"  # with all 155 settings of 0.1
SMALL = {
    "test_images: 1000": "test_images: 24",  # the sizes of the rendered `scenes` that all tests share
    "num_train: 30000": "num_train: 256",
    "save_every: 200": "save_every: 1",
    "test_pairs: 60": "test_pairs: 8",
    "small:conv": "open_clip:light-48",  # which can be exported
    "small:clip_bag": "open_clip:light-48",
}
NOTE = "config.yaml: train.copy_to was removed and has no effect: copy the run directory by another program"


def test_text_towers_of_runs_without_a_pooling_take_the_class_token(tmp_path: Path) -> None:
    file = write_run(tmp_path) / "config.yaml"
    values = yaml.safe_load(file.read_text())
    values["model"]["text"].pop("pooling", None)
    for name, pooling in (("hf:sentence-transformers/all-MiniLM-L6-v2", "class"), ("small:bag", None)):
        values["model"]["text"]["name"] = name
        file.write_text(yaml.safe_dump(values))
        assert RunFolder(file.parent).config.model.text.pooling == pooling


def write_config(root: Path, copy_to: str = "null") -> Path:
    text = CONFIG.read_text().replace("runs: runs", f"runs: {root}/runs").replace("/tmp/R_data", f"{root}/data")
    for old, new in {**SMALL, "copy_to: null": f"copy_to: {copy_to}", "claims: []": "claims: [own.1]"}.items():
        assert old in text
        text = text.replace(old, new)
    run = root / "runs" / "demo-schedule.warmup_steps_1-train.samples_256" / "s0"
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(text)
    return run


@pytest.mark.parametrize(("name", "message"), [("nowhere", "nowhere"), ("other", "was trained on other data")])
def test_a_refused_folder_of_data_does_not_get_into_the_settings_of_a_run(
    copied_run: tuple[RunConfig, Path], tmp_path: Path, name: str, message: str
) -> None:
    config, run = copied_run
    write_shards(tmp_path / "other" / config.data.split, samples=8)
    root, config.data.root = config.data.root, str(tmp_path / name)
    with pytest.raises(UserError, match=message):
        train(config)
    assert RunFolder(run).config.data.root == root, "clipx eval reads it"


@pytest.mark.usefixtures("light_tower")
def test_a_run_of_an_earlier_version_is_resumed_evaluated_and_exported(
    scenes: ScenesConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ensure_rendered(scenes, None), tmp_path / "data")
    monkeypatch.setenv("CLIPX_PERMITTED", json.dumps({"roots": [str(tmp_path / "data")]}))  # as on the command line
    run = write_config(tmp_path)
    config = RunFolder(run).load_config()
    train(config)
    assert NOTE not in capsys.readouterr().err, "a removed setting at its default is not mentioned"
    (_, last) = checkpoints(run)
    shutil.rmtree(last)
    write_config(tmp_path, copy_to="s3://bucket")
    train(config)
    printed = capsys.readouterr().err
    assert printed.count(NOTE) == 1 and "step_00000001" in printed and checkpoints(run)[-1] == last

    write_config(tmp_path, copy_to="s3://bucket/other")
    commands = (["eval", str(run), "tasks=[pairs]"], ["export", str(run), "out=x.pt"], ["report", str(run)])
    for command in commands:
        done = clipx_here(*command, cwd=tmp_path)
        assert done.stderr.count(NOTE) <= 1, command
    assert (tmp_path / "x.pt").is_file() and "pair_accuracy" in (run / "report.md").read_text()
