"""`clipx report claims`: the printed verdicts, and which runs count as evidence."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.report.command import report
from clipx.errors import UserError
from evaluation.claims.evidence import collect_evidence
from evaluation.runs.reader import find
from tests.helpers.synthetic import run, write


def write_arms(root: Path) -> None:
    for seed in range(3):
        for arm, value in (("clip", 0.5), ("clip_reg", 0.6)):
            write(root, run("clip_reg_mini", arm, seed, {("zeroshot", "s", "top1"): value + 0.001 * seed}))


def test_verdicts_are_printed_with_effect_interval_and_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    write_arms(tmp_path)
    report(["claims", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("1.5 holds  CLIP with the positive term beats CLIP"))
    assert lines[at + 1].strip() == "clip_reg − clip, zero-shot; 0.1000 [0.1000, 0.1000], s = 0.005; 3 seeds"
    assert "1.4, 1.6, 1.7, 1.8, 1.9, 1.13, 1.14, 1.17: clipx reproduce recipe=clip_reg_mini" in lines


def test_lines_in_a_pipe_are_not_padded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    write_arms(tmp_path)
    report(["claims", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("     clip_reg − clip") for line in lines)
    assert [line for line in lines if line != line.rstrip()] == []


def test_statements_use_the_full_width_of_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    write_arms(tmp_path)
    report(["claims", str(tmp_path)])
    (first, *_) = capsys.readouterr().out.splitlines()
    assert len(first) > 40, "the statement uses only a part of the 60 columns"


def test_a_run_with_other_settings_does_not_replace_the_run_of_the_recipe(tmp_path: Path) -> None:
    own = run("clip_reg_mini", "clip", 0, {})
    other = replace(own, name="clip_reg_mini-clip-short", path=tmp_path / "other")
    for runs in ([own, other], [other, own]):
        assert collect_evidence(runs, []).runs["clip_reg_mini"]["clip"][0] == own


def test_runs_that_cannot_be_distinguished_are_left_out_and_named(tmp_path: Path) -> None:
    twins = [replace(run("clip_reg_mini", "clip", 0, {}), name=name, path=tmp_path / name) for name in "ab"]
    found = collect_evidence(twins, [])
    assert found.runs == {}
    assert found.left_out == [f"left out, recipe=clip_reg_mini with other settings: {tmp_path / name}" for name in "ab"]


def test_arms_with_different_settings_are_not_compared(tmp_path: Path) -> None:
    usual = [run("clip_reg_mini", "clip", seed, {}) for seed in range(3)]
    longer = [run("clip_reg_mini", "clip_reg", seed, {}) for seed in range(3)]
    longer = [replace(one, name=f"{one.name}-train.samples_99", path=tmp_path / str(one.seed)) for one in longer]
    found = collect_evidence(usual + longer, [])
    assert list(found.runs["clip_reg_mini"]) == ["clip"]
    assert len(found.left_out) == 1 and "with other settings" in found.left_out[0]
    both = [replace(one, name=f"{one.name}-train.samples_99") for one in usual]
    assert set(collect_evidence(both + longer, []).runs["clip_reg_mini"]) == {"clip", "clip_reg"}


def test_a_copy_of_a_run_is_left_out_and_named(tmp_path: Path) -> None:
    one = run("clip_reg_mini", "clip", 0, {})
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
    for corrupt in ("{", '["a text"]', stated.replace("holds", "surely"), stated.replace("claim", "id")):
        file.write_text(corrupt)
        with pytest.raises(UserError, match=r"claims\.json is corrupt"):
            collect_evidence([], [tmp_path])


def test_runs_on_disk_are_found_by_arm_and_seed(tmp_path: Path) -> None:
    write_arms(tmp_path)
    evidence = collect_evidence(find([tmp_path]), [tmp_path])
    found = {arm: sorted(seeds) for arm, seeds in evidence.runs["clip_reg_mini"].items()}
    assert found == {"clip": [0, 1, 2], "clip_reg": [0, 1, 2]}


def test_a_claims_file_with_other_than_default_settings_decides_no_claim(tmp_path: Path) -> None:
    row = '{{"claim": "5.6", "statement": "s", "measured": 1, "expected": 2, "verdict": "holds", "settings": {}}}'
    (tmp_path / "claims.json").write_text(f"[{row.format('{}')}]")
    assert "5.6" in collect_evidence([], [tmp_path]).stated
    (tmp_path / "claims.json").write_text("[" + row.format('{"M": "8"}') + "]")
    assert collect_evidence([], [tmp_path]).stated == {}
