"""clipx report RUN_OR_DIR... [out=DIR] [limited=true]

Writes report.md, report.html (one self-contained file) and report.csv, by default into the first folder.
limited=true includes the results of clipx eval limit=N.
Each result is shown with that of the nearest model in open_clip's tables.
clipx report compare RUN_OR_DIR... [by=mean|zeroshot|linear_probe|retrieval|pairs|TASK] [on=SET,SET]
[reference=METHOD] [out=DIR] [limited=true]: compares methods with the same towers, data, length and batch size over
paired seeds; writes compare.html, .md, .csv and .tex. on=held_out ranks by the pairs of data.held_out. Differences
are those to the first method, or to the reference. Methods that were trained at several lengths, data sizes, widths
or batch sizes get a table and a figure of their gains over the reference, by default clip.
clipx report claims RUN_OR_DIR...: prints the verdicts on the papers' claims.
clipx report power RUN_OR_DIR... [jobs=N]: prints the seeds and time that undecided claims need.
clipx report missing-objects FOLDER [out=DIR]: tests claim 1.12 on COCO's annotations.
"""

import gc
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.report.claims import PowerOptions, claims, power
from cli.report.compare import CompareOptions, Options, common_folder, compare
from cli.settings.arguments import NoOptions, parse_arguments, split_positional
from clipx.config.setting import setting
from clipx.errors import UserError
from clipx.run.folder import RunFolder, newest_runs, runs_below
from evaluation.report.writer import write_report


@dataclass(kw_only=True)
class CountOptions:
    """The options of `clipx report missing-objects`."""

    out: str = setting("runs/missing_objects", "folder of claims.json")


def report(arguments: list[str]) -> None:
    """Write a report on runs and print its files; if the first argument names one of COMMANDS, run that instead."""
    if arguments and arguments[0] in COMMANDS:
        run, _ = COMMANDS[arguments[0]]
        run(arguments[1:])
        return
    first = next(iter(split_positional(arguments)[0]), "")
    if first and not Path(first).exists():
        allowed = f"allowed: a run, a folder of runs, or one of {', '.join(COMMANDS)}"
        raise UserError(f"clipx report {first}: no such folder{newest_runs(first)}; {allowed}")
    runs, options = parse_arguments(arguments, Options, "report", "RUN_OR_DIR...")
    paths, limited = [Path(run) for run in runs], options.limited
    command = shlex.join(["clipx", "report", *arguments])
    gc.set_threshold(100_000)  # the rows of all runs stay to the end: visiting them often takes a seventh of the time
    written = write_report(paths, Path(options.out or common_folder(runs)), limited, command)
    print(written.html, written.markdown, written.csv, sep="\n")
    _print_next(runs_below(paths), runs)


def _print_next(runs: list[Path], given: list[str]) -> None:
    """Print how to rank several methods; after the report of one run, how to train another one to compare it with."""
    if len({run.parent for run in runs}) > 1:
        print(f"to rank them: {shlex.join(['clipx', 'report', 'compare', *given])}", file=sys.stderr)
    if len(runs) != 1 or not (folder := RunFolder(runs[0])).has_config:
        return
    config = folder.config
    objective = "clip_reg" if config.objective == {"clip": {}} else "clip"
    other = "arm=NAME" if config.arm else f"objective={objective}"
    # a user who sets name= or data.root= has chosen settings that the second run needs too
    is_plain = config.name == config.recipe and not config.data.root
    command = f"clipx train recipe={config.recipe}" if is_plain else "the same clipx train command with"
    after = f"then clipx eval, and clipx report compare {shlex.quote(str(folder.path.parent.parent))}"
    print(f"to compare: {command} {other} seed={config.seed}, {after}", file=sys.stderr)


def _missing_objects(arguments: list[str]) -> None:
    """Print how many captions omit objects; write claims.json. Arguments: FOLDER [out=DIR]."""
    from evaluation.claims.measurements import missing_objects  # imports torch

    (folder,), options = parse_arguments(arguments, CountOptions, "report missing-objects", "FOLDER")
    counted = missing_objects.count(missing_objects.find(Path(folder)))
    print(*missing_objects.write(counted, Path(options.out)), missing_objects.sentence(counted), sep="\n")


COMMANDS: dict[str, tuple[Callable[[list[str]], None], type]] = {  # name -> function, its options
    "claims": (claims, NoOptions),
    "compare": (compare, CompareOptions),
    "missing-objects": (_missing_objects, CountOptions),
    "power": (power, PowerOptions),
}
