"""A run of version 0.1, whose config.yaml has settings that were removed since, is resumed, evaluated and exported."""

import shutil
from pathlib import Path

import pytest

from cli.train import train
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import RunFolder
from tests.helpers.commands import clipx_here

CONFIG = Path(__file__).parents[1] / "golden" / "config_0.1.yaml"  # with all 155 settings of 0.1
SMALL = {
    "test_images: 1000": "test_images: 20",
    "num_train: 30000": "num_train: 300",
    "save_every: 200": "save_every: 1",
    "small:conv": "open_clip:mini-48",  # which can be exported
    "small:clip_bag": "open_clip:mini-48",
}
NOTE = "config.yaml: train.copy_to was removed and has no effect: copy the run directory by another program"


def write_config(root: Path, copy_to: str = "null") -> Path:
    text = CONFIG.read_text().replace("runs: runs", f"runs: {root}/runs").replace("/tmp/R_data", f"{root}/data")
    for old, new in {**SMALL, "copy_to: null": f"copy_to: {copy_to}", "claims: []": "claims: [own.1]"}.items():
        assert old in text
        text = text.replace(old, new)
    run = root / "runs" / "demo-schedule.warmup_steps_1-train.samples_256" / "s0"
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(text)
    return run


def test_a_run_of_an_earlier_version_is_resumed_evaluated_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
