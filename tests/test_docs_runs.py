"""docs/runs/*.tar.xz: the runs behind tables of the documentation. They have no weights and give the same numbers."""

import re
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.claims.design import REPLICATION
from evaluation.claims.measures import RECALL_1
from evaluation.claims.table import CLAIMS
from evaluation.compare.ladders import find_ladders
from evaluation.compare.methods import MethodComparison, compare, paired, seed_mean, shared_values
from evaluation.runs import reader
from evaluation.runs.groups import RunGroup, group_runs
from tests.helpers import page_tables

DOCS = Path(__file__).parent.parent / "docs"
ARCHIVES = sorted((DOCS / "runs").glob("*.tar.xz"))
FILES = {name for name in page_tables.FILES if "/" not in name}
NOT_EVALUATED = {"gap_dynamics_mini.tar.xz", "gap_init_mini.tar.xz"}  # their claims are about the log
# claim 5.5 reads the draws
MEMBER = re.compile(r"runs/([\w.+-]+/s\d+/([\w.]+|artifacts/zeroshot_draws-\w+\.json)|designs/\w+\.json)")
SCORES = ("zeroshot", "retrieval", "pairs")


def test_an_archive_has_settings_logs_and_results_only() -> None:
    for archive in ARCHIVES:
        assert archive.stat().st_size < 2e6
        with tarfile.open(archive, "r|xz") as tar:  # in one pass, because each pass unpacks all
            texts = {one: file.read().decode() for one in tar if (file := tar.extractfile(one))}
            assert len(texts) == len(tar.getmembers())
        assert all(one.isfile() and MEMBER.fullmatch(one.name) for one in texts), archive
        members = [one for one in texts if not one.name.startswith("runs/designs/")]
        expected = FILES - {"results.jsonl"} if archive.name in NOT_EVALUATED else FILES
        assert {one.name.rpartition("/")[2] for one in members if "/artifacts/" not in one.name} == expected
        assert not any(re.search(r"/(home|root|tmp|work)/", text) for text in texts.values()), archive


def unpacked(folder: Path, *archives: str) -> list[RunGroup]:
    """Return the runs of some archives, by method."""
    for archive in archives:
        with tarfile.open(DOCS / "runs" / f"{archive}.tar.xz") as tar:
            tar.extractall(folder, filter="data")
    return group_runs(reader.find([folder]))


def row(comparison: MethodComparison, at: int) -> str:
    """Return a method's row of the table in docs/results.md."""
    method, (first, last) = comparison.ranked[at], comparison.ranks(comparison.ranked[at])
    scores = [f"{found.value:.3f}" for name in SCORES if (found := seed_mean(method.values[name]))]
    mean, gain = seed_mean(method.values["mean"]), comparison.difference(method, comparison.reference)
    assert mean and gain
    minus = f"{gain.value:+.3f} [{gain.low:.3f}, {gain.high:.3f}]" if method is not comparison.reference else "-"
    cells = [f"{first}–{last}" if first < last else str(first), f"`{method.label}`", *scores]
    return f"| {' | '.join([*cells, f'{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]', minus])} |"


@pytest.mark.long
def test_the_tables_of_the_papers_are_those_of_their_runs(tmp_path: Path) -> None:
    page_tables.unpack(tmp_path)
    for paper, tables in page_tables.of_pages(tmp_path).items():
        page = page_tables.PAGES[paper].read_text()
        for table in tables:
            assert page_tables.in_page(page, table[0]) == table


def test_docs_claims_counts_the_verdicts_of_the_pages() -> None:
    section = (DOCS / "claims.md").read_text().partition("## Our verdicts")[2].partition("\n## ")[0]
    of_miniatures, of_photographs = " ".join(section.split()).split("On Flickr8k,")
    pages = [path.read_text() for path in page_tables.PAGES.values()]
    found = Counter(verdict for page in pages for verdict in page_tables.verdicts(page).values())
    assert counts(of_miniatures) == summary(found)
    assert sum(found.values()) == sum(claim.paper > 0 for claim in CLAIMS)
    found = Counter(verdict for page in pages for verdict in page_tables.verdicts_on_photographs(page).values())
    assert counts(of_photographs) == summary(found)
    assert sum(found.values()) == sum(len(set(claim.recipes) & set(page_tables.on_photographs())) for claim in CLAIMS)


def test_docs_claims_counts_the_narrow_intervals_on_photographs() -> None:
    head = page_tables.VERDICTS_ON_PHOTOGRAPHS[0]
    tables = [page_tables.in_page(path.read_text(), head) for path in page_tables.PAGES.values()]
    part = re.compile(r"\| ([\d.]+) \| .*? \[(-?[\d.]+), (-?[\d.]+)\]")  # s, and the interval of the effect
    found = [tuple(map(float, at.groups())) for table in tables for row in table if (at := part.search(row))]
    wide = [s for s, low, high in found if (high - low) / 2 > s + 5e-5]  # rounded to four decimals
    estimates = sum(s < 0.003 for s in wide)
    text = " ".join((DOCS / "claims.md").read_text().split())
    assert f"{len(found) - len(wide)} of the {len(found)} parts with an interval" in text
    assert f"For {estimates} more, s is below 0.3 points" in text


def counts(text: str) -> dict[str, int]:
    """Return verdict -> number, as docs/claims.md states them."""
    return {verdict: int(n) for n, verdict in re.findall(r"(\d+) (?:claims |)(hold|do not hold|are undecided)", text)}


def summary(found: Counter[str]) -> dict[str, int]:
    refuted = found["does not hold"] + found["equivalent"] + found["refuted"]
    return {"hold": found["holds"], "do not hold": refuted, "are undecided": found["undecided"]}


@pytest.mark.long
def test_the_table_of_objectives_on_skewed_scenes_is_that_of_its_runs(tmp_path: Path) -> None:
    comparisons, _ = compare(unpacked(tmp_path, "objectives_mini_skewed"))
    (found,) = [replace(one, reference_label="clip") for one in comparisons if len(one.ranked) > 1]
    assert {len(method.values["mean"]) for method in found.ranked} == {8}
    table = (DOCS / "results.md").read_text().partition("### Skewed scenes")[2].partition("###")[0]
    assert [line for line in table.splitlines() if "| `" in line] == [row(found, at) for at in range(len(found.ranked))]


def row_on_photographs(comparison: MethodComparison, at: int) -> str:
    """Return a method's row of the table of photographs, without the interval over seeds and test items."""
    method, (first, last) = comparison.ranked[at], comparison.ranks(comparison.ranked[at])
    score, gain = seed_mean(method.values["retrieval"]), comparison.difference(method, comparison.reference)
    assert score and gain
    (low, high), (least, most) = score.span, gain.span
    mean = f"{100 * score.value:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
    minus = f"{100 * gain.value:+.2f} [{100 * least:.2f}, {100 * most:.2f}]"
    minus = "-" if method is comparison.reference else minus
    return f"| {f'{first}–{last}' if first < last else first} | `{method.label}` | {mean} | {minus} |"


@pytest.mark.parametrize(
    ("archives", "seeds", "heading"),
    [
        (("objectives_photos", "objectives_photos_more"), range(20), "## Photographs"),
        pytest.param(("objectives_photos_replication",), REPLICATION, "### A replication", marks=pytest.mark.long),
    ],
)
def test_the_tables_of_objectives_on_photographs_are_those_of_their_runs(
    archives: tuple[str, ...], seeds: range, heading: str, tmp_path: Path
) -> None:
    groups = unpacked(tmp_path, *archives)
    comparisons, _ = compare(groups, by="retrieval")
    (found,) = [replace(one, reference_label="clip") for one in comparisons]
    assert all(set(method.values["retrieval"]) == set(seeds) for method in found.ranked)
    rows = [row_on_photographs(found, at) for at in range(len(found.ranked))]
    shown = ranked_rows((DOCS / "results.md").read_text().partition(f"{heading}\n")[2].partition("\n##")[0])
    assert len(shown) == len(rows) and all(line.startswith(row) for line, row in zip(shown, rows, strict=True))
    of_arm = {group.runs[0].config.arm: group for group in groups}
    if "clip_refine" in of_arm:  # is not ranked
        refined, clip = shared_values(RECALL_1, [of_arm["clip_refine"], of_arm["clip"]])
        mean, gain = seed_mean(refined), seed_mean(paired(refined, clip))
        assert mean and gain
        numbers = "{:.2f}, minus `clip` {:.2f} [{:.2f}, {:.2f}]".format(
            *(100 * x for x in (mean.value, gain.value, *gain.span))
        )
        assert f"so it is not ranked: {numbers}." in (DOCS / "results.md").read_text()


def ranked_rows(text: str) -> list[str]:
    """Return the lines of a page that are rows of a table and start with a rank."""
    return [line for line in text.splitlines() if re.match(r"\| [\d–]+ \| `", line)]


def test_the_readme_has_rows_of_the_table_of_objectives_in_their_order() -> None:
    of_page = ranked_rows((DOCS / "results.md").read_text().partition("## Photographs\n")[2].partition("\n##")[0])
    shown = ranked_rows((DOCS.parent / "README.md").read_text())
    assert shown == [row for row in of_page if row in shown] != []


@pytest.mark.long
def test_the_table_of_the_ladder_is_that_of_its_runs(tmp_path: Path) -> None:
    comparisons, left_out = compare(unpacked(tmp_path, "scaling_mini"))
    assert not left_out
    rows = [
        f"| {' | '.join([f'`{method}`', *(f'{at.value:+.3f} [{at.low:.3f}, {at.high:.3f}]' for at in gains if at)])} |"
        for ladder in find_ladders(comparisons)
        for method, gains in ladder.gains.items()
    ]
    section = (DOCS / "results.md").read_text().partition("## A ladder\n")[2]
    assert [line for line in section.splitlines() if line.startswith("| `")] == rows
