"""`clipx ls runs` lists runs with the settings that differ from their recipe."""

from pathlib import Path

import pytest

from cli.settings.compose import compose_run
from clipx.utils.files import write_text
from tests.helpers.commands import clipx_here
from tests.helpers.folder import settings
from tests.helpers.runs import untrained

SMALL = """
recipe=demo data=shards data.root=data data.split=train data.workers=0 data.evaluation=[] train.samples=16
train.batch_size=8 schedule.warmup_steps=0 model.image.name=small:conv model.text.name=small:bag
""".split()  # noqa: SIM905


def test_a_line_for_all_seeds_has_the_settings_unlike_the_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)
    for seed in (0, 3):
        untrained(compose_run([*SMALL, "optimizer.lr=0.5", "name=mine", f"seed={seed}"]), step=2)
    for seed, changed in enumerate(["optimizer.betas=[0.9,0.95]", "objective=clip_reg", "train.device=cpu"]):
        untrained(compose_run([*SMALL, changed, "name=mixed", f"seed={seed}"]))
    ignored = ("data.scenes.num_train=64", "name=photographs")  # the run's data are no rendered scenes
    untrained(compose_run([*SMALL, *ignored]))
    write_text(tmp_path / "runs/broken/s0/config.yaml", "name: [\n")
    unknown = untrained(settings(tmp_path / "other"))
    printed = clipx_here("ls", "runs", "runs", str(unknown), cwd=tmp_path).stdout
    mine = next(line for line in printed.splitlines() if line.startswith("runs/mine"))
    assert "s0 .. s3 (2)" in mine and " 2 " in mine
    assert "optimizer.lr=0.5" in mine and "train.batch_size=8" in mine and "weight_decay" not in mine
    assert "data.scenes" not in next(line for line in printed.splitlines() if line.startswith("runs/photographs"))
    mixed = next(line for line in printed.splitlines() if line.startswith("runs/mixed"))
    shown = [set(part.split()) for part in mixed.split("(3)")[1].split(" | ")]
    assert [one & {"0.95]'", "objective.positive.weight=0.1"} for one in shown] == [
        {"0.95]'"},
        {"objective.positive.weight=0.1"},
        set(),
    ]
    assert "recipe=test is not known; recipes of your own: --config-dir" in printed
    assert "runs/broken/s0/config.yaml is not readable YAML" in printed
    assert "runs/mine" in clipx_here("ls", "theory", "runs", cwd=tmp_path).stdout
