"""`clipx report claims` and `clipx report power`: printed verdicts, evidence, seeds and time needed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cli.report.claims import mean_seconds, missing, run_time
from cli.report.command import report
from clipx.errors import UserError
from clipx.run.folder import TIMING
from evaluation.claims.evidence import collect_evidence
from evaluation.runs.reader import read
from tests.helpers.synthetic import run, write


def test_verdicts_are_printed_with_effect_interval_and_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        for arm, value in (("clip", 0.5), ("clip_reg", 0.6 + 0.001 * seed)):
            write(tmp_path, run("clip_reg_mini", arm, seed, {("zeroshot", "s", "top1"): value}))
    report(["claims", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("1.5 holds  CLIP with the positive term beats CLIP"))
    assert lines[at + 1].strip() == "clip_reg − clip, zero-shot; 0.1010 [0.0953, 0.1067], s = 0.005; 3 seeds"
    assert "1.4, 1.6, 1.7, 1.8, 1.9, 1.13, 1.14, 1.17: clipx reproduce recipe=clip_reg_mini" in lines


def test_a_run_with_other_settings_does_not_replace_the_run_of_the_recipe(tmp_path: Path) -> None:
    own = run("clip_reg_mini", "clip", 0, {})
    other = replace(own, name="clip_reg_mini-clip-short", path=tmp_path / "other")
    for runs in ([own, other], [other, own]):
        assert collect_evidence(runs, []).runs["clip_reg_mini"]["clip"][0] == own


def test_arms_with_different_settings_are_not_compared(tmp_path: Path) -> None:
    usual = [run("clip_reg_mini", "clip", seed, {}) for seed in range(3)]
    longer = [run("clip_reg_mini", "clip_reg", seed, {}) for seed in range(3)]
    longer = [replace(one, name=f"{one.name}-train.samples_99", path=tmp_path / str(one.seed)) for one in longer]
    found = collect_evidence(usual + longer, [])
    assert list(found.runs["clip_reg_mini"]) == ["clip"]
    assert len(found.left_out) == 1 and "with other settings" in found.left_out[0]
    both = [replace(one, name=f"{one.name}-train.samples_99") for one in usual]
    assert set(collect_evidence(both + longer, []).runs["clip_reg_mini"]) == {"clip", "clip_reg"}


def test_runs_that_cannot_be_distinguished_and_copies_are_left_out_and_named(tmp_path: Path) -> None:
    one = run("clip_reg_mini", "clip", 0, {})
    twins = [replace(one, name=name, path=tmp_path / name) for name in "ab"]
    found = collect_evidence(twins, [])
    assert found.runs == {}
    assert found.left_out == [f"left out, recipe=clip_reg_mini with other settings: {tmp_path / name}" for name in "ab"]
    found = collect_evidence([one, replace(one, path=tmp_path)], [])
    assert found.left_out == [f"left out, same recipe, arm and seed as {one.path}: {tmp_path}"]


def test_claims_files_are_read_and_a_corrupt_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = (
        '[{"claim": "3.3", "statement": "q up to a constant", "measured": 0.99, "expected": 0.9, "verdict": "holds"}]'
    )
    (tmp_path / "theory" / "popularity").mkdir(parents=True)
    file = tmp_path / "theory" / "popularity" / "claims.json"
    file.write_text(
        '[{"claim": "5.6", "statement": "s", "measured": {"a": 0.25, "b": null}, "expected": '
        '{"a": "<= 1", "b": ">= 0"}, "verdict": "undecided"}]'
    )
    (several,) = collect_evidence([], [tmp_path]).stated["5.6"]
    assert several.note == "a: 0.25, expected <= 1; b: None, expected >= 0"
    file.write_text(stated)
    assert [f.verdict for f in collect_evidence([], [tmp_path]).stated["3.3"]] == ["holds"]
    report(["claims", str(tmp_path)])
    assert "holds" in capsys.readouterr().out
    file.write_text(stated.replace("}]", ', "settings": {"M": "8"}}]'))
    assert collect_evidence([], [tmp_path]).stated == {}, "with other than default settings it decides no claim"
    for corrupt in ("{", '["a text"]', stated.replace("holds", "surely"), stated.replace("claim", "id")):
        file.write_text(corrupt)
        with pytest.raises(UserError, match=r"claims\.json is corrupt"):
            collect_evidence([], [tmp_path])


STEPS = [-0.02, 0.02, 0.0]  # their standard deviation, the spread, is 0.02


def log(seconds: float) -> list[dict[str, float]]:
    return [{"step": 1, "samples": 64, "images_per_s": 64 / seconds}]


def write_effect(root: Path, effect: float, steps: list[float]) -> None:
    """Write runs of claim 1.5, half an hour each. `steps`: deviation from the effect in each seed."""
    for seed, step in enumerate(steps):
        for arm in ("clip", "clip_reg"):
            value = 0.5 + (effect + step if arm == "clip_reg" else 0.0)
            one = run("clip_reg_mini", arm, seed, {("zeroshot", "s", "top1"): value}, log(1800))
            write(root, one)


def printed(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], list[str]]:
    """Return the words of the row of claim 1.5 ([] if it has no row), and all lines."""
    report(["power", str(root), *arguments])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.strip().startswith("1.5 clip_reg_mini")]
    return rows[0] if rows else [], lines


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_the_row_has_effect_spread_seeds_look_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    effect, least, spread = 0.041, 0.005, 0.02
    write_effect(tmp_path, effect, STEPS)
    words, lines = printed(tmp_path, capsys, "jobs=2")
    # the smallest n at which the t statistic, which the effect makes noncentral, exceeds the 99.5% quantile of
    # Student's t in 80% of cases
    n = np.arange(4, 100)
    power = stats.nct.sf(stats.t.isf(0.005, n - 1), n - 1, (effect - least) * np.sqrt(n) / spread)
    needed = n[np.argmax(power >= 0.8)]
    assert needed == 8
    # five more seeds of two arms, half an hour each, two runs at a time
    assert words[-10:] == ["0.0410", "0.005", "0.0200", "3", "8", "8", "2", "h", "30", "min"]
    assert lines[-1] == "all together: 10 runs, about 2 h 30 min with jobs=2"


def test_a_decided_claim_is_listed_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_effect(tmp_path, 0.2, [-0.001, 0.001, 0.0])
    words, lines = printed(tmp_path, capsys)
    assert words == []
    assert [line for line in lines if line.startswith("decided: ")] == ["decided: 1.5 clip_reg_mini (holds)"]


def test_a_claim_that_more_seeds_cannot_decide_is_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_effect(tmp_path, 0.041, STEPS)
    empty = tmp_path / "clip_reg_mini-clip" / "s1"
    (empty / "results.jsonl").write_text("")
    words, lines = printed(tmp_path, capsys)
    assert words == []
    assert f"more seeds do not help: {empty} gives no number (1.5 clip_reg_mini: clip_reg − clip, zero-shot)" in lines


@pytest.mark.parametrize(
    ("effect", "steps", "looks", "words"),
    [
        (0.01, STEPS, "", [">", "20", "17", "h", "0", "min"]),  # a need beyond the last look: 17 seeds of two arms
        (0.01, STEPS[:2], "", ["-", "2", "-", "3", "1", "h", "0", "min"]),  # before the first look: only this one
        (0.041, STEPS, "[3, 30]", ["30", "27", "h", "0", "min"]),
    ],
)
def test_the_row_ends_with_the_next_look_of_the_design_and_its_time(
    effect: float, steps: list[float], looks: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_effect(tmp_path, effect, steps)
    if looks:
        (tmp_path / "designs").mkdir()
        design = f'{{"recipe": "clip_reg_mini", "recipe_hash": "", "arms": [], "looks": {looks}, "claims": {{}}}}'
        (tmp_path / "designs" / "clip_reg_mini.json").write_text(design)
    found, _ = printed(tmp_path, capsys)
    assert found[-len(words) :] == words


def test_runs_that_test_no_claim_are_refused(tmp_path: Path) -> None:
    write(tmp_path, run("demo", "", 0, {}))
    with pytest.raises(UserError, match=r"tests a claim; clipx ls claims"):
        report(["power", str(tmp_path)])


def test_the_time_counts_missing_seeds_with_training_and_evaluation(tmp_path: Path) -> None:
    folder = write(tmp_path, run("r", "a", 1, {}, log(1800)))
    (folder / TIMING).write_text('{"evaluation_seconds": 1800}')
    one = read(folder)
    runs = {"r": {"a": {1: one, 7: replace(one, seed=7, evaluation_seconds=0.0)}}}
    assert mean_seconds(runs["r"], "a") == pytest.approx(2700)
    assert mean_seconds(runs["r"], "b") == pytest.approx(2700)
    left = missing({("r", "a"): 5, ("r", "b"): 5}, runs)
    assert left == {("r", "a"): 4, ("r", "b"): 5}  # seed 7 is beyond the fifth seed
    assert run_time(left, runs, jobs=3) == pytest.approx(9 * 2700 / 3)
    assert run_time({("other", "a"): 5}, runs, jobs=1) is None
    assert run_time({("other", "a"): 0}, runs, jobs=1) == 0
