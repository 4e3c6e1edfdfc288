"""The report agrees with the run directories, escapes all user text and loads nothing from elsewhere."""

import base64
import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from evaluation.claims.table import CLAIMS
from evaluation.report.blocks import Block, Cell, Document, Figures, Section, SvgFile, Table
from evaluation.report.figures import line_plot
from evaluation.report.render import render_html
from evaluation.report.writer import ReportFiles, write_report
from evaluation.runs.results import write_tables
from evaluation.types import spreadsheet_cell
from tests.helpers.report_pages import Page
from tests.helpers.report_runs import row, rows, write_lines, write_run

HOSTILE = "<script>alert(1)</script> & \"$x$ | `a` ' <img src=x onerror=alert(1)> {{ 6 * 7 }} {% raw %}"


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    tmp_path = tmp_path_factory.mktemp("one")
    write_run(tmp_path / "runs")
    return write_report([tmp_path / "runs"], tmp_path / "out")


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    tmp_path = tmp_path_factory.mktemp("two")
    for seed in (0, 1):
        config = write_run(tmp_path / "runs", seed=seed) / "config.yaml"
        config.write_text(config.read_text().replace("data:\n", f"data:\n  root: {tmp_path}/photos/of/me\n", 1))
    return write_report([tmp_path / "runs"], tmp_path / "out")


def markdown_row(report: ReportFiles, beginning: str) -> list[str]:
    (line,) = [line for line in report.markdown.read_text().splitlines() if line.startswith(f"| {beginning}")]
    return [re.sub(r"\\([\[\]])", r"\1", cell.strip()) for cell in line.strip("|").split(" | ")]


def test_csv_has_every_row_at_full_precision(two_seeds: ReportFiles) -> None:
    with two_seeds.csv.open() as file:
        table = list(csv.DictReader(file))
    expected = [*rows(0), *rows(1)]
    assert len(table) == len(expected)
    for actual, expected_row in zip(table, expected, strict=True):
        for key in ("task", "dataset", "metric"):
            assert actual[key] == expected_row[key]
        for key in ("value", "low", "high"):
            assert float(actual[key]) == expected_row[key]
        assert actual["chance"] == ("" if expected_row["chance"] is None else str(expected_row["chance"]))
        assert actual["hash_checkpoint"] == expected_row["hashes"]["checkpoint"]
        assert actual["run"] == "demo"


def test_one_seed_has_its_bootstrap_interval_and_two_the_mean_of_theirs(
    one_seed: ReportFiles, two_seeds: ReportFiles
) -> None:
    one = ["90.00", "[88.00, 92.00]", "▲ above chance", "25.00", "1,000", "bootstrap"]
    two = ["92.00", "[90.00, 94.00]", "▲ above chance", "25.00", "1,000", "bootstrap, mean of 2 seeds"]
    for report, expected in ((one_seed, one), (two_seeds, two)):
        assert Page(report.html.read_text()).row("zero-shot accuracy (%)scenes_shape")[1:] == expected
        assert markdown_row(report, "zero-shot accuracy (%)")[1:] == expected


def test_the_folded_tables_have_every_row(two_seeds: ReportFiles) -> None:
    page = Page(two_seeds.html.read_text())
    for seed in (0, 1):
        (cells,) = [cells for cells in page.rows if cells[:2] == ["demo", str(seed)] and cells[3:4] == ["linear_probe"]]
        assert cells[3:8] == ["linear_probe", "scenes_shape", "test", "top1", "%"]
        assert cells[8:11] == [f"{97 + seed + d:.2f}" for d in (0, -2, 2)]
        of_set = [cells for cells in page.rows if cells[:3] == ["demo", str(seed), "scenes_shape"]]
        (hashes,) = [cells for cells in of_set if "top5" in cells[3].split(", ")]
        assert f"c0ffee{seed}" in hashes


@pytest.mark.usefixtures("no_curves")
def test_a_result_is_marked_only_if_the_whole_interval_is_beyond_chance(tmp_path: Path) -> None:
    results = [
        row("pairs", "over", "pair_accuracy", 0.30, 0, low=0.251, high=0.35),
        row("pairs", "touches", "pair_accuracy", 0.30, 0, low=0.25, high=0.35),
        row("pairs", "under", "pair_accuracy", 0.20, 0, low=0.15, high=0.249),
        row("pairs", "unknown", "pair_accuracy", 0.20, 0, chance=None),
        row("ranks", "lower", "median_rank", 3, 0, low=2, high=4, chance=50, higher_is_better=False),
        row("pairs", "trained", "pair_accuracy", 0.9, 0, low=0.8, high=1.0, hashes={"training pairs": "yes"}),
    ]
    write_run(tmp_path / "runs", results=results, with_artifacts=False)
    text = write_report([tmp_path / "runs"], tmp_path / "out").html.read_text()
    marks = {
        name: re.findall(r'class="(\w*\s?\w*)">([▲●▼-][^<]*)<', line)[:1]
        for line in text.splitlines()
        for name in re.findall(r'class="note">(\w+)<', line)
    }
    assert marks == {
        "over": [("pill good", "▲ above chance")],
        "touches": [("pill neutral", "● not different")],
        "under": [("pill bad", "▼ below chance")],
        "unknown": [("muted", "-")],
        "lower": [("pill good", "▼ below chance")],
        "trained": [("pill good", "▲ above chance")],
    }
    assert "Headline metrics whose whole 95% interval is better than chance: 2 of 4, worse: 1." in text


@pytest.mark.usefixtures("no_curves")
def test_failed_starts_and_copies_are_left_out_and_results_without_a_chance_level_not_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", results=[row("geometry", "over", "gap", 0.3, 0, chance=None)], with_artifacts=False)
    failed = write_run(tmp_path / "runs", "failed", results=[], with_artifacts=False)
    (failed / "log.jsonl").unlink()
    few = row("geometry", "over", "gap", 0.5, 1, hashes={"limit": "5"})
    write_run(tmp_path / "runs", seed=1, results=[few], with_artifacts=False)
    copytree(tmp_path / "runs/demo/s0", tmp_path / "runs/demo/s0_old")
    written = write_report([tmp_path / "runs"], tmp_path / "out")
    text = written.markdown.read_text()
    assert "Left out, because they have no training step yet: .../s0." in text
    assert "another run of the same folder has their seed: .../s0_old." in text
    assert "s0_old" not in written.csv.read_text() and "demo/s0" in written.csv.read_text()
    assert "2 runs." in text and "better than chance" not in text
    assert "Evaluated with limit=N only: .../s1. Add limited=true to include these rows." in text


def test_user_text_is_escaped_everywhere(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", name="evil", caption=HOSTILE)
    confusion = {"kind": "confused", "classnames": [HOSTILE, "b\x00\x1b"], "cells": [[0, 1, 1]]}
    (folder / "artifacts" / "zeroshot-scenes_shape.json").write_text(json.dumps(confusion))
    retrieval = folder / "artifacts" / "retrieval-scenes_captions.json"
    shown = json.loads(retrieval.read_text())
    shown["text_to_image"][0]["images"][0]["src"] = "https://example.org/track.png"
    retrieval.write_text(json.dumps(shown))
    results = [row("pairs", HOSTILE, HOSTILE, 0.5, 0, model=HOSTILE, hashes={HOSTILE: HOSTILE})]
    write_lines(folder / "results.jsonl", results)
    report = write_report([tmp_path / "runs"], tmp_path / "out")
    html = report.html.read_text()
    tags = Page(html).tags
    scripts = [attributes.get("type") for tag, attributes in tags if tag == "script"]
    assert [kind for kind in scripts if kind != "application/json"] == [None]  # report.js; browsers do not run JSON
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert "{{ 6 * 7 }} {% raw %}" in html  # template syntax in user text is not run
    markdown = report.markdown.read_text()
    assert "<script" not in markdown
    assert "<img" not in markdown
    assert "example.org" not in html + markdown  # an image that is a link
    assert not {"\x00", "\x1b"} & {*html, *markdown}
    for line in markdown.splitlines():  # a bar in a caption must not open a column beyond the seven
        if line.startswith("| &lt;script") and "image-" in line:
            assert len(re.findall(r"(?<!\\)\|", line)) == 8
    for figure in (path for path in report.figures if path.suffix == ".svg"):
        assert b"<script" not in figure.read_bytes()


def test_pictures_and_files_in_the_page_are_unchanged() -> None:
    """Base64 has slashes, with which a picture looks like an absolute folder."""
    code = "/9j/+/AA" * 4
    content, picture = base64.b64decode(code), f"data:image/jpeg;base64,{code}"
    drawn = replace(line_plot("a", "", [], "step", "loss"), pdf=content)
    blocks: list[Block] = [
        Table(["a"], [[Cell("", images=(picture,))]]),
        Figures([drawn]),
        Figures([SvgFile("b", content, "")]),
    ]
    page = Page(render_html(Document("", "", [Section("", blocks)], "")))
    found = [attributes.get(key) or "" for _, attributes in page.tags for key in ("src", "href")]
    files = [f"data:{kind};base64,{code}" for kind in ("application/pdf", "image/svg+xml", "image/svg+xml")]
    assert [uri for uri in found if "base64" in uri] == [picture, *files]


def test_the_page_loads_nothing_from_elsewhere(two_seeds: ReportFiles) -> None:
    text = two_seeds.html.read_text()
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)  # clip paths of the same page only
    for _, attributes in Page(text).tags:
        for key in ("src", "href"):
            value = attributes.get(key)
            assert value is None or value.startswith(("data:", "#")), value


def test_a_report_is_passed_on_and_has_no_absolute_path(two_seeds: ReportFiles) -> None:
    out = two_seeds.html.parent
    assert f"root: {out.parent}" in (out.parent / "runs/demo/s0/config.yaml").read_text()
    written = [path for path in out.rglob("*") if path.is_file()]
    assert len(written) > 3
    for path in written:
        assert str(out.parent).encode() not in path.read_bytes(), path.name


def test_the_correct_image_is_ticked_at_its_rank(one_seed: ReportFiles) -> None:
    rows = [row for row in Page(one_seed.html.read_text()).rows if len(row) == 7 and row[0].startswith("two large red")]
    assert len(rows) == 8  # queries; the correct answer to query q is at position q % 4, counted from 0
    for query, (_, rank, *answers) in enumerate(rows):
        assert rank == f"rank {query % 4 + 1}"
        assert ["✓" in answer for answer in answers] == [place == query % 4 for place in range(5)]


def test_a_demo_run_has_no_paper_tables_and_no_published_numbers(one_seed: ReportFiles) -> None:
    text = one_seed.html.read_text()
    assert f"{len(CLAIMS)} claims that these runs do not test" in text
    assert "Tables of the papers" not in text and "by verdict" not in text and "Nearest published" not in text
    assert "published" not in one_seed.csv.read_text()
    assert not any(path.stem.startswith(("scatter", "margins", "pca")) for path in one_seed.figures)


def test_figures_of_the_markdown_page_exist(two_seeds: ReportFiles) -> None:
    linked = set(re.findall(r"\]\(([^)]+)\)", two_seeds.markdown.read_text()))
    assert linked == {f"report_files/{path.name}" for path in two_seeds.figures}
    svgs = [path for path in two_seeds.figures if path.suffix == ".svg"]
    with_each = {path.with_suffix(end) for path in svgs for end in (".pdf", ".csv")}
    assert with_each <= set(two_seeds.figures)
    assert {path.name for path in svgs} == {"loss.svg", "temperature.svg"}


def test_same_runs_give_the_same_bytes(one_seed: ReportFiles) -> None:
    """tests/evaluation/report/test_figures.py compares PDFs, which the reports of tests lack."""
    out = one_seed.html.parent
    again = write_report([out.parent / "runs"], out.with_name("again"))
    for name in ("html", "markdown", "csv"):
        assert getattr(one_seed, name).read_bytes() == getattr(again, name).read_bytes()
    assert [p.read_bytes() for p in one_seed.figures] == [p.read_bytes() for p in again.figures]


def test_a_run_without_results_shows_the_command_that_evaluates_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", results=[], with_artifacts=False)
    (folder / "results.jsonl").unlink()
    (folder / "environment.json").unlink()
    text = write_report([tmp_path / "runs"], tmp_path / "out").html.read_text()
    assert "clipx eval .../s0" in text
    assert "Temperature τ" in text


def test_published_weights_have_a_report_without_config_and_log(tmp_path: Path) -> None:
    (tmp_path / "runs" / "vit").mkdir(parents=True)
    write_lines(tmp_path / "runs" / "vit" / "results.jsonl", rows(0))
    page = Page(write_report([tmp_path / "runs"], tmp_path / "out").html.read_text())
    assert page.row("zero-shot accuracy (%)scenes_shape")[1] == "90.00"


@pytest.mark.usefixtures("no_curves")
def test_settings_that_differ_are_in_a_table(tmp_path: Path) -> None:
    for name in ("clip", "dcl"):
        folder = write_run(tmp_path / "runs", name=name, with_artifacts=False)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("tau: 0.07", "tau: 0.05"))
    page = Page(write_report([tmp_path / "runs"], tmp_path / "out").html.read_text())
    assert ["dcl", "learned, from τ = 0.05"] in page.rows
    assert page.row("zero-shot accuracy (%)scenes_shape", "clip")[2] == "90.00"


def test_a_cell_of_a_csv_holds_no_control_characters() -> None:
    assert [*map(spreadsheet_cell, ("\x1b[2Jx\r\ny", "\t=1", "\r@x", 0.5))] == [" [2Jx  y", "' =1", "' @x", 0.5]


@pytest.mark.usefixtures("no_curves")
def test_no_cell_of_a_csv_is_a_formula_and_folders_are_relative_to_it(tmp_path: Path) -> None:
    rows = [row("zeroshot", name, "top1", -0.5, 0) for name in ("=HYPERLINK(1)", "+1", "-1", "@x", "plain")]
    run = write_run(tmp_path / "runs", name="=cmd", results=rows, with_artifacts=False)
    written = write_report([tmp_path / "runs"], tmp_path / "out").csv
    (header, *cells) = csv.reader(io.StringIO(written.read_text()))
    assert [line[header.index("dataset")] for line in cells] == ["'=HYPERLINK(1)", "'+1", "'-1", "'@x", "plain"]
    assert {line[header.index("run")] for line in cells} == {"'=cmd"}
    assert {line[header.index("value")] for line in cells} == {"-0.5"}  # a number stays a number
    assert {(written.parent / line[header.index("folder")]).resolve() for line in cells} == {run.resolve()}
    write_tables(run)
    assert "'=HYPERLINK(1)" in (run / "results.csv").read_text()
