"""`clipx report`: write a report on run directories; `clipx report missing-objects`: measure claim 1.12 on COCO."""

from collections.abc import Callable
from pathlib import Path

from cli.report.claims import claims
from cli.report.compare import compare
from cli.settings.arguments import split
from clipx.errors import UserError
from evaluation.analyses import missing_objects
from evaluation.report.writer import write_report


def report(arguments: list[str]) -> None:
    """Run `clipx report [compare | claims | missing-objects] RUN_OR_DIR... [out=DIR]`; print the files written."""
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


def _missing_objects(arguments: list[str]) -> None:
    """Run `CAPTIONS.json INSTANCES.json | FOLDER of both [out=DIR]`: print the shares and write claims.json."""
    places, given = split(arguments, {"out": "runs/missing_objects"}, "report missing-objects")
    if not places:
        raise UserError("give COCO annotations: clipx report missing-objects ANNOTATIONS_FOLDER [out=DIR]")
    counted = missing_objects.count(missing_objects.find([Path(place) for place in places]))
    for file in missing_objects.write(counted, Path(given["out"])):
        print(file)
    print(missing_objects.sentence(counted))


KINDS: dict[str, Callable[[list[str]], None]] = {
    "claims": claims,
    "compare": compare,
    "missing-objects": _missing_objects,
}
