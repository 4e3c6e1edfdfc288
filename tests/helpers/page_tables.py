"""The tables of our runs in docs/papers/, computed from the runs of the miniatures in docs/runs/.

`python -m tests.helpers.page_tables [RUNS]` writes them into the pages; tests/test_docs_runs.py compares them. With a
folder of runs, it first replaces the archives by the runs that have results there.
"""

import io
import json
import math
import re
import sys
import tarfile
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from clipx.run.folder import TIMING
from evaluation.claims.assess import AT_BOUND, outcomes
from evaluation.claims.conditions import Conditions, measured_conditions
from evaluation.claims.design import FOLDER, LOOKS, REPLICATION
from evaluation.claims.evidence import Evidence, collect_evidence
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome
from evaluation.runs import reader
from evaluation.runs.description import four_decimals

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {int(path.name[0]): path for path in sorted((DOCS / "papers").glob("*.md"))}
MINIATURES, PHOTOGRAPHS = (  # recipe -> paper
    {recipe: claim.paper for claim in CLAIMS if claim.paper for recipe in claim.recipes if recipe.endswith(world)}
    for world in ("_mini", "_photos")
)
VERDICTS = ["| claim | statement or part | s | three seeds | all seeds |", "|---|---|---|---|---|"]
VERDICTS_ON_PHOTOGRAPHS = [
    "| claim, on photographs | statement or part | s | all seeds | replication, eight seeds |",
    "|---|---|---|---|---|",
]
FILES = ("config.yaml", "environment.json", "log.jsonl", "results.jsonl", TIMING, "artifacts/zeroshot_draws-*.json")
FOLDER_OF_DATA = re.compile(r"/[\w/.-]*/(?=flickr8k)")  # on the machine of the runs
TIMES = ("time", "step_s", "data_wait", "left_s")  # no table reads these numbers of a log, and they do not compress


def main(arguments: list[str]) -> None:
    """Write the tables into the pages; with a folder of runs in `arguments`, first write the archives."""
    for runs in arguments:
        pack(Path(runs))
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(folder))
        for paper, tables in of_pages(Path(folder)).items():
            text = PAGES[paper].read_text()
            for table in tables:
                text = text.replace("\n".join(in_page(text, table[0])), "\n".join(table))
            PAGES[paper].write_text(text)


def pack(runs: Path) -> None:
    """Write an archive for each recipe, with its stored design, settings, logs and results of its evaluated runs."""
    for recipe in (*MINIATURES, *PHOTOGRAPHS):
        finished = [rows.parent for name in (recipe, f"{recipe}-*") for rows in runs.glob(f"{name}/s*/results.jsonl")]
        if not finished:
            continue
        archive = _archive(recipe)
        with tarfile.open(archive.with_suffix(".new"), "w:xz") as tar:
            design = [path for path in [runs / FOLDER / f"{recipe}.json"] if path.is_file()]
            for path in design + sorted(path for run in finished for name in FILES for path in run.glob(name)):
                text = FOLDER_OF_DATA.sub("", path.read_text())
                content = _without_times(text) if path.name == "log.jsonl" else text
                member = tarfile.TarInfo(f"runs/{path.relative_to(runs)}")
                member.size = len(content.encode())
                tar.addfile(member, io.BytesIO(content.encode()))
        archive.with_suffix(".new").replace(archive)


def _without_times(log: str) -> str:
    rows = (json.loads(line) for line in log.splitlines())
    return "".join(json.dumps({key: row[key] for key in row if key not in TIMES}) + "\n" for row in rows)


def unpack(folder: Path) -> None:
    """Unpack the runs of the miniatures and those on photographs into `folder`."""
    for recipe in (*MINIATURES, *on_photographs()):
        with tarfile.open(_archive(recipe)) as tar:
            tar.extractall(folder, filter="data")


def _archive(recipe: str) -> Path:
    return DOCS / "runs" / f"{recipe}.tar.xz"


def on_photographs() -> dict[str, int]:
    """Return recipe -> paper of the recipes on photographs that have been run."""
    return {recipe: paper for recipe, paper in PHOTOGRAPHS.items() if _archive(recipe).is_file()}


def of_pages(folder: Path) -> dict[int, list[list[str]]]:
    """Return paper -> its tables, each a list of lines: verdicts, then conditions."""
    runs = reader.find([folder])
    evidence = collect_evidence(runs, [folder])
    # without the runs of controls
    counted = [run for arms in evidence.runs.values() for seeds in arms.values() for run in seeds.values()]
    conditions = {found.recipe: found for found in measured_conditions(counted)}
    tables = {paper: [_verdicts(paper, evidence)] for paper in PAGES}
    for paper in sorted(set(on_photographs().values())):
        tables[paper].append(_verdicts_on_photographs(paper, evidence))
    for recipe, paper in (MINIATURES | on_photographs()).items():
        tables[paper].append(_conditions(conditions[recipe]))
    return tables


def in_page(page: str, head: str) -> list[str]:
    """Return the lines of the table with this first line in the text of a page."""
    found = re.search(rf"^{re.escape(head)}\n(\|.*\n)+", page, re.MULTILINE)
    assert found, f"no table with the first line {head}"
    return found[0].splitlines()


def verdicts(page: str) -> dict[str, str]:
    """Return claim id -> verdict ("" if there is none): of the miniatures and of programs, from the text of a page."""
    of_programs = re.findall(r"^\| (\d\.\d+) \|[^|]*\| ([a-z ]*?) *\|", page, re.MULTILINE)
    return _of_runs(page, VERDICTS) | dict(of_programs)


def verdicts_on_photographs(page: str) -> dict[str, str]:
    """Return claim id -> verdict on photographs, from the text of a page; empty if the page has no such table."""
    return _of_runs(page, VERDICTS_ON_PHOTOGRAPHS) if VERDICTS_ON_PHOTOGRAPHS[0] in page else {}


def _of_runs(page: str, head: list[str]) -> dict[str, str]:
    table = "\n".join(in_page(page, head[0]))
    return dict(re.findall(r"^\| \*\*(\d\.\d+)\*\* .*\| \*\*([a-z ]+)\*\*", table, re.MULTILINE))


def _conditions(found: Conditions) -> list[str]:
    """Return the table of measured conditions without the sources and without rows that we did not measure."""
    rows = [_row(label, paper, ours) for label, paper, ours, _ in found.table() if ours]
    ours = "miniature" if found.recipe in MINIATURES else "ours"
    return [f"| `{found.recipe}` | paper {found.paper.paper} | {ours} |", "|---|---|---|", *rows]


def _verdicts(paper: int, evidence: Evidence) -> list[str]:
    early, last = _outcomes(paper, MINIATURES, _first_look(evidence)), _outcomes(paper, MINIATURES, evidence)
    # a claim with its own number of seeds is judged only once
    first = [of_last if of_last.claim.looks else of_early for of_early, of_last in zip(early, last, strict=True)]
    return VERDICTS + [_row(*cells) for pair in zip(first, last, strict=True) for cells in _cells(*pair)]


def _verdicts_on_photographs(paper: int, evidence: Evidence) -> list[str]:
    found = _outcomes(paper, PHOTOGRAPHS, evidence)
    rows = [cells for outcome in found for cells in _cells(outcome, outcome)]
    again = [text for outcome in found for text in _replications(outcome)]
    return VERDICTS_ON_PHOTOGRAPHS + [
        _row(*start, last, text) for (*start, _, last), text in zip(rows, again, strict=True)
    ]


def _replications(outcome: Outcome) -> list[str]:
    """Return the replication of each row of `_cells`."""
    of_parts = [finding.replication.replace(f", {len(REPLICATION)} seeds", "") for finding in outcome.findings]
    return of_parts if len(of_parts) == 1 else ["", *of_parts]


def _outcomes(paper: int, recipes: Collection[str], evidence: Evidence) -> list[Outcome]:
    """Return the outcomes of the paper's claims in these recipes."""
    claims = tuple(claim for claim in CLAIMS if claim.paper == paper and not claim.program)
    return [outcome for outcome in outcomes(claims, evidence) if outcome.recipe in recipes]


def _first_look(evidence: Evidence) -> Evidence:
    """Return the evidence of the seeds of the first look."""
    runs = {
        recipe: {arm: {seed: run for seed, run in seeds.items() if seed < LOOKS[0]} for arm, seeds in arms.items()}
        for recipe, arms in evidence.runs.items()
    }
    return replace(evidence, runs=runs, _known={})


def _cells(first: Outcome, last: Outcome) -> list[list[str]]:
    """Return the rows of a claim, as cells: its own row and, if it has several parts, one row for each part."""
    claim = [f"**{last.claim.id}**", last.claim.statement]
    parts = list(zip(first.findings, last.findings, strict=True))
    if len(parts) == 1:
        ((before, after),) = parts
        return [[*claim, _bound(after), _cell(before), f"**{last.words}**{_numbers(after)}{_seeds(after)}"]]
    of_parts = [
        ["", after.label, _bound(after), _cell(before), _cell(after) + _seeds(after)] for before, after in parts
    ]
    return [[*claim, "", first.words, f"**{last.words}**"], *of_parts]


def _bound(finding: Finding) -> str:
    return "" if finding.least is None else f"{finding.least:g}"


def _cell(finding: Finding) -> str:
    return finding.verdict + _numbers(finding)


def _numbers(finding: Finding) -> str:
    """Return ` 0.0120 [0.0100, 0.0140]`."""
    estimate = finding.estimate
    if estimate is not None and math.isnan(estimate.low) and finding.blocked:
        return f" {four_decimals(estimate.effect)}"  # a correlation over arms, which is shown but not judged
    if estimate is None or math.isnan(estimate.low):
        return ""
    effect, low, high = map(four_decimals, (estimate.effect, estimate.low, estimate.high))
    return f" {effect} [{low}, {high}]"


def _seeds(finding: Finding) -> str:
    """Return `, 5 seeds`; for an undecided difference `, 5 seeds; needs 52` or `, 5 seeds; an estimate`."""
    needed = "; an estimate" if finding.blocked == AT_BOUND else finding.needed and f"; needs {finding.needed}"
    return f", {finding.seeds} seeds{needed}" if finding.seeds else ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
