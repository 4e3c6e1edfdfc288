"""`clipx report claims` and `clipx report missing-objects`: verdicts and one measurement in the terminal."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clipx.errors import UserError
from evaluation import missing_objects, runs
from evaluation.claims.evidence import gather, outcomes
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Outcome

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}


def claims(arguments: list[str]) -> None:
    """RUN_OR_DIR...; a line a claim, and below it one for each of several parts.

    Raises:
        UserError: no folder given, or one with neither runs nor a claims.json.
    """
    paths = [Path(argument) for argument in arguments]
    if not paths:
        raise UserError("give run directories or a folder of runs: clipx report claims RUN_OR_DIR...")
    show(paths, [claim.id for claim in CLAIMS])


def show(paths: list[Path], ids: list[str]) -> None:
    """Prints the verdicts of the claims with these ids, and what to type for those that were not run.

    Raises:
        UserError: a folder with neither runs nor a claims.json.
    """
    evidence = gather(runs.find(paths, needed=False), paths)
    if not evidence.runs and not evidence.stated:
        raise UserError(f"no run and no claims.json at or below {', '.join(map(str, paths))}; {runs.HINT}")
    found = outcomes(tuple(claim for claim in CLAIMS if claim.id in ids), evidence)
    table = Table(box=box.SIMPLE, caption="effects point in the claim's direction; 95% intervals over paired seeds")
    table.add_column("claim", no_wrap=True)
    table.add_column("statement", overflow="fold")
    for column in ("effect", "95% interval", "more than", "seeds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in found:
        _add(table, outcome)
    console = Console()
    console.print(table)
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


def _add(table: Table, outcome: Outcome) -> None:
    table.add_section()
    if outcome.verdict == "not run":
        table.add_row(outcome.claim.id, outcome.claim.statement, "", "", "", "", _verdict("not run"))
        return
    single = outcome.findings[0] if len(outcome.findings) == 1 else None
    notes = [outcome.recipe, *([single.note] if single and single.note else [])]
    statement = f"{outcome.claim.statement}\n({'; '.join(notes)})"
    numbers = _numbers(single) if single else [""] * 4
    table.add_row(outcome.claim.id, Text(statement), *numbers, _verdict(outcome.verdict))
    for finding in () if single else outcome.findings:
        label = f"  {finding.label}" + (f"\n  {finding.note}" if finding.note else "")
        table.add_row("", Text(label), *_numbers(finding), _verdict(finding.verdict))


def _numbers(finding: Finding) -> list[str]:
    effect = "" if finding.effect is None else f"{finding.effect:.4f}"
    interval = "" if finding.low is None or finding.high is None else f"{finding.low:.4f} .. {finding.high:.4f}"
    return [effect, interval, "" if finding.least is None else f"{finding.least:g}", str(finding.seeds or "")]


def _verdict(verdict: str) -> Text:
    return Text(verdict, style=COLOURS[verdict])


def missing(arguments: list[str]) -> None:
    """CAPTIONS.json INSTANCES.json | FOLDER of both [out=DIR]; prints the shares and writes claims.json.

    Raises:
        UserError: no or unusable annotations.
    """
    paths = [Path(a) for a in arguments if not a.startswith("out=")]
    outs = [Path(a.removeprefix("out=")) for a in arguments if a.startswith("out=")]
    if not paths or len(outs) > 1:
        raise UserError("give COCO annotations: clipx report missing-objects ANNOTATIONS_FOLDER [out=DIR]")
    counted = missing_objects.count(missing_objects.find(paths))
    out = outs[0] if outs else Path("runs/missing_objects")
    for file in missing_objects.write(counted, out):
        print(file)
    print(missing_objects.sentence(counted))
