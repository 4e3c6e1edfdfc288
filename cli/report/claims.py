"""`clipx report claims`: print the verdicts on the papers' claims."""

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from evaluation.claims.evidence import collect_evidence, outcomes
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome
from evaluation.runs import reader

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}


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
    for outcome in found:
        if outcome.verdict != "not run":
            _print(console, outcome)
    console.print("A larger effect supports the claim; 95% intervals over paired seeds.", style="dim")
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


def _print(console: Console, outcome: Outcome) -> None:
    """Print the verdict, the claim and a line per finding; rich wraps lines at the terminal's width."""
    title = Text.assemble((f"{outcome.claim.id} {outcome.verdict}", COLOURS[outcome.verdict]))
    console.print(title.append(f"  {outcome.claim.statement}" + (f" ({outcome.recipe})" if outcome.recipe else "")))
    for finding in outcome.findings:
        words = [finding.label, *_numbers(finding)]
        if len(outcome.findings) > 1:
            words.append(finding.verdict)
        console.print(Padding(Text("; ".join(filter(None, [*words, finding.note]))), (0, 0, 0, 5)))


def _numbers(finding: Finding) -> list[str]:
    """Return `0.1000 [0.0900, 0.1100] against 0.005` and the number of seeds; "" for missing numbers."""
    effect = "" if finding.effect is None else f"{finding.effect:.4f}"
    if finding.low is not None and finding.high is not None:
        effect += f" [{finding.low:.4f}, {finding.high:.4f}]"
    if effect and finding.least is not None:
        effect += f" against {finding.least:g}"
    return [effect, f"{finding.seeds} seeds" if finding.seeds else ""]
