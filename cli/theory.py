"""clipx theory [NAME | all] [key=value ...] [out=DIR]

Solves a toy problem of the papers, prints measured and expected numbers and the verdicts on its claims, and writes
claims.json and figures into DIR (default runs/theory/NAME). Without a name it solves all of them, into DIR/NAME.
clipx ls theory lists the names.
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli.settings.arguments import split_given
from clipx.config.setting import parse
from clipx.errors import UserError
from clipx.theory import THEORY
from clipx.theory.experiment import Experiment, write_figure
from clipx.utils.registry import lookup
from clipx.utils.terminal import stdout_console
from clipx.verdict import CheckedClaim
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
    result = experiment.solve(parse(experiment.settings, given, f"theory {name}"))
    claims = experiment.claims(result)
    console = stdout_console(least=WIDTH)
    for claim in claims:
        _print_claim(console, claim)
    # a claim counts in reports only if it was computed with the default settings
    written = write_stated(out, [claim.row() for claim in claims], given)
    drawing = out / f"{name}.svg"
    write_figure(experiment.figure(result), drawing)
    print(written, drawing, sep="\n")


def _print_claim(console: Console, claim: CheckedClaim) -> None:
    console.print(f"\n{claim.claim}  {claim.verdict}", style="bold")
    console.print(claim.statement)
    table = Table("number", "measured", "expected", "", box=None, pad_edge=False)
    for check in claim.checks:
        error = f" ± {check.error:.2g}" if check.error else ""
        table.add_row(check.name, f"{check.measured:.6g}{error}", check.expected, check.verdict)
    console.print(table)
