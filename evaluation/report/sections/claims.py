"""Section "Claims": verdicts with their effects and intervals, in tables and in a forest plot."""

import math
from typing import Any

from clipx.utils.figures import GREEN, ORANGE, RED
from clipx.verdict import DECIDED, Verdict
from evaluation.claims.assess import describe_looks, looks_of
from evaluation.claims.evidence import Evidence
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import MOST_SEEDS, survives_holm
from evaluation.report.blocks import Block, Cell, Data, Details, Figure, Table, Text, Tone, figures
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
    "An effect is usually the difference between two arms with the same seed; a larger effect supports the claim. "
    "A claim holds if the whole interval of its effect lies above the smallest effect of interest s. An interval "
    "below s refutes the claim: the claim is equivalent if the interval lies above -s, else it does not hold. The "
    "looks, the numbers of seeds at which a claim is judged, share an error rate of 2.5% per direction. "
    'Column Holm: "stays" if the verdict is the same when all claims of this report share one error rate of 2.5% a '
    'direction, else "lost".'
)
OPTIONAL = ("Replication", "Checked by")
MAX_NOTE = 120  # characters below a claim's statement; claims with longer notes go to the table of parts
MARKS: dict[Verdict, tuple[str, str]] = {  # verdict -> colour, marker in the forest plot
    "holds": (GREEN, "o"),
    "does not hold": (RED, "X"),
    "equivalent": (ORANGE, "D"),
    "refuted": (RED, "X"),
    "depends": (INK, "D"),
    "undecided": (INK, "o"),
}
LINEAR_TO = 0.1  # forest plots whose intervals reach further have a logarithmic axis outside of ±0.01
Effect = tuple[str, Finding, str]  # label, finding with a finite interval, its seeds and look
NUMBERS = ["Effect", "Interval", "Smallest effect of interest", "Seeds", "Seeds needed"]


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
    """Return one sentence with the verdicts, or "" if no claim was tested."""
    counts = []
    for verdict in (*DECIDED, "undecided"):
        if ids := [_title(outcome, outcomes) for outcome in outcomes if outcome.verdict == verdict]:
            counts.append(f"{verdict} {len(ids)} ({', '.join(ids)})")
    return f" Claims by verdict: {'; '.join(counts)}." if counts else ""


def _verdicts(outcomes: list[Outcome]) -> list[Block]:
    columns = ["Claim", "Verdict", "Replication", "Checked by", "Holm", "Statement", "Recipe", *NUMBERS, "Published"]
    stays = survives_holm(outcomes)
    rows = [_row(outcome, stays.get(f"{outcome.claim.id} {outcome.recipe}")) for outcome in outcomes]
    # without controls and replications, their columns would be empty
    shown = [at for at, name in enumerate(columns) if name not in OPTIONAL or any(row[at].text for row in rows)]
    table = Table([columns[at] for at in shown], [[row[at] for at in shown] for row in rows])
    blocks: list[Block] = [Text(RULE, "muted"), table]
    parts = [
        [_id(outcome.claim.id), _verdict(part.verdict), Cell(part.label, note=part.note), *_numbers(part)]
        for outcome in outcomes
        if not _fits_one_row(outcome)
        for part in outcome.findings
    ]
    if parts:
        table = Table(["Claim", "Verdict", "Part", *NUMBERS], parts)
        blocks.append(Details("Claims with several parts, and numbers from programs", [table], open=True))
    return blocks


def _forest(outcomes: list[Outcome], evidence: Evidence) -> list[Figure]:
    """Draw the effects that have finite intervals, in one figure per paper."""
    effects: dict[int, list[Effect]] = {}
    for outcome in outcomes:
        looks = looks_of(outcome.claim, outcome.recipe, evidence)
        for finding in outcome.findings:
            one = finding.estimate
            if one is not None and all(map(math.isfinite, (one.effect, one.low, one.high))):
                at = sum(look <= finding.seeds for look in looks)
                text = f"{finding.seeds} seeds, look {at} of {len(looks)}"
                label = f"{_title(outcome, outcomes)} {finding.label}"
                effects.setdefault(outcome.claim.paper, []).append((label, finding, text))
    caption = "effects of the claims with their intervals; tick: smallest effect of interest; at the right: seeds, look"
    return [
        forest_plot(f"forest-{paper}", f"Paper {paper}: {caption}", of_paper)
        for paper, of_paper in sorted(effects.items())
    ]


def forest_plot(name: str, caption: str, effects: list[Effect]) -> Figure:
    """Draw effects with their intervals, one per line, and a tick at the smallest effect of interest."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    found = [finding for _, finding, _ in effects]
    verdicts = [verdict for verdict in MARKS if any(finding.verdict == verdict for finding in found)]
    rows: list[list[str | float]] = []
    with drawing(name, 640, 60 + 17 * len(effects), verdicts) as (plot, axes):
        plot.colours.update({verdict: MARKS[verdict][0] for verdict in verdicts})
        for at, (label, finding, look) in enumerate(effects):
            one, (colour, marker), curve = finding.estimate, MARKS[finding.verdict], plot.curve(finding.verdict)
            assert one is not None  # only findings with a finite interval are drawn
            axes.plot([one.low, one.high], [at, at], **curve)
            fill = "none" if finding.verdict == "undecided" else colour
            axes.plot(one.effect, at, marker, markersize=6, markerfacecolor=fill, **curve)
            if finding.least is not None:
                axes.plot(finding.least, at, "|", color=INK, markersize=11, markeredgewidth=1.4)
            place: Any = {"transform": axes.get_yaxis_transform(), "va": "center_baseline"}
            axes.text(1.01, at, look, fontsize=FONT - 1, **place)
            least = "" if finding.least is None else finding.least
            rows.append([label, finding.verdict, one.effect, one.low, one.high, least, look])
        if max(map(abs, axes.get_xlim())) > LINEAR_TO:
            axes.set_xscale("symlog", linthresh=0.01)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.axvline(0, **DASHED)
        axes.set_yticks(range(len(effects)), shorten([label for label, _, _ in effects], 60))
        axes.set_ylim(len(effects) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        columns = ["effect of", "verdict", "effect", "low", "high", "smallest effect of interest", "look"]
        return plot.to_figure(caption, Data(columns, rows), "effect")


def _title(outcome: Outcome, outcomes: list[Outcome]) -> str:
    """Return the claim's id, with the recipe if several recipes test the claim: their verdicts may differ."""
    once = sum(other.claim is outcome.claim for other in outcomes) == 1
    return outcome.claim.id if once else f"{outcome.claim.id} {outcome.recipe}"


def _row(outcome: Outcome, stays: bool | None) -> list[Cell]:
    claim, findings = outcome.claim, outcome.findings
    if _fits_one_row(outcome):
        numbers, note = _numbers(findings[0]), findings[0].note
    else:
        numbers = [Cell("")] * len(NUMBERS)
        note = f"{len(findings)} parts, see below" if len(findings) > 1 else "numbers below"
    statement = Cell(claim.statement, note="; ".join(filter(None, (note, outcome.note))))
    verdict = _verdict(outcome.verdict, outcome.words)
    checked_by = Cell("; ".join(check.text for check in outcome.checked_by))
    checks = [Cell("; ".join(outcome.replication)), checked_by, Cell({True: "stays", False: "lost", None: ""}[stays])]
    return [_id(claim.id), verdict, *checks, statement, Cell(outcome.recipe), *numbers, Cell(claim.published)]


def _fits_one_row(outcome: Outcome) -> bool:
    return len(outcome.findings) == 1 and len(outcome.findings[0].note) <= MAX_NOTE


def _id(claim_id: str) -> Cell:
    paper, _, number = claim_id.partition(".")
    return Cell(claim_id, int(paper) + int(number) / 100)


def _verdict(verdict: Verdict, words: str = "") -> Cell:
    sign, tone = SIGNS[verdict]
    return Cell(sign + (words or verdict), tone=tone)


def _numbers(finding: Finding) -> list[Cell]:
    effect, interval, needed = Cell(""), Cell(""), Cell("")
    if (estimate := finding.estimate) is not None:
        effect = Cell(four_decimals(estimate.effect), estimate.effect)
        if math.isfinite(estimate.low):
            interval = Cell(f"[{four_decimals(estimate.low)}, {four_decimals(estimate.high)}]", estimate.low)
    if finding.detectable is not None:
        detectable = f"{finding.seeds} seeds detect effects {finding.detectable:.2g} away from s"
        many = finding.seeds_needed is None
        needed = Cell(f"> {MOST_SEEDS:,}" if many else str(finding.seeds_needed), finding.seeds_needed, note=detectable)
    smallest = Cell("") if finding.least is None else Cell(f"{finding.least:g}", finding.least)
    seeds = Cell(str(finding.seeds), finding.seeds) if finding.seeds else Cell("")
    return [effect, interval, smallest, seeds, needed]


def _commands(outcomes: list[Outcome]) -> list[Block]:
    rows = []
    for outcome in outcomes:
        claim, command = outcome.claim, outcome.findings[0].note
        rows.append([_id(claim.id), Cell(claim.statement), Cell(command), Cell(claim.published)])
    table = Table(["Claim", "Statement", "Command", "Published"], rows)
    return [Details(f"{len(outcomes)} claims that these runs do not test", [table])]
