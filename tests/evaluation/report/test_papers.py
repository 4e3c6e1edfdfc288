"""Report sections on the papers: verdicts, tables with our and the papers' numbers, figures; none for other runs."""

import base64
import csv
import json
import math
import random
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from evaluation.claims.measurements import missing_objects
from evaluation.claims.measurements.missing_objects import MissingObjects
from evaluation.claims.published import TABLES, printed
from evaluation.report.blocks import Cell, Details, Table
from evaluation.report.sections.papers import paper_tables
from evaluation.report.writer import ReportFiles, write_report
from evaluation.runs.reader import Run
from tests.helpers import synthetic
from tests.helpers.claim_runs import geometry, seeds, zeroshot
from tests.helpers.report_pages import Page
from tests.helpers.synthetic import Values, evidence, run, with_geometry

FIXED = ("flt_1e-2", "flt_2e-2", "flt_4e-2", "flt_7e-2", "flt_1e-1", "flt_3e-1")  # in the order of tau
TOY_FIGURE = '<svg xmlns="http://www.w3.org/2000/svg"/>'
WRONG_MEANS = {("clip_reg_cc3m", "reg_only"), ("clip_reg_cc3m", "cyclip")}  # printed mean differs from the row's mean


def cells(report_blocks: list[Any], title: str) -> dict[str, list[Cell]]:
    """Return arm -> cells of the first table whose title contains `title`."""
    block = next(b for b in report_blocks if isinstance(b, Details) and title in b.summary)
    (table,) = [inner for inner in block.blocks if isinstance(inner, Table)]
    return {row[0].text: row for row in table.rows}


def test_published_rows_are_as_long_as_their_columns_and_average_to_the_printed_mean() -> None:
    for table in TABLES:
        for arm, row in table.rows.items():
            numbers = [math.nan if (value := printed(text)) is None else value for text in row.split()]
            assert len(numbers) == len(table.columns), (table.source, arm)
            means = [n for n, column in zip(numbers, table.columns, strict=True) if column.reader is None]
            others = [n for n, column in zip(numbers, table.columns, strict=True) if column.reader is not None]
            if means and (table.recipe, arm) not in WRONG_MEANS:
                assert means[0] == pytest.approx(sum(others) / len(others), abs=0.02), (table.source, arm)


def test_a_cell_has_our_number_the_papers_and_the_interval_of_the_difference() -> None:
    runs = [
        run("clip_reg_cc3m", "clip", seed, {("zeroshot", "wds_cifar10", "top1"): 0.63 + 0.01 * seed})
        for seed in range(3)
    ]
    row = cells(paper_tables(evidence(runs)), "Zero-shot top-1, clip_reg_cc3m")["clip"]
    half = 4.302652730 / 3**0.5  # t with 2 degrees of freedom; standard error of 63, 64 and 65
    assert row[1].text == "64.00"
    assert row[1].note == f"paper 63.85, +0.15 [{0.15 - half:.2f}, {0.15 + half:.2f}]"
    assert (row[2].text, row[2].note) == ("–", "paper 31.17")
    equal = [run("clip_reg_cc3m", "clip", seed, {("zeroshot", "wds_cifar10", "top1"): 0.64}) for seed in range(3)]
    assert cells(paper_tables(evidence(equal)), "Zero-shot top-1")["clip"][1].note == "paper 63.85, +0.15"
    assert row[-1].text == "clipx reproduce recipe=clip_reg_cc3m arms=clip"


def test_the_mean_needs_all_data_sets() -> None:
    sets = {"mscoco_captions": 0.24, "flickr30k": 0.46}
    values: Values = {
        ("retrieval", name, f"{way}_recall@1"): value
        for name, value in sets.items()
        for way in ("image_to_text", "text_to_image")
    }
    values[("zeroshot", "cifar100", "top1")] = 0.34
    incomplete = cells(paper_tables(evidence([run("nuclr_cc3m", "clip", 0, values)])), "nuclr_cc3m")["clip"]
    values[("zeroshot", "imagenet1k", "top1")] = 0.36
    complete = cells(paper_tables(evidence([run("nuclr_cc3m", "clip", 0, values)])), "nuclr_cc3m")["clip"]
    assert [cell.text for cell in incomplete[1:6]] == ["24.00", "46.00", "34.00", "–", "–"]
    assert [cell.text for cell in complete[1:6]] == ["24.00", "46.00", "34.00", "36.00", "35.00"]
    assert complete[5].note == "paper 35.10±0.22, -0.10"


def mini_runs() -> list[Run]:
    """Return runs of five recipes; in gap_mini, gap and uniformity depend on the temperature."""
    arms = {
        arm: geometry(gap=0.8 - 0.1 * at, uniformity=-1.2 + 0.02 * at) | zeroshot(0.5, "scenes_shape")
        for at, arm in enumerate(FIXED)
    }
    margins = {"untrained": 0.0, "tau_07": 0.5, "tau_01": 0.2, "tau_01_reg": 0.3}
    of_margins = seeds("margin_mini", {arm: geometry(margin_mean=margin) for arm, margin in margins.items()})
    runs = seeds("gap_mini", arms, noise=0.01) + [with_geometry(one, one.results[0].value) for one in of_margins]
    draw = random.Random(0)
    for seed in range(3):
        log = [{"step": t, "geometry": {"gap": 0.3 + 1 / math.log(t + 2) ** 2}} for t in range(0, 2000, 20)]
        runs += [run(recipe, "", seed, {}, log) for recipe in ("gap_dynamics_mini", "gap_dynamics_mscoco")]
    for seed in range(10):
        log = [{"step": t, "geometry": {"gap": 0.5 + draw.gauss(0.15, 0.03) * t / 10}} for t in (0, 10)]
        runs.append(run("gap_init_mini", "", seed, {}, log))
    return runs


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    root = tmp_path_factory.mktemp("papers")
    for one in mini_runs():
        synthetic.write(root / "runs", one)
    missing_objects.write(MissingObjects([30, 50, 20], 20, 0.7, 0.6, 0.8, 0.5), root / "runs" / "missing")
    folder = root / "runs" / "own_name"  # clipx theory gap_flow out=runs/own_name
    folder.mkdir()
    (folder / "closure.svg").write_text(TOY_FIGURE)
    stated = {"claim": "4.8", "statement": "Lemma", "measured": 1.0, "expected": "1", "verdict": "holds"}
    (folder / "claims.json").write_text(f"[{json.dumps(stated)}]")
    return write_report([root / "runs"], root / "out")


def test_verdicts_are_in_the_table_and_in_the_summary(papers: ReportFiles) -> None:
    text = papers.html.read_text()
    page = Page(text)
    verdicts = {cells[0]: cells[1] for cells in page.rows if len(cells) == 5}
    assert verdicts["1.2margin_mini"] == "▲ holds"
    assert [verdict for claim, verdict in verdicts.items() if claim.startswith("1.12")] == ["▲ holds"]
    assert "Claims by verdict: holds " in text.split("</header>")[0]
    assert page.row("5.1")[2].startswith("run: clipx train recipe=wpse_mini")


def test_every_paper_figure_with_data_is_drawn(papers: ReportFiles) -> None:
    names = {path.stem for path in papers.figures}
    assert {"slow-closure-gap_dynamics_mini", "early-gap-gap_init_mini", "missing-objects"} <= names
    assert {"slow-closure-gap_dynamics_mscoco", "margins-01-scenes_captions"} <= names
    assert {"margins-02-scenes_captions", "scatter-gap_mini-gap-zero-shot", "forest-1"} <= names
    assert sum(name.startswith("pca-") for name in names) == 4
    assert "scatter-gap_mini-gap-linear-probe" not in names  # the runs have no linear probe
    for path in papers.figures:
        if path.suffix == ".svg":
            ElementTree.parse(path)
    by_name = {path.stem: path.read_text() for path in papers.figures if path.suffix == ".svg"}
    assert ">untrained<" in by_name["margins-01-scenes_captions"]
    assert ">tau_01_reg<" not in by_name["margins-01-scenes_captions"]
    assert ">tau_01_reg<" in by_name["margins-02-scenes_captions"]
    ids = re.findall(r'<[a-z][^<>]* id="([^"]*)"', papers.html.read_text())
    assert len(ids) > 100 and sorted(ids) == sorted(set(ids))  # matplotlib's own ids, such as patch_1, would repeat


def test_the_forest_plot_has_the_numbers_of_the_table(papers: ReportFiles) -> None:
    (file,) = [path for path in papers.figures if path.name == "forest-1.csv"]
    with file.open() as lines:
        (margin,) = [row for row in csv.DictReader(lines) if row["effect of"].startswith("1.2 ")]
    cells = Page(papers.html.read_text()).row("1.2margin_mini", "▲ holds")
    interval = f"[{float(margin['low']):.4f}, {float(margin['high']):.4f}]"
    assert cells[2].startswith(f"{float(margin['effect']):.4f}") and interval in cells[2]
    assert (margin["verdict"], margin["look"]) == (cells[1][2:], "3 seeds, look 1 of 5")


def test_toy_problems_have_their_figures_and_verdicts(papers: ReportFiles) -> None:
    page, svg = papers.html.read_text(), base64.b64encode(TOY_FIGURE.encode()).decode()
    assert "<summary>own_name: 4.8 holds</summary>" in page
    assert f'src="data:image/svg+xml;base64,{svg}"' in page
    assert (papers.html.parent / "report_files/theory-01-own_name-closure.svg").read_text().startswith("<svg")
    assert "report_files/theory-01-own_name-closure.svg" in papers.markdown.read_text()
