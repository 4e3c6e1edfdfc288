"""`clipx report claims`: print the verdicts on the papers' claims and on our own."""

import math
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from evaluation.claims.assess import outcomes
from evaluation.claims.evidence import collect_evidence
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import survives_holm
from evaluation.runs import reader

COLOURS = {"holds": "green", "does not hold": "red", "equivalent": "red", "undecided": "yellow", "not run": "dim"}
LEGEND = (
    "A larger effect supports the claim; s is its smallest value of interest. Judged at 3, 5, 8, 12 and 20 seeds with "
    "99% intervals, if neither claim nor design has other looks: all looks share an error rate of 2.5% per direction."
)


def claims(arguments: list[str]) -> None:
    """Run `clipx report claims RUN_OR_DIR...`."""
    places, _ = split(arguments, {}, "report claims", "RUN_OR_DIR...")
    print_verdicts([Path(place) for place in places], [claim.id for claim in CLAIMS])


def print_verdicts(paths: list[Path], ids: list[str]) -> None:
    """Print the verdicts on the claims with these ids, and the commands that test claims without runs.

    Raises UserError: a folder with neither runs nor a claims.json.
    """
    evidence = collect_evidence(reader.find(paths, needed=False), paths)
    if not evidence.runs and not evidence.stated:
        raise UserError(f"no run and no claims.json at or below {', '.join(map(str, paths))}; {reader.HINT}")
    found = outcomes(tuple(claim for claim in CLAIMS if claim.id in ids), evidence)
    console = Console(highlight=False)
    stays = survives_holm(found)
    for outcome in found:
        if outcome.verdict != "not run":
            _print(console, outcome, stays.get(f"{outcome.claim.id} {outcome.recipe}"))
    console.print(LEGEND, style="dim")
    for line in [*evidence.left_out, *_commands(found)]:
        console.print(line, markup=False, soft_wrap=True)


def _commands(found: list[Outcome]) -> list[str]:
    """Return a line for each command that tests claims without runs: `IDS: COMMAND`."""
    claims_of: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.verdict == "not run":
            command = outcome.claim.program or f"clipx reproduce recipe={outcome.recipe}"
            claims_of.setdefault(command, []).append(outcome.claim.id)
    return [f"{', '.join(ids)}: {command}" for command, ids in claims_of.items()]


def _print(console: Console, outcome: Outcome, stays: bool | None) -> None:
    """Print the verdict, the claim and a line per finding; rich wraps lines at the terminal's width."""
    title = Text.assemble((f"{outcome.claim.id} {outcome.verdict}", COLOURS[outcome.verdict]))
    title.append("" if stays in (True, None) else " (not among all claims of this report, Holm)", "yellow")
    console.print(title.append(f"  {outcome.claim.statement}" + (f" ({outcome.recipe})" if outcome.recipe else "")))
    if outcome.note:
        console.print(Padding(Text(outcome.note, "yellow"), (0, 0, 0, 5)))
    for finding in outcome.findings:
        words = [finding.label, *_numbers(finding)]
        if len(outcome.findings) > 1:
            words.append(finding.verdict)
        console.print(Padding(Text("; ".join(filter(None, [*words, finding.note]))), (0, 0, 0, 5)))


def _numbers(finding: Finding) -> list[str]:
    """Return `0.1000 [0.0900, 0.1100], s = 0.005`, the seeds and the seeds needed; "" for missing numbers."""
    effect, estimate, needed = "", finding.estimate, ""
    if estimate is not None:
        effect = f"{estimate.effect:.4f}"
        effect += f" [{estimate.low:.4f}, {estimate.high:.4f}]" if math.isfinite(estimate.low) else ""
        effect += f", s = {finding.least:g}" if finding.least is not None else ""
    if finding.detectable is not None:
        seeds = "more than 10,000" if finding.seeds_needed is None else f"about {finding.seeds_needed}"
        needed = f"needs {seeds} seeds (80% power); {finding.seeds} seeds find effects {finding.detectable:.2g} from s"
    return [effect, f"{finding.seeds} seeds" if finding.seeds else "", needed]
