"""`clipx reproduce` stores a design before the first seed, and reports the verdicts by it."""

import random
from contextlib import nullcontext
from pathlib import Path

import pytest

from cli.reproduce import command
from cli.reproduce.plan import PlannedRun, make_plan
from clipx.errors import UserError
from tests.helpers import synthetic


@pytest.fixture
def fake_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `clipx reproduce recipe=clip_reg_mini` write folders instead of training: clip_reg is far above clip."""

    def run_all(pool: object, runs: list[PlannedRun], jobs: int) -> dict[Path, Exception]:
        for run in (run for run in runs if not run.folder.exists()):
            arm, seed = run.config.arm, run.config.seed
            value = {"clip_reg": 0.7}.get(arm, 0.5) + random.Random(f"{arm} {seed}").gauss(0, 0.004)
            log = [{"step": 1, "samples": 64, "images_per_s": 64 / 3600}]
            made = synthetic.run("clip_reg_mini", arm, seed, {("zeroshot", "scenes_colour", "top1"): value}, log)
            synthetic.write(tmp_path, made)
        return {}

    monkeypatch.setattr(command, "_run_all", run_all)
    monkeypatch.setattr(command, "Pool", lambda gpus: nullcontext())
    monkeypatch.setattr(command, "_stop_on_signals", lambda: None)
    monkeypatch.setattr(command, "_check_evaluations", list)


@pytest.fixture
def without_report(fake_training: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_report", lambda *_: None)


def reproduce(tmp_path: Path, *arguments: str) -> None:
    command.reproduce(["recipe=clip_reg_mini", "arms=clip,clip_reg", f"runs={tmp_path}", *arguments])


def test_the_command_reports_the_verdicts(
    fake_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce(tmp_path)
    assert "1.5 holds" in capsys.readouterr().out
    page = (tmp_path / "clip_reg_mini-report" / "report.html").read_text()
    assert "Drawn by <code>clipx reproduce recipe=clip_reg_mini " in page
    assert (tmp_path / "designs" / "clip_reg_mini.json").exists()


@pytest.mark.parametrize(("mode", "changed"), [("seeds=1", "looks=[3,5]"), ("dry=true", "train.batch_size=128")])
def test_only_the_stored_design_is_accepted(mode: str, changed: str, without_report: None, tmp_path: Path) -> None:
    reproduce(tmp_path, "seeds=1", "looks=[3,10]")
    with pytest.raises(UserError, match=r"clip_reg_mini\.json stores another design") as raised:
        reproduce(tmp_path, mode, changed)
    assert "\n" not in str(raised.value)
    assert {folder.name for folder in tmp_path.glob("*/s*")} == {"s0"}


def test_settings_that_change_no_result_and_other_arms_share_the_design(without_report: None, tmp_path: Path) -> None:
    reproduce(tmp_path, "seeds=1", "looks=[3,10]")
    reproduce(tmp_path, "seeds=2", "train.device=cpu", "data.workers=0", f"data.root={tmp_path}", "jobs=2")
    command.reproduce(["recipe=clip_reg_mini", "arms=cyclip", f"runs={tmp_path}"])
    assert make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"].keys() == {3, 10}


def test_runs_from_before_a_design_keep_five_looks_with_equal_error_rates(without_report: None, tmp_path: Path) -> None:
    fresh = make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"]
    assert list(fresh) == [3, 5, 8] and fresh[8] > 4 * fresh[5] > 40 * fresh[3]
    (tmp_path / "clip_reg_mini-clip" / "s0").mkdir(parents=True)
    reproduce(tmp_path, "seeds=1")
    kept = make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"]
    assert kept == dict.fromkeys((3, 5, 8, 12, 20), 0.005)


def test_recipes_without_claims_and_dry_runs_store_no_design(without_report: None, tmp_path: Path) -> None:
    command.reproduce(["recipe=demo", f"runs={tmp_path}"])
    reproduce(tmp_path, "seeds=1", "dry=true")
    assert not (tmp_path / "designs").exists()


def test_folders_of_other_recipes_and_reports_do_not_count_as_runs_of_a_recipe(tmp_path: Path) -> None:
    for name in ("gap_mini_own-base/s0", "gap_mini-report/scaling_files"):
        (tmp_path / name).mkdir(parents=True)
    plan = ["recipe=gap_mini", "looks=[3,5]", f"runs={tmp_path}"]
    make_plan(plan)
    (tmp_path / "gap_mini-base" / "s0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"looks=3,5 must be chosen before the first seed, but .*gap_mini-base/s0"):
        make_plan(plan)
