"""`clipx report`: write a report on run directories; `clipx report missing-objects`: test claim 1.12 on COCO."""

import shlex
from collections.abc import Callable
from pathlib import Path

from cli.report.claims import claims, power
from cli.report.compare import compare, diff
from cli.settings.arguments import flag, split
from clipx.errors import UserError
from clipx.utils.registry import did_you_mean
from evaluation.claims.measurements import missing_objects
from evaluation.report.writer import write_report


def report(arguments: list[str]) -> None:
    """Run `clipx report RUN_OR_DIR... [key=value ...]` and print the files written, or run one of SUBCOMMANDS."""
    if arguments and arguments[0] in SUBCOMMANDS:
        SUBCOMMANDS[arguments[0]](arguments[1:])
        return
    if arguments and not Path(arguments[0]).exists() and (near := did_you_mean(arguments[0], SUBCOMMANDS)):
        raise UserError(f"clipx report {arguments[0]} is no folder; {near.strip()}")
    known = {"out": "", "limited": "false"}
    runs, given = split(arguments, known, "report", "RUN_OR_DIR...")
    paths, limited = [Path(run) for run in runs], flag(given["limited"], "limited")
    command = shlex.join(["clipx", "report", *arguments])
    written = write_report(paths, Path(given["out"] or runs[0]), limited, command)
    print(written.html, written.markdown, written.csv, sep="\n")


def _missing_objects(arguments: list[str]) -> None:
    """Print how many captions omit objects; write claims.json.

    Arguments: CAPTIONS.json INSTANCES.json, or a FOLDER with both files; [out=DIR].
    """
    known = {"out": "runs/missing_objects"}
    annotations, given = split(arguments, known, "report missing-objects", "COCO_ANNOTATIONS...")
    counted = missing_objects.count(missing_objects.find([Path(path) for path in annotations]))
    print(*missing_objects.write(counted, Path(given["out"])), missing_objects.sentence(counted), sep="\n")


SUBCOMMANDS: dict[str, Callable[[list[str]], None]] = {
    "claims": claims,
    "compare": compare,
    "diff": diff,
    "missing-objects": _missing_objects,
    "power": power,
}
