"""Section "Claims": verdicts with their effects and intervals, in tables and in a forest plot."""

import math
from dataclasses import replace
from typing import Any

from clipx.utils.figures import GREEN, ORANGE, RED
from clipx.verdict import DECIDED, Verdict
from evaluation.claims.assess import describe_looks, looks_of
from evaluation.claims.evidence import Evidence
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import survives_holm
from evaluation.report.blocks import Block, Cell, Details, Figure, IntervalBar, Table, Text, Tone, figures
from evaluation.report.figures import DASHED, FONT, INK, drawing, shorten
from evaluation.runs.description import four_decimals

SIGNS: dict[Verdict, tuple[str, Tone]] = {
    "holds": ("▲ ", "good"),
    "does not hold": ("▼ ", "bad"),
    "equivalent": ("▬ ", "bad"),
    "refuted": ("▼ ", "bad"),
    "depends": ("◆ ", "neutral"),
    "undecided": ("● ", "neutral"),
    "not run": ("", "muted"),
}
RULE = (
    "A claim holds if the whole interval of its effect lies above the smallest effect of interest s. Each interval is "
    "drawn on its own scale, with s at the tick in the middle. An interval below s refutes it: the claim is equivalent "
    "if the interval lies above -s, else it does not hold. The looks, the numbers of seeds at which a claim is judged, "
    "share an error rate of 2.5% per direction; "
    '"not after Holm" marks a verdict that changes if all claims of the report share it.'
)
MAX_NOTE = 120  # characters below a claim's statement; claims with longer notes go to the table of parts
MARKS: dict[Verdict, tuple[str, str]] = {  # verdict -> colour, marker in the forest plot
    "holds": (GREEN, "o"),
    "does not hold": (RED, "X"),
    "equivalent": (ORANGE, "D"),
    "refuted": (RED, "X"),
    "depends": (INK, "D"),
    "undecided": (INK, "o"),
}
LARGEST_ON_LINEAR = 0.1  # forest plots whose intervals reach further have a logarithmic axis outside of ±0.01
Effect = tuple[str, Finding, str]  # label, finding with a finite interval, its seeds and look


def claims(evidence: Evidence, outcomes: list[Outcome]) -> list[Block]:
    """Return the verdicts, a plot of the effects, the claims without runs (folded) and the runs that were left out."""
    tested = [outcome for outcome in outcomes if outcome.verdict != "not run"]
    untested = [outcome for outcome in outcomes if outcome.verdict == "not run"]
    return [
        *(_verdicts(tested) if tested else []),
        *(Text(line, "muted") for line in describe_looks(tested, evidence)),
        *figures(_forest(tested, evidence)),
        *(_commands(untested) if untested else []),
        *(Text(line, "muted") for line in evidence.left_out),
    ]


def claims_summary(outcomes: list[Outcome]) -> str:
    """Return a sentence with the verdicts, or "" if no claim was tested."""
    by_verdict = {v: [_title(one, outcomes) for one in outcomes if one.verdict == v] for v in (*DECIDED, "undecided")}
    counts = [f"{verdict} {len(ids)} ({', '.join(ids)})" for verdict, ids in by_verdict.items() if ids]
    return f"Claims by verdict: {'; '.join(counts)}." if counts else ""


def _verdicts(outcomes: list[Outcome]) -> list[Block]:
    """Return a table with a row per claim, the parts of claims with several, and more on each claim, folded."""
    stays = survives_holm(outcomes)
    rows = [_row(outcome, stays.get(f"{outcome.claim.id} {outcome.recipe}")) for outcome in outcomes]
    blocks: list[Block] = [Text(RULE, "muted"), Table(["Claim", "Verdict", "Effect", "Statement", "Seeds"], rows)]
    parts = [
        [_id(outcome.claim.id), _verdict(part.verdict), _effect(part), Cell(part.label, note=part.note), _seeds(part)]
        for outcome in outcomes
        if not _fits_one_row(outcome)
        for part in outcome.findings
    ]
    if parts:
        table = Table(["Claim", "Verdict", "Effect", "Part", "Seeds"], parts)
        blocks.append(Details("Claims with several parts, and numbers from programs", [table], open=True))
    columns = ["Claim", "Recipe", "Published", "Replication", "Checked by"]
    more = [
        [
            _id(outcome.claim.id),
            *map(Cell, (outcome.recipe, outcome.claim.published)),
            Cell("; ".join(filter(None, (part.replication for part in outcome.findings)))),
            Cell("; ".join(check.text for check in outcome.checked_by)),
        ]
        for outcome in outcomes
    ]
    # without controls and replications, their columns would be empty
    shown = [at for at in range(len(columns)) if any(row[at].text for row in more)]
    table = Table([columns[at] for at in shown], [[row[at] for at in shown] for row in more])
    return [*blocks, Details("Published values, replications and checks", [table])]


def _forest(outcomes: list[Outcome], evidence: Evidence) -> list[Figure]:
    """Draw the effects that have finite intervals, in one figure per paper."""
    effects: dict[int, list[Effect]] = {}
    for outcome in outcomes:
        looks = looks_of(outcome.claim, outcome.recipe, evidence)
        for finding in outcome.findings:
            one = finding.estimate
            if one is not None and all(map(math.isfinite, (one.effect, one.low, one.high))):
                at = sum(seeds <= max(finding.look, finding.seeds) for seeds in looks)
                look = f"{finding.seeds} seeds, look {at} of {len(looks)}"
                label = f"{_title(outcome, outcomes)} {finding.label}"
                effects.setdefault(outcome.claim.paper, []).append((label, finding, look))
    caption = (
        "effects of the claims with their intervals; dots: seeds; tick: smallest effect of interest; right: seeds, look"
    )
    return [
        forest_plot(f"forest-{paper}", f"Paper {paper}: {caption}", of_paper)
        for paper, of_paper in sorted(effects.items())
    ]


def forest_plot(name: str, caption: str, effects: list[Effect]) -> Figure:
    """Draw effects with intervals, one per line, a dot for each seed and a tick at the smallest effect of interest."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    found = [finding for _, finding, _ in effects]
    verdicts = [verdict for verdict in MARKS if any(finding.verdict == verdict for finding in found)]
    rows: list[list[str | float]] = []
    with drawing(name, 640, 60 + 17 * len(effects), verdicts) as (plot, axes):
        plot.colours.update({verdict: MARKS[verdict][0] for verdict in verdicts})
        for at, (label, finding, look) in enumerate(effects):
            one, curve = finding.estimate, plot.curve(finding.verdict)
            colour, marker = MARKS[finding.verdict]
            assert one is not None  # only findings with a finite interval are drawn
            axes.plot([one.low, one.high], [at, at], **curve)
            if each := finding.each:
                axes.plot(each, [at] * len(each), ".", markersize=3, **curve)
            fill = "none" if finding.verdict == "undecided" else colour
            axes.plot(one.effect, at, marker, markersize=6, markerfacecolor=fill, **curve)
            if finding.least is not None:
                axes.plot(finding.least, at, "|", color=INK, markersize=11, markeredgewidth=1.4)
            place: Any = {"transform": axes.get_yaxis_transform(), "va": "center_baseline"}
            axes.text(1.01, at, look, fontsize=FONT - 1, **place)
            least = "" if finding.least is None else finding.least
            dots = " ".join(f"{effect:.6g}" for effect in each)
            rows.append([label, finding.verdict, one.effect, one.low, one.high, least, look, dots])
        if max(map(abs, axes.get_xlim())) > LARGEST_ON_LINEAR:
            axes.set_xscale("symlog", linthresh=0.01)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.axvline(0, **DASHED)
        axes.set_yticks(range(len(effects)), shorten([label for label, _, _ in effects], 60))
        axes.set_ylim(len(effects) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        columns = ["effect of", "verdict", "effect", "low", "high", "smallest effect of interest", "look", "each seed"]
        return plot.to_figure(caption, columns, rows, "effect")


def _title(outcome: Outcome, outcomes: list[Outcome]) -> str:
    """Return the claim's id, with the recipe if several recipes test the claim: their verdicts may differ."""
    once = sum(other.claim is outcome.claim for other in outcomes) == 1
    return outcome.claim.id if once else f"{outcome.claim.id} {outcome.recipe}"


def _row(outcome: Outcome, stays: bool | None) -> list[Cell]:
    claim, findings = outcome.claim, outcome.findings
    effect, seeds, note = Cell(""), Cell(""), f"{len(findings)} parts, see below"
    if _fits_one_row(outcome):
        effect, seeds, note = _effect(findings[0]), _seeds(findings[0]), findings[0].note
    elif len(findings) == 1:
        note = "numbers below"
    statement = Cell(claim.statement, note="; ".join(filter(None, (note, outcome.note))))
    verdict = _verdict(outcome.verdict, outcome.words)
    if stays is False:
        verdict = replace(verdict, note="not after Holm")
    return [replace(_id(claim.id), note=outcome.recipe), verdict, effect, statement, seeds]


def _fits_one_row(outcome: Outcome) -> bool:
    return len(outcome.findings) == 1 and len(outcome.findings[0].note) <= MAX_NOTE


def _id(claim_id: str) -> Cell:
    paper, _, number = claim_id.partition(".")
    return Cell(claim_id, int(paper) + int(number) / 100)


def _verdict(verdict: Verdict, words: str = "") -> Cell:
    sign, tone = SIGNS[verdict]
    return Cell(sign + (words or verdict), tone=tone)


def _effect(finding: Finding) -> Cell:
    """Return the effect, its interval drawn on an axis with s in the middle, and in the second line as numbers."""
    one, least = finding.estimate, finding.least
    if one is None:
        return Cell("")
    bar, notes = None, [] if least is None else [f"s = {least:g}"]
    if math.isfinite(one.low):
        notes.insert(0, f"[{four_decimals(one.low)}, {four_decimals(one.high)}]")
        middle = least or 0.0
        reach = 2 * max(abs(end - middle) for end in (one.low, one.high)) or 1.0
        low, value, high = (0.5 + (at - middle) / reach for at in (one.low, one.effect, one.high))
        bar = IntervalBar(low, value, high, chance=0.5)
    return Cell(four_decimals(one.effect), one.effect, bar=bar, note=", ".join(notes))


def _seeds(finding: Finding) -> Cell:
    """Return the number of seeds, and below it the number needed."""
    if not finding.seeds:
        return Cell("")
    return Cell(str(finding.seeds), finding.seeds, note=finding.needed and f"{finding.needed} needed")


def _commands(outcomes: list[Outcome]) -> list[Block]:
    rows = []
    for outcome in outcomes:
        claim, command = outcome.claim, outcome.findings[0].note  # that runs the claim
        rows.append([_id(claim.id), Cell(claim.statement), Cell(command), Cell(claim.published)])
    table = Table(["Claim", "Statement", "Command", "Published"], rows)
    return [Details(f"{len(outcomes)} claims that these runs do not test", [table])]
