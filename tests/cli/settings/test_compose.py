"""The command line: overrides set fields of the typed config, and name the run; `ls`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig

from cli.settings import compose
from cli.settings.compose import compose_eval, compose_run, run_command
from cli.train import train
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run.folder import RunFolder, earlier_runs
from tests.helpers.commands import clipx_here

NAMES = [
    (["recipe=demo", "train.processes=2", "launch.nodes=2", "data.workers=1"], "demo"),  # they change no result
    (
        ["recipe=demo", "train.batch_size=64", "data=flickr8k", "objective.positive.weight=0.1"],
        "demo-flickr8k-objective.positive.weight_0.1-train.batch_size_64",
    ),
    (
        ["recipe=demo", "optimizer.lr=1e-2", "mixing.kind=hard", "objective=dcl"],
        "demo-dcl-mixing.kind_hard-optimizer.lr_0.01",
    ),
    (
        ["recipe=demo", "objective=dcl", "mixing.kind=hard", "optimizer.lr=1e-2"],
        "demo-dcl-mixing.kind_hard-optimizer.lr_0.01",
    ),
    (["recipe=gap_mini", "arm=flt_4e-2", "train.batch_size=32", "seed=2"], "gap_mini-flt_4e-2-train.batch_size_32"),
    (["recipe=demo", "objective='siglip'"], "demo-siglip"),  # in quotes
]


@pytest.mark.parametrize(("overrides", "name"), NAMES)
def test_a_run_is_named_after_recipe_arm_and_settings(overrides: list[str], name: str) -> None:
    assert compose_run(overrides).name == name


def test_the_bias_of_siglip_needs_no_setting() -> None:
    clip, siglip, given = ["objective=clip"], ["objective=siglip"], ["objective=siglip", "temperature.bias=-5"]
    found = [compose_run(["recipe=demo", *choice]).temperature.bias for choice in (clip, siglip, given)]
    assert found == [None, -10.0, -5.0]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_options_of_hydra_may_stand_anywhere(place: int) -> None:
    given = ["recipe=demo", "arm=distill", "seed=0,1"]
    assert compose._split_options([*given[:place], "-m", *given[place:]]) == (given, ["-m"])


def test_a_system_error_of_a_run_is_raised_without_a_line_of_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["clipx"])

    def task(config: RunConfig) -> None:
        (tmp_path / "missing" / "file").write_text("")

    with pytest.raises(FileNotFoundError):
        run_command(task, ["recipe=demo"])
    assert capsys.readouterr().err == ""


def test_a_sweep_names_runs_by_their_values_and_prints_an_error_that_they_share_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(config: RunConfig) -> None:
        raise UserError("no data" if config.temperature.tau < 0.3 else "no disk")

    monkeypatch.setattr("cli.train.train", fail)
    done = clipx_here("train", "-m", "recipe=demo", "temperature.tau=0.1,0.2,0.3", cwd=tmp_path, code=2)
    first, last = (f"demo-temperature.tau_{tau}/s0" for tau in (0.1, 0.3))
    assert f"run 3: {last}" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == f"clipx: {first}: no data (the same for 1 more); {last}: no disk"


def test_a_renamed_run_is_refused_with_its_old_name(copied_run: tuple[RunConfig, Path]) -> None:
    config, run = copied_run
    renamed = RunFolder(run.parent.rename(run.parent.with_name("renamed")) / run.name)
    with pytest.raises(UserError, match=rf"if you have renamed .*/renamed, name it .*/{config.name} again"):
        renamed.refuse_changes(replace(config, name="renamed"))


def test_a_start_that_fails_leaves_no_folder_but_a_run_with_steps_stays(copied_run: tuple[RunConfig, Path]) -> None:
    config, run = copied_run
    config.optimizer.lr = 3
    with pytest.raises(UserError, match="already holds a run with other settings"):
        train(config)
    assert (run / "checkpoints").is_dir()
    config.name, config.model.init = "other", "nowhere"
    with pytest.raises(UserError, match="nowhere is missing"):
        train(config)
    assert not run.parent.with_name("other").exists()


def test_the_processes_of_a_launcher_of_hydra_find_the_arms_of_an_own_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [demo]\narms: {start: [], next: [model.init=arm:start]}\n")
    set_config, found = HydraConfig.set_config, list[RunConfig]()

    def in_another_process(*given: Any) -> None:  # Hydra calls this before each run
        sys.argv = ["worker"]
        set_config(*given)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["clipx", "train", "--config-dir=."])
    monkeypatch.setattr(HydraConfig, "set_config", in_another_process)
    run_command(found.append, ["recipe=mine", "arm=next", "seed=0,1", "-m", "--config-dir=."])
    assert [config.name for config in found] == ["mine-next"] * 2
    assert [earlier_runs(config) for config in found] == [[Path(f"runs/mine-start/s{seed}")] for seed in (0, 1)]


def test_ls_lists_data_and_claims(tmp_path: Path) -> None:
    """Terms, tasks, towers and recipes: test_own_code.py."""
    for table, entry in (("data", "flickr8k"), ("claims", "3.1")):
        assert entry in clipx_here("ls", table, cwd=tmp_path).stdout


def test_ls_settings_prints_default_range_and_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = clipx_here("ls", "settings", "temperature.tau", "eval", cwd=tmp_path).stdout.splitlines()
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in lines}
    assert (
        rows["temperature.tau"] == "temperature.tau 0.07 more than 0 fixed: tau; learned, linear, cosine: initial tau"
    )
    assert rows["eval.device"].startswith("eval.device auto auto | cpu | cuda auto: CUDA")
    assert "temperature.kind" not in rows
    found = clipx_here("ls", "settings", "learning_rate", cwd=tmp_path).stdout
    assert "optimizer.lr " in found and "train.epochs" not in found


@pytest.mark.parametrize("path", ["Bilder/データ für mich", "/a(1)/{y}/100%", "it's/a\\b", "/tmp/é=1"])
def test_a_path_needs_no_quotes(path: str) -> None:
    config = compose_run(["recipe=demo", f"data.root={path}", "data.urls=[/ü/{00..03}.tar,x y.tar]"])
    assert (config.data.root, config.data.urls) == (path, ["/ü/{00..03}.tar", "x y.tar"])
    assert compose_eval(["model=m", f"sets={path}"]).sets == path


LONG = [
    "recipe=gap_mini", "arm=flt_4e-2", "train.batch_size=32", "optimizer.lr=0.02", "schedule.warmup_steps=7",
    "data.scenes.noise=0.1",
]  # fmt: skip


def test_long_names_are_cut_and_end_in_a_hash_of_all_settings(tmp_path: Path) -> None:
    name = compose_run([*LONG, f"runs={tmp_path}"]).name
    settings = name.removeprefix("gap_mini-flt_4e-2-")
    assert len(settings) <= 60 + 9 and settings.startswith("data.scenes.noise_0.1-optimizer.lr_0.02-schedule.warmup")
    assert compose_run([*LONG, f"runs={tmp_path}", "seed=3"]).name == name
    others = {compose_run([*LONG[:5], f"data.scenes.noise={noise}"]).name for noise in (0.1, 0.2)}
    assert len(others) == 2 and name in others
    other_arm = compose_run(["recipe=gap_mini", "arm=base", *LONG[2:]]).name
    assert other_arm == name.replace("flt_4e-2", "base"), "arms differ in their part only"


def test_a_run_under_its_uncut_name_keeps_it(tmp_path: Path) -> None:
    whole = "gap_mini-flt_4e-2-data.scenes.noise_0.1-optimizer.lr_0.02-schedule.warmup_steps_7-train.batch_size_32"
    (tmp_path / whole / "s0").mkdir(parents=True)
    assert compose_run([*LONG, f"runs={tmp_path}"]).name == whole
