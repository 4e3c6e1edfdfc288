"""`clipx report power`: seeds and hours that undecided claims need, from runs with known effects."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cli.report.command import report
from cli.report.power import by_arm, hours, mean_seconds, missing
from clipx.errors import UserError
from clipx.run.folder import TIMING
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import look_reached, open_parts
from evaluation.runs.reader import read
from tests.helpers import synthetic

STEPS = [-0.02, 0.02, 0.0]  # their standard deviation, the spread, is 0.02


def log(seconds: float) -> list[dict[str, float]]:
    return [{"step": 1, "samples": 64, "images_per_s": 64 / seconds}]


def write(root: Path, effect: float, steps: list[float], arms: tuple[str, ...] = ("clip", "clip_reg")) -> None:
    """Write runs of claim 1.5, half an hour each. `steps`: deviation from the effect in each seed."""
    for seed, step in enumerate(steps):
        for arm in arms:
            value = 0.5 + (effect + step if arm == "clip_reg" else 0.0)
            run = synthetic.run("clip_reg_mini", arm, seed, {("zeroshot", "s", "top1"): value}, log(1800))
            synthetic.write(root, run)


def printed(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], list[str]]:
    """Return the words of the row of claim 1.5 ([] if it has no row), and all lines."""
    capsys.readouterr()
    report(["power", str(root), *arguments])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.strip().startswith("1.5 clip_reg_mini")]
    return rows[0] if rows else [], lines


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_the_row_has_effect_spread_seeds_look_and_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    effect, least, spread = 0.041, 0.005, 0.02
    write(tmp_path, effect, STEPS)
    words, lines = printed(tmp_path, capsys, "jobs=2")
    # the smallest n at which the t statistic, which the effect makes noncentral, exceeds the 99.5% quantile of
    # Student's t in 80% of cases
    n = np.arange(4, 100)
    power = stats.nct.sf(stats.t.isf(0.005, n - 1), n - 1, (effect - least) * np.sqrt(n) / spread)
    needed = n[np.argmax(power >= 0.8)]
    assert needed == 8
    # five more seeds of two arms, half an hour each, two runs at a time
    assert words[-7:] == ["0.0410", "0.005", "0.0200", "3", "8", "8", "2.5"]
    assert lines[-1] == "all together: 10 runs, about 2.5 hours with jobs=2"


def test_a_decided_claim_is_listed_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0.2, [-0.001, 0.001, 0.0])
    words, lines = printed(tmp_path, capsys)
    assert words == []
    assert [line for line in lines if line.startswith("decided: ")] == ["decided: 1.5 clip_reg_mini (holds)"]


def test_a_claim_that_more_seeds_cannot_decide_is_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0.041, STEPS)
    empty = tmp_path / "clip_reg_mini-clip" / "s1"
    (empty / "results.jsonl").write_text("")
    words, lines = printed(tmp_path, capsys)
    assert words == []
    assert f"more seeds do not help: {empty} gives no number (1.5 clip_reg_mini: clip_reg − clip, zero-shot)" in lines


def test_a_need_beyond_the_last_look_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0.01, STEPS)
    words, _ = printed(tmp_path, capsys)
    assert words[-3:] == [">", "20", "17.0"]  # 17 seeds of two arms


def test_before_the_first_look_only_this_look_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0.01, STEPS[:2])
    words, _ = printed(tmp_path, capsys)
    assert words[-5:] == ["-", "2", "-", "3", "1.0"]


def test_the_looks_of_the_stored_design_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0.041, STEPS)
    (tmp_path / "designs").mkdir()
    design = '{"recipe": "clip_reg_mini", "recipe_hash": "", "arms": [], "looks": [3, 30], "claims": {}}'
    (tmp_path / "designs" / "clip_reg_mini.json").write_text(design)
    words, _ = printed(tmp_path, capsys)
    assert words[-2:] == ["30", "27.0"]


def test_runs_that_test_no_claim_are_refused(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.run("demo", "", 0, {}))
    with pytest.raises(UserError, match=r"tests a claim; clipx ls claims"):
        report(["power", str(tmp_path)])


def test_hours_count_missing_seeds_with_training_and_evaluation(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, synthetic.run("r", "a", 1, {}, log(1800)))
    (folder / TIMING).write_text('{"evaluation_seconds": 1800}')
    one = read(folder)
    runs = by_arm([one, replace(one, seed=7, evaluation_seconds=0.0)])
    assert mean_seconds(runs["r"], "a") == pytest.approx(2700)
    assert mean_seconds(runs["r"], "b") == pytest.approx(2700)
    left = missing({("r", "a"): 5, ("r", "b"): 5}, runs)
    assert left == {("r", "a"): 4, ("r", "b"): 5}  # seed 7 is beyond the fifth seed
    assert hours(left, runs, jobs=3) == pytest.approx(9 * 0.75 / 3)
    assert hours({("other", "a"): 5}, runs, jobs=1) is None
    assert hours({("other", "a"): 0}, runs, jobs=1) == 0


@pytest.mark.parametrize(
    ("seeds", "needed", "look"), [(2, None, 3), (3, 4, 5), (3, 5, 5), (5, 12, 12), (5, 13, None), (5, None, None)]
)
def test_the_look_is_the_first_with_the_seeds_needed(seeds: int, needed: int | None, look: int | None) -> None:
    assert look_reached(Finding("", "undecided", seeds, seeds_needed=needed), (3, 5, 8, 12)) == look


def test_only_undecided_parts_of_undecided_claims_are_open() -> None:
    claim = synthetic.claim("4.4")
    parts = claim.parts("gap_mini")
    findings = [Finding(part.label, "holds") for part in parts]
    findings[1] = Finding(parts[1].label, "undecided")
    assert open_parts(Outcome(claim, "gap_mini", "undecided", findings)) == [(parts[1], findings[1])]
    assert open_parts(Outcome(claim, "gap_mini", "does not hold", findings)) == []
