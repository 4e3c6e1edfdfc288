"""`clipx reproduce` with until=decided and stored designs: refusals, hours=, dry=true, the last line printed."""

import random
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cli.reproduce import command
from cli.reproduce.plan import PlannedRun, make_plan
from cli.reproduce.until import Tried
from cli.settings.compose import compose_run
from clipx.errors import UserError
from tests.helpers import synthetic


@pytest.fixture
def fake_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `clipx reproduce recipe=clip_reg_mini` write folders instead of training: clip_reg is far above clip."""

    def run_all(pool: object, runs: list[PlannedRun], jobs: int, deadline: float | None = None) -> Tried:
        if deadline is not None and time.monotonic() > deadline - 3600:  # a run takes an hour
            return Tried(stopped=True)
        for run in runs:
            if not run.folder.exists():
                arm, seed = run.config.arm, run.config.seed
                value = {"clip_reg": 0.7}.get(arm, 0.5) + random.Random(f"{arm} {seed}").gauss(0, 0.004)
                log = [{"step": 1, "samples": 64, "images_per_s": 64 / 3600}]
                made = synthetic.run("clip_reg_mini", arm, seed, {("zeroshot", "scenes_colour", "top1"): value}, log)
                synthetic.write(tmp_path, made)
        return Tried([run.folder for run in runs])

    monkeypatch.setattr(command, "_run_all", run_all)
    monkeypatch.setattr(command, "_pool", lambda gpus: nullcontext())
    monkeypatch.setattr(command, "_check_evaluations", list)


def reproduce(tmp_path: Path, *arguments: str) -> None:
    command.reproduce(["recipe=clip_reg_mini", "arms=clip,clip_reg", f"runs={tmp_path}", *arguments])


def test_the_command_reports_the_verdicts_and_how_it_ended(
    fake_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce(tmp_path, "until=decided")
    printed = capsys.readouterr().out
    assert "1.5 holds" in printed
    assert "1.5 at 3 seeds" in printed.splitlines()[-1]
    page = (tmp_path / "clip_reg_mini-report" / "report.html").read_text()
    assert "Drawn by <code>clipx reproduce recipe=clip_reg_mini " in page
    assert (tmp_path / "designs" / "clip_reg_mini.json").exists()
    reproduce(tmp_path, "until=decided", "report=true")  # seeds up to the last look do not exist, and need not


def test_when_the_hours_end_before_the_first_run_the_command_succeeds(
    fake_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce(tmp_path, "until=decided", "hours=0.5")
    assert "hours= is used up; 6 runs of the look at 3 seeds remain" in capsys.readouterr().out
    assert not list(tmp_path.glob("*/s*"))


@pytest.fixture
def without_report(fake_training: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_report", lambda *_: None)


@pytest.mark.parametrize(
    ("mode", "changed"),
    [
        ("seeds=1", "looks=[3,5]"),
        ("dry=true", "train.batch_size=128"),
        ("until=decided", "objective.positive.weight=2"),
    ],
)
def test_only_the_stored_design_is_accepted(mode: str, changed: str, without_report: None, tmp_path: Path) -> None:
    reproduce(tmp_path, "seeds=1", "looks=[3,10]")
    with pytest.raises(UserError, match=r"clip_reg_mini\.json stores another design") as raised:
        reproduce(tmp_path, mode, changed)
    assert "\n" not in str(raised.value)
    assert {folder.name for folder in tmp_path.glob("*/s*")} == {"s0"}


def test_settings_that_change_no_result_and_other_arms_share_the_design(without_report: None, tmp_path: Path) -> None:
    reproduce(tmp_path, "seeds=1", "looks=[3,10]")
    reproduce(tmp_path, "seeds=2", "train.device=cpu", "data.workers=0", f"data.root={tmp_path}", "jobs=2")
    command.reproduce(["recipe=clip_reg_mini", "arms=cyclip", f"runs={tmp_path}", "until=decided"])
    assert make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"].keys() == {3, 10}


def test_runs_from_before_a_design_keep_five_looks_with_equal_error_rates(without_report: None, tmp_path: Path) -> None:
    fresh = make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"]
    assert list(fresh) == [3, 5, 8] and fresh[8] > 4 * fresh[5] > 40 * fresh[3]
    (tmp_path / "clip_reg_mini-clip" / "s0").mkdir(parents=True)
    reproduce(tmp_path, "seeds=1")
    kept = make_plan(["recipe=clip_reg_mini", f"runs={tmp_path}"]).looks["clip_reg_mini"]
    assert kept == dict.fromkeys((3, 5, 8, 12, 20), 0.005)


def test_a_recipe_without_claims_has_no_design(without_report: None, tmp_path: Path) -> None:
    command.reproduce(["recipe=demo", f"runs={tmp_path}"])
    assert not (tmp_path / "designs").exists()


def test_a_dry_run_prints_what_undecided_claims_need(
    fake_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for seed in range(3):
        for arm, value in (("clip", 0.5), ("clip_reg", 0.5 + 0.01 * seed)):
            log = [{"step": 1, "samples": 64, "images_per_s": 64 / 3600}]  # an hour
            values = {("zeroshot", "scenes_colour", "top1"): value + 0.001 * seed}
            synthetic.write(tmp_path, synthetic.run("clip_reg_mini", arm, seed, values, log))
    reproduce(tmp_path, "until=decided", "max_seeds=8", "jobs=2", "dry=true")
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if line.strip().startswith("1.5 clip_reg_mini")]
    # five more seeds of two arms, an hour each, two runs at a time
    assert row[-3:] == [">", "8", "5.0"]
    assert lines[-1] == "all together: 10 runs, about 5.0 hours with jobs=2"


def test_a_dry_run_without_runs_prints_the_cost_of_the_first_look_and_stores_no_design(
    fake_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce(tmp_path, "dry=true")
    reproduce(tmp_path, "until=decided", "dry=true")
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out
    assert "no run so far: the cost of the first look" in printed and "6 runs, 1 at a time" in printed


@pytest.mark.slow
def test_hours_stop_running_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_run(["recipe=gap_mini", "arm=base"])
    monkeypatch.setattr(command, "run_one", exec)  # not a function of this file, which imports torch in each process
    monkeypatch.setattr(command, "handled_signals", list)
    long = "import time; time.sleep(600)"  # until the stopped pool sends SIGTERM
    runs = [
        PlannedRun(code, replace(config, seed=seed))  # type: ignore[arg-type]
        for seed, code in enumerate(["pass", long, long, long])
    ]
    with command._pool([""]) as pool:
        first = command._run_all(pool, runs[:1], 1)
        start = time.monotonic()
        second = command._run_all(pool, runs[1:], 1, start + 0.5)
    assert (first.finished, first.stopped) == ([runs[0].folder], False)
    assert second == Tried(stopped=True)
    assert time.monotonic() - start < 60
    assert command._run_all(pool, runs, 1, start) == Tried(stopped=True)


def test_folders_of_other_recipes_and_reports_do_not_count_as_runs_of_a_recipe(tmp_path: Path) -> None:
    for name in ("gap_mini_own-base/s0", "gap_mini-report/scaling_files"):
        (tmp_path / name).mkdir(parents=True)
    plan = ["recipe=gap_mini", "looks=[3,5]", f"runs={tmp_path}"]
    make_plan(plan)
    (tmp_path / "gap_mini-base" / "s0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"looks=3,5 must be chosen before the first seed, but .*gap_mini-base/s0"):
        make_plan(plan)
