"""`clipx report compare`: the printed tables, the pages and the files."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from cli.report.command import report
from clipx.errors import UserError
from evaluation.runs.results import add
from tests.helpers.method_runs import runs_of
from tests.helpers.synthetic import write


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Write runs of two methods; return their folder."""
    for one in runs_of("low", 0.50) + runs_of("high", 0.52):
        write(tmp_path / "runs", one)
    return str(tmp_path / "runs")


def test_the_ranking_fits_eighty_columns_and_four_files_are_written(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report(["compare", runs, f"out={tmp_path / 'out'}"])
    lines = capsys.readouterr().out.splitlines()
    (low,) = [line for line in lines if "low" in line and "-2.00" in line]
    assert low.split() == ["2", "low", "50.00", "-2.00", "[-2.43,", "-1.57]", "0.500", "3"]
    assert all(len(line) <= 80 for line in lines if str(tmp_path) not in line)
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_file()) == [
        "compare.csv", "compare.html", "compare.md", "compare.tex"
    ]  # fmt: skip


def test_the_interval_over_test_items_is_printed_too_and_each_task_has_its_page(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluation.compare.methods.over_seeds_and_items", lambda *of: (-0.5, 0.25))
    report(["compare", *sorted(map(str, Path(runs).iterdir())), "by=zeroshot"])
    assert "[-50.00, +25.00]" in (shown := capsys.readouterr().out) and "below it: 95% interval over seeds" in shown
    assert (tmp_path / "runs" / "compare_zeroshot.html").is_file(), "in the folder of both methods"


def test_an_unknown_score_or_set_is_refused_with_the_known_names(runs: str) -> None:
    with pytest.raises(UserError, match=r"^by=accuracy is not known; .*allowed: linear_probe, mean, pairs, retrieval"):
        report(["compare", runs, "by=accuracy"])
    with pytest.raises(UserError, match=r"^on=pets is not known; allowed: c, x, y$"):
        report(["compare", runs, "on=pets"])
    with pytest.raises(UserError, match=r"^reference=mid is not known; .*allowed: high, low$"):
        report(["compare", runs, "reference=mid"])


def test_differences_are_those_to_the_chosen_reference(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    report(["compare", runs, "reference=low", f"out={out}"])
    assert "+2.00 [+1.57, +2.43]" in " ".join(capsys.readouterr().out.split())
    page = (out / "compare.md").read_text()
    assert page.count("ifference to low") == 2  # of the means, and by data set
    assert "| optimizer.kind | adamw |" in page and "| optimizer.lr |" not in page, "settings that all methods share"
    with (out / "compare.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file) if row["measure"] == "mean"}
    assert {row["reference"] for row in rows.values()} == {"low"}
    assert float(rows["high"]["difference"]) == pytest.approx(0.02) and float(rows["low"]["difference"]) == 0


def test_runs_at_three_lengths_are_also_printed_as_gains_over_clip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for samples in (640, 1280, 2560):
        train = {"samples": samples, "batch_size": 64}
        for one in runs_of("clip", 0.50, train=train) + runs_of("high", 0.50 + samples / 1e5, train=train):
            name = f"{one.name}-train.samples_{samples}"
            write(tmp_path, replace(one, name=name, config=replace(one.config, name=name)))
    report(["compare", str(tmp_path), f"out={tmp_path / 'out'}"])
    printed = capsys.readouterr().out
    assert "Gain over clip against samples seen: open_clip:a on d" in printed
    (gains,) = [line.split() for line in printed.splitlines() if line.count("▲") == 3]
    assert gains == ["high", "▲", "+0.64", "▲", "+1.28", "▲", "+2.56"]
    assert "Gain over clip" in (tmp_path / "out" / "compare.tex").read_text()


def test_if_all_results_are_on_held_out_pairs_they_are_ranked_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in runs_of("low", 0.50) + runs_of("high", 0.52):
        rows = [replace(row, task="retrieval", metric=metric, dataset="x/held_out") for row in one.results
                for metric in ("image_to_text_recall@1", "text_to_image_recall@1")]  # fmt: skip
        write(tmp_path / "runs", replace(one, results=rows))
    report(["compare", str(tmp_path / "runs")])
    assert "is first of 2" in (shown := capsys.readouterr().out) and "Methods share held-out pairs only" in shown
    report(["compare", str(tmp_path / "runs"), "on=held_out"])
    assert "is first of 2" in capsys.readouterr().out
    for one in runs_of("low", 0.50):  # a set that one method alone was evaluated on
        results = tmp_path / "runs" / one.name / f"s{one.seed}" / "results.jsonl"
        add(results, [replace(row, dataset="other") for row in one.results])
    report(["compare", str(tmp_path / "runs")])
    assert "is first of 2" in (shown := capsys.readouterr().out)
    assert "No comparison counts sets that one method alone has: other." in shown


def test_training_pairs_count_in_no_score_unless_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("low", 0.50), ("high", 0.52)):
        for one, leaked in zip(runs_of(name, value), runs_of(name, 1.5 - 2 * value), strict=True):
            hashes = {"training pairs": "yes"}
            rows = [replace(row, dataset="mine", split="test, training pairs", hashes=hashes) for row in leaked.results]
            write(tmp_path / "runs", replace(one, results=[*one.results, *rows]))
    report(["compare", str(tmp_path / "runs")])
    shown = capsys.readouterr().out
    assert "high is first of 2" in shown and "No score counts training pairs: mine (on=SET takes them)" in shown
    report(["compare", str(tmp_path / "runs"), "on=mine"])
    assert "low is first of 2" in capsys.readouterr().out


def test_seeds_that_were_scored_on_other_data_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for one in runs_of("low", 0.50) + runs_of("high", 0.52):
        data = {"captions/test": "b" if one.seed == 2 else "a"}
        write(tmp_path / "runs", replace(one, results=[replace(row, hashes=row.hashes | data) for row in one.results]))
    report(["compare", str(tmp_path / "runs")])
    assert "Results on other data than those of most runs are not averaged" in capsys.readouterr().out
    report([str(tmp_path / "runs")])
    assert "are not averaged with them" in (tmp_path / "runs" / "report.md").read_text()


def test_if_all_results_have_a_limit_limited_is_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for one in runs_of("low", 0.50) + runs_of("high", 0.52):
        rows = [replace(row, hashes=row.hashes | {"limit": "2"}) for row in one.results]
        write(tmp_path / "runs", replace(one, results=rows, log=[{"step": 10, "loss": 1.0}]))
    report(["compare", str(tmp_path / "runs")])
    assert "Add limited=true" in capsys.readouterr().out
    report(["compare", str(tmp_path / "runs"), "limited=true"])
    assert "is first of 2" in (shown := capsys.readouterr().out) and "limited=true" not in shown
