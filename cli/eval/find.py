"""Find the runs to evaluate from the arguments of `clipx eval`: run folders, checkpoints, patterns, folders of runs."""

import glob
import sys
from pathlib import Path

from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import OUTCOME, natural_order, run_folders
from evaluation.types import first_names


def find_runs(arguments: list[str]) -> list[str]:
    """Return the runs and checkpoints that the arguments name, each once.

    In a folder of runs, a run with neither a checkpoint nor a recorded divergence is skipped and named in one line.

    Raises UserError: a pattern matches nothing, or all runs of a folder would be skipped.
    """
    found, skipped = dict[str, None](), list[str]()
    for argument in arguments:
        for path in _matches(argument):
            if not path.is_dir() or (path / "config.yaml").is_file() or (path / checkpoints.MANIFEST).is_file():
                found[str(path)] = None  # also a missing path: the evaluation reports the error
                continue
            runs = sorted((p for p in run_folders(path) if (p / "config.yaml").is_file()), key=natural_order)
            usable = [run for run in runs if checkpoints.checkpoints(run) or (run / OUTCOME).is_file()]
            if not usable:
                raise UserError(f"no run with a checkpoint at or below {path}")
            found |= {str(run): None for run in usable}
            skipped += [str(run) for run in runs if run not in usable]
    if skipped:
        print(f"skipped, no checkpoint: {first_names(skipped)}", file=sys.stderr)
    return list(found)


def _matches(argument: str) -> list[Path]:
    """Return the argument as a path, or the folders that match it if it is a pattern."""
    if not glob.has_magic(argument) or Path(argument).exists():
        return [Path(argument)]
    matching = map(Path, glob.glob(argument, recursive=True))  # noqa: PTH207 - a pattern may be absolute
    found = sorted(filter(Path.is_dir, matching), key=natural_order)
    if not found:
        raise UserError(f"no folder matches {argument}")
    return found
