"""`clipx report`: run directories in, three files out."""

from pathlib import Path

from clipx.errors import UserError
from evaluation.report import write


def report(arguments: list[str]) -> None:
    """RUN_OR_DIR... [out=DIR]; prints what was written.

    Raises:
        UserError: no folder given, or one without runs.
    """
    paths = [Path(a) for a in arguments if not a.startswith("out=")]
    outs = [Path(a.removeprefix("out=")) for a in arguments if a.startswith("out=")]
    if not paths or len(outs) > 1:
        raise UserError("give run directories or a folder of runs: clipx report RUN_OR_DIR... [out=DIR]")
    written = write(paths, outs[0] if outs else paths[0])
    for path in (written.html, written.markdown, written.csv):
        print(path)
