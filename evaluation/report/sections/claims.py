"""Section "Claims": verdicts with their effects and intervals."""

import math

from clipx.verdict import DECIDED, Verdict
from evaluation.claims.assess import looks_of
from evaluation.claims.evidence import Evidence
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import MOST_SEEDS, survives_holm
from evaluation.report.blocks import Block, Cell, Details, Figure, Figures, Table, Text, Tone
from evaluation.report.figures.effects import Effect, forest_plot
from evaluation.runs.description import four_decimals

SIGNS: dict[Verdict, tuple[str, Tone]] = {
    "holds": ("▲ ", "good"),
    "does not hold": ("▼ ", "bad"),
    "equivalent": ("▬ ", "bad"),
    "undecided": ("● ", "neutral"),
    "not run": ("", "muted"),
}
RULE = (
    "An effect is usually the difference between two arms with the same seed; a larger effect supports the claim. "
    "A claim holds if the whole interval of its effect lies above the smallest effect of interest s. An interval "
    "below s refutes the claim: the claim is equivalent if the interval lies above -s, else it does not hold. By "
    "default claims are judged at 3, 5, 8, 12 and 20 seeds with 99% intervals: these looks share an error rate of 2.5% "
    "per direction. "
    'Column Holm: "stays" if the verdict is the same when all claims of this report share one error rate of 2.5%, else '
    '"lost".'
)
MAX_NOTE = 120  # characters below a claim's statement; claims with longer notes go to the table of parts
MAX_EFFECTS = 40  # in one forest plot; more effects have one plot per paper
NUMBERS = ["Effect", "Interval", "Smallest effect of interest", "Seeds", "Seeds needed"]


def claims(evidence: Evidence, outcomes: list[Outcome]) -> list[Block]:
    """Return the verdicts, a plot of the effects, the claims without runs (folded) and the runs that were left out."""
    tested = [outcome for outcome in outcomes if outcome.verdict != "not run"]
    untested = [outcome for outcome in outcomes if outcome.verdict == "not run"]
    return [
        *(_verdicts(tested) if tested else []),
        *_forest(tested, evidence),
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
    columns = ["Claim", "Verdict", "Holm", "Statement", "Recipe", *NUMBERS, "Published"]
    stays = survives_holm(outcomes)
    rows = [_row(outcome, stays.get(f"{outcome.claim.id} {outcome.recipe}")) for outcome in outcomes]
    blocks: list[Block] = [Text(RULE, "muted"), Table(columns, rows)]
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


def _forest(outcomes: list[Outcome], evidence: Evidence) -> list[Block]:
    """Draw the effects that have finite intervals, in one figure or in one per paper."""
    effects: dict[int, list[Effect]] = {}
    for outcome in outcomes:
        title = _title(outcome, outcomes)
        looks = looks_of(outcome.claim, outcome.recipe, evidence)
        found = [effect for finding in outcome.findings if (effect := _effect(title, finding, looks))]
        effects.setdefault(outcome.claim.paper, []).extend(found)
    together = sum(len(of_paper) for of_paper in effects.values()) <= MAX_EFFECTS
    if together:
        effects = {0: [effect for of_paper in effects.values() for effect in of_paper]}
    figures: list[Figure] = []
    for paper, of_paper in sorted(effects.items()):
        if of_paper:
            of = "" if together else f" of paper {paper}"
            title = f"Effects of the claims{of}"
            caption = f"{title} with their intervals; tick: smallest effect of interest; at the right: seeds and look"
            name = "forest" if together else f"forest-{paper}"
            figures.append(forest_plot(name, caption, of_paper))
    return [Figures(figures)] if figures else []


def _title(outcome: Outcome, outcomes: list[Outcome]) -> str:
    """Return the claim's id, with the recipe if several recipes test the claim: their verdicts may differ."""
    once = sum(other.claim is outcome.claim for other in outcomes) == 1
    return outcome.claim.id if once else f"{outcome.claim.id} {outcome.recipe}"


def _effect(title: str, finding: Finding, looks: tuple[int, ...]) -> Effect | None:
    estimate = finding.estimate
    if estimate is None or not all(map(math.isfinite, (estimate.effect, estimate.low, estimate.high))):
        return None
    look = sum(look <= finding.seeds for look in looks)
    text = f"{finding.seeds} seeds, look {look} of {len(looks)}"
    return Effect(
        f"{title} {finding.label}", finding.verdict, estimate.effect, estimate.low, estimate.high, finding.least, text
    )


def _row(outcome: Outcome, stays: bool | None) -> list[Cell]:
    claim, findings = outcome.claim, outcome.findings
    if _fits_one_row(outcome):
        numbers, note = _numbers(findings[0]), findings[0].note
    else:
        numbers = [Cell("")] * len(NUMBERS)
        note = f"{len(findings)} parts, see below" if len(findings) > 1 else "numbers below"
    statement = Cell(claim.statement, note="; ".join(filter(None, (note, outcome.note))))
    names = [_id(claim.id), _verdict(outcome.verdict), Cell({True: "stays", False: "lost", None: ""}[stays]), statement]
    return [*names, Cell(outcome.recipe), *numbers, Cell(claim.published)]


def _fits_one_row(outcome: Outcome) -> bool:
    return len(outcome.findings) == 1 and len(outcome.findings[0].note) <= MAX_NOTE


def _id(claim_id: str) -> Cell:
    paper, _, number = claim_id.partition(".")
    return Cell(claim_id, int(paper) + int(number) / 100)


def _verdict(verdict: Verdict) -> Cell:
    sign, tone = SIGNS[verdict]
    return Cell(sign + verdict, tone=tone)


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
