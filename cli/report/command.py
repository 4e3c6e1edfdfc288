"""`clipx report`: run directories in, three files out."""

from collections.abc import Callable
from pathlib import Path

from cli.report.claims import claims, missing
from cli.report.compare import show
from cli.settings.arguments import split
from clipx.errors import UserError
from evaluation.report.writer import write_report

KINDS: dict[str, Callable[[list[str]], None]] = {"claims": claims, "compare": show, "missing-objects": missing}


def report(arguments: list[str]) -> None:
    """RUN_OR_DIR... [out=DIR], or one of KINDS before them; prints what was written.

    Raises:
        UserError: no folder given, or one without runs.
    """
    if arguments and arguments[0] in KINDS:
        KINDS[arguments[0]](arguments[1:])
        return
    places, given = split(arguments, {"out": ""}, "report")
    paths = [Path(place) for place in places]
    if not paths:
        raise UserError("give run directories or a folder of runs: clipx report RUN_OR_DIR... [out=DIR]")
    written = write_report(paths, Path(given["out"] or paths[0]))
    for path in (written.html, written.markdown, written.csv):
        print(path)
