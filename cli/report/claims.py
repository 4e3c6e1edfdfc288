"""`clipx report claims` and `clipx report missing-objects`: verdicts and one measurement in the terminal."""

from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.settings.arguments import split
from clipx.errors import UserError
from evaluation.analyses import missing_objects
from evaluation.claims.evidence import collect_evidence, outcomes
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome
from evaluation.runs import reader

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}


def claims(arguments: list[str]) -> None:
    """RUN_OR_DIR...; a line a claim, and below it one for each of several parts.

    Raises:
        UserError: no folder given, or one with neither runs nor a claims.json.
    """
    paths = [Path(place) for place in split(arguments, {}, "report claims")[0]]
    if not paths:
        raise UserError("give run directories or a folder of runs: clipx report claims RUN_OR_DIR...")
    show(paths, [claim.id for claim in CLAIMS])


def show(paths: list[Path], ids: list[str]) -> None:
    """Prints the verdicts of the claims with these ids, and what to type for those that were not run.

    Raises:
        UserError: a folder with neither runs nor a claims.json.
    """
    evidence = collect_evidence(reader.find(paths, needed=False), paths)
    if not evidence.runs and not evidence.stated:
        raise UserError(f"no run and no claims.json at or below {', '.join(map(str, paths))}; {reader.HINT}")
    found = outcomes(tuple(claim for claim in CLAIMS if claim.id in ids), evidence)
    console = Console(highlight=False)
    for outcome in found:
        if outcome.verdict != "not run":
            _print(console, outcome)
    console.print("More of an effect supports the claim; intervals are of 95%, over paired seeds.", style="dim")
    for line in [*evidence.left_out, *_to_type(found)]:
        console.print(line, markup=False, soft_wrap=True)


def _to_type(found: list[Outcome]) -> list[str]:
    """A line a command that would say something about claims that were not run."""
    claims_of: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.verdict == "not run":
            command = outcome.claim.program or f"clipx reproduce recipe={outcome.recipe}"
            claims_of.setdefault(command, []).append(outcome.claim.id)
    return [f"{', '.join(ids)}: {command}" for command, ids in claims_of.items()]


def _print(console: Console, outcome: Outcome) -> None:
    """The claim and its verdict, and below it a line for each part; lines wrap where the terminal ends."""
    title = Text.assemble((f"{outcome.claim.id} {outcome.verdict}", COLOURS[outcome.verdict]))
    console.print(title.append(f"  {outcome.claim.statement}" + (f" ({outcome.recipe})" if outcome.recipe else "")))
    for finding in outcome.findings:
        words = [finding.label, *_numbers(finding)]
        if len(outcome.findings) > 1:
            words.append(finding.verdict)
        console.print(Padding(Text("; ".join([*filter(None, words), *filter(None, [finding.note])])), (0, 0, 0, 5)))


def _numbers(finding: Finding) -> list[str]:
    """`0.1000 [0.0900, 0.1100] against 0.005`, and how many seeds; "" for what a finding has not."""
    effect = "" if finding.effect is None else f"{finding.effect:.4f}"
    if finding.low is not None and finding.high is not None:
        effect += f" [{finding.low:.4f}, {finding.high:.4f}]"
    if effect and finding.least is not None:
        effect += f" against {finding.least:g}"
    return [effect, f"{finding.seeds} seeds" if finding.seeds else ""]


def missing(arguments: list[str]) -> None:
    """CAPTIONS.json INSTANCES.json | FOLDER of both [out=DIR]; prints the shares and writes claims.json.

    Raises:
        UserError: no or unusable annotations.
    """
    places, given = split(arguments, {"out": "runs/missing_objects"}, "report missing-objects")
    if not places:
        raise UserError("give COCO annotations: clipx report missing-objects ANNOTATIONS_FOLDER [out=DIR]")
    counted = missing_objects.count(missing_objects.find([Path(place) for place in places]))
    for file in missing_objects.write(counted, Path(given["out"])):
        print(file)
    print(missing_objects.sentence(counted))
