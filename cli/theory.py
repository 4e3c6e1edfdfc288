"""`clipx theory`: solve the papers' toy problems, print verdicts on claims, write claims.json, tables and figures."""

import csv
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli.settings.arguments import split_given
from clipx.errors import UserError
from clipx.theory import THEORY
from clipx.theory.claims import CheckedClaim
from clipx.theory.experiment import Experiment, parse
from clipx.utils.registry import lookup
from clipx.utils.terminal import stdout_console
from evaluation.claims.evidence import write_stated

WIDTH = 110  # characters of the widest table


def theory(arguments: list[str]) -> None:
    """Run `clipx theory [NAME | all] [key=value ...] [out=DIR]`."""
    given, others = split_given(arguments)
    names = others or ["all"]
    if len(names) > 1:
        raise UserError(f"give one name, not {' '.join(names)}: clipx theory NAME [key=value ...] [out=DIR]")
    out = given.pop("out", None)
    if names != ["all"]:
        _run(names[0], lookup(THEORY, names[0], "clipx theory"), given, Path(out or f"runs/theory/{names[0]}"))
        return
    if given:
        raise UserError(f"{next(iter(given))}= needs the name of a problem: clipx theory NAME {next(iter(given))}=...")
    for name, experiment in THEORY.items():
        _run(name, experiment, {}, Path(out or "runs/theory") / name)


def _run(name: str, experiment: Experiment, given: dict[str, str], out: Path) -> None:
    result = experiment.solve(parse(experiment.settings, given))
    claims, rows = experiment.claims(result), experiment.table(result)
    console = stdout_console(least=WIDTH)
    if rows:
        table = Table(*rows[0], title=name, title_justify="left", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row.values()))
        console.print(table)
    for claim in claims:
        _print_claim(console, claim)
    # the report decides a claim only from default settings
    written = [write_stated(out, [claim.row() for claim in claims], given)]
    if rows:
        written.append(out / "table.csv")
        with written[-1].open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    written += experiment.write_figures(result, out)
    print(*written, sep="\n")


def _print_claim(console: Console, claim: CheckedClaim) -> None:
    title = f"{claim.claim}  {claim.verdict}".strip()  # a statement outside the claim table has no id
    console.print(f"\n{title}", style="bold")
    console.print(claim.statement)
    table = Table("number", "measured", "expected", "", box=None, pad_edge=False)
    for check in claim.checks:
        error = f" ± {check.error:.2g}" if check.error else ""
        table.add_row(check.name, f"{check.measured:.6g}{error}", check.expected, check.verdict)
    console.print(table)
