"""`clipx report claims`: print the verdicts on the papers' claims."""

import math
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from clipx.utils.terminal import stdout_console
from evaluation.claims.assess import outcomes
from evaluation.claims.evidence import collect_evidence
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome
from evaluation.claims.verdict import survives_holm
from evaluation.runs import reader
from evaluation.runs.description import four_decimals

COLOURS = {"holds": "green", "does not hold": "red", "equivalent": "red", "undecided": "yellow", "not run": "dim"}
INDENT = (0, 0, 0, 5)  # of a line below a claim; expand=False, because a padded line in a pipe has 1,000 characters
LEGEND = (
    "A larger effect supports the claim; s is the smallest effect of interest. Claims are judged at 3, 5, 8, 12 and 20 "
    "seeds (the looks) with 99% intervals, unless the claim or the design has other looks. All looks together have an "
    "error rate of 2.5% per direction."
)


def claims(arguments: list[str]) -> None:
    """Run `clipx report claims RUN_OR_DIR...`."""
    given, _ = split(arguments, {}, "report claims", "RUN_OR_DIR...")
    print_verdicts([Path(path) for path in given], [claim.id for claim in CLAIMS])


def print_verdicts(paths: list[Path], ids: list[str]) -> None:
    """Print the verdicts on the claims with these ids, and the commands that test the claims without a verdict.

    Raises UserError: a folder is missing, or none of them has a run or a claims.json.
    """
    evidence = collect_evidence(reader.find(paths, needed=False), paths)
    if not evidence.runs and not evidence.stated:
        below = f"at or below {', '.join(map(str, paths))}"
        raise UserError(f"no run that tests a claim, and no claims.json, {below}; clipx ls claims lists the recipes")
    found = outcomes(tuple(claim for claim in CLAIMS if claim.id in ids), evidence)
    console = stdout_console()
    surviving = survives_holm(found)
    for outcome in found:
        if outcome.verdict != "not run":
            _print(console, outcome, surviving.get(f"{outcome.claim.id} {outcome.recipe}"))
    console.print(LEGEND, style="dim")
    for line in [*evidence.left_out, *_commands(found)]:
        print(line)


def _commands(found: list[Outcome]) -> list[str]:
    """Return a line `IDS: COMMAND` for each command that tests claims without a verdict."""
    claims_of: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.verdict == "not run":
            command = outcome.claim.program or f"clipx reproduce recipe={outcome.recipe}"
            claims_of.setdefault(command, []).append(outcome.claim.id)
    return [f"{', '.join(ids)}: {command}" for command, ids in claims_of.items()]


def _print(console: Console, outcome: Outcome, survives: bool | None) -> None:
    """Print the verdict and the statement of a claim, and each finding; rich wraps lines at the terminal's width."""
    title = Text.assemble((f"{outcome.claim.id} {outcome.verdict}", COLOURS[outcome.verdict]))
    title.append("" if survives in (True, None) else " (not after Holm's correction for all claims)", "yellow")
    console.print(title.append(f"  {outcome.claim.statement}" + (f" ({outcome.recipe})" if outcome.recipe else "")))
    if outcome.note:
        console.print(Padding(Text(outcome.note, "yellow"), INDENT, expand=False))
    for finding in outcome.findings:
        words = [finding.label, *_numbers(finding)]
        if len(outcome.findings) > 1:
            words.append(finding.verdict)
        console.print(Padding(Text("; ".join(filter(None, [*words, finding.note]))), INDENT, expand=False))


def _numbers(finding: Finding) -> list[str]:
    """Return the effect as `0.1000 [0.0900, 0.1100], s = 0.005`, the seeds, and the seeds needed; "" if unknown."""
    effect, estimate, needed = "", finding.estimate, ""
    if estimate is not None:
        effect, *ends = map(four_decimals, (estimate.effect, estimate.low, estimate.high))
        effect += f" [{', '.join(ends)}]" if math.isfinite(estimate.low) else ""
        effect += f", s = {finding.least:g}" if finding.least is not None else ""
    if finding.detectable is not None:
        seeds = "more than 10,000" if finding.seeds_needed is None else f"about {finding.seeds_needed}"
        distance = f"{finding.seeds} seeds detect effects {finding.detectable:.2g} away from s"
        needed = f"needs {seeds} seeds; {distance} (80% power)"
    return [effect, f"{finding.seeds} seeds" if finding.seeds else "", needed]
