"""The report's part on the papers: verdicts on their claims, their tables, their figures."""

from evaluation.claims.evidence import Evidence
from evaluation.claims.published import TABLES
from evaluation.claims.types import Finding, Outcome, Verdict
from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Section, Table, Text, Tone
from evaluation.report.sections import paper_figures, paper_tables, theory
from evaluation.runs.groups import RunGroup

TONES: dict[Verdict, Tone] = {"holds": "good", "does not hold": "bad", "undecided": "muted", "not run": "muted"}
SIGNS: dict[Verdict, str] = {
    "holds": "▲ holds",
    "does not hold": "▼ does not hold",
    "undecided": "● undecided",
    "not run": "not run",
}
RULE = (
    "An effect is oriented so that more of it supports the claim; usually it is a difference between two arms with the "
    "same seed. A claim holds where its whole 95% interval lies above the smallest effect of interest, does not hold "
    "where it lies below, and is undecided otherwise or with fewer than three seeds."
)
MOST_NOTE = 120  # characters below a claim's statement
NUMBERS = ["Effect", "95% interval", "Smallest effect of interest", "Seeds"]
COLUMNS = ["Claim", "Verdict", "Statement", "Recipe", *NUMBERS, "Published"]


def sections(evidence: Evidence, found: list[Outcome], groups: list[RunGroup]) -> list[Section]:
    """Claims, tables and figures; short where no run bears on any claim."""
    run = [outcome for outcome in found if outcome.verdict != "not run"]
    bears = bool(run) or any(table.recipe in evidence.runs for table in TABLES)
    drawn = paper_figures.figures(groups, evidence)
    return [
        Section("Claims of the papers", [*_claims(run), *_not_run(found, run), *_left_out(evidence)]),
        Section("The papers' toy problems", theory.blocks(evidence, found)),
        Section("The papers' tables", paper_tables.blocks(evidence) if bears else []),
        Section("The papers' figures", [*([Figures(drawn)] if drawn else []), *(_undrawn(drawn) if bears else [])]),
    ]


def lead(found: list[Outcome]) -> str:
    """One sentence for the first screen; empty where nothing was run."""
    parts = []
    for verdict, words in (("holds", "hold"), ("does not hold", "do not hold"), ("undecided", "are undecided")):
        ids = [outcome.claim.id for outcome in found if outcome.verdict == verdict]
        if ids:
            parts.append(f"{len(ids)} {words} ({', '.join(ids)})")
    return f" Of the papers' claims, {'; '.join(parts)}." if parts else ""


def _claims(run: list[Outcome]) -> list[Block]:
    if not run:
        return []
    parts = [row for outcome in run if not _is_short(outcome) for row in _parts(outcome)]
    inner: list[Block] = [Text(RULE, "muted"), Table(COLUMNS, [_row(outcome) for outcome in run])]
    if parts:
        columns = ["Claim", "Verdict", "Part", *NUMBERS]
        inner.append(
            Details(
                "Parts of the claims that have several, and what programs measured", [Table(columns, parts)], open=True
            )
        )
    return inner


def _row(outcome: Outcome) -> list[Cell]:
    claim, single = outcome.claim, outcome.findings[0] if _is_short(outcome) else None
    numbers = _numbers(single) if single else [Cell("")] * 4
    statement = Cell(claim.statement, note=single.note if single else _below(len(outcome.findings)))
    verdict = Cell(SIGNS[outcome.verdict], tone=TONES[outcome.verdict])
    return [_id(claim.id), verdict, statement, Cell(outcome.recipe), *numbers, Cell(claim.published)]


def _is_short(outcome: Outcome) -> bool:
    """Whether one row says it all."""
    return len(outcome.findings) == 1 and len(outcome.findings[0].note) <= MOST_NOTE


def _below(parts: int) -> str:
    return f"{parts} parts, below" if parts > 1 else "measured numbers below"


def _parts(outcome: Outcome) -> list[list[Cell]]:
    return [
        [
            _id(outcome.claim.id),
            Cell(SIGNS[finding.verdict], tone=TONES[finding.verdict]),
            Cell(finding.label, note=finding.note),
            *_numbers(finding),
        ]
        for finding in outcome.findings
    ]


def _id(number: str) -> Cell:
    paper, _, place = number.partition(".")
    return Cell(number, int(paper) + int(place) / 100)


def _numbers(finding: Finding) -> list[Cell]:
    effect = Cell("") if finding.effect is None else Cell(f"{finding.effect:.4f}", finding.effect)
    interval = Cell("")
    if finding.low is not None and finding.high is not None:
        interval = Cell(f"[{finding.low:.4f}, {finding.high:.4f}]", finding.low)
    least = Cell("") if finding.least is None else Cell(f"{finding.least:g}", finding.least)
    return [effect, interval, least, Cell(str(finding.seeds), finding.seeds) if finding.seeds else Cell("")]


def _not_run(found: list[Outcome], run: list[Outcome]) -> list[Block]:
    others = [outcome for outcome in found if outcome not in run]
    if not others:
        return []
    rows = [
        [_id(o.claim.id), Cell(o.claim.statement), Cell(o.findings[0].note), Cell(o.claim.published)] for o in others
    ]
    table = Table(["Claim", "Statement", "Command", "Published"], rows)
    return [Details(f"{len(others)} claims that these runs say nothing about", [table])]


def _undrawn(drawn: list[Figure]) -> list[Block]:
    return [Text(f"Not drawn: {what}", "muted") for what in paper_figures.missing(drawn)]


def _left_out(evidence: Evidence) -> list[Block]:
    return [Text(line, "muted") for line in evidence.left_out]
