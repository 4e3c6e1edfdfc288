"""Find the runs to evaluate from the arguments of `clipx eval`: run folders, checkpoints, patterns, folders of runs."""

import glob
import sys
from pathlib import Path

from clipx.errors import UserError
from clipx.run import checkpoint as checkpoints
from clipx.run import directory
from evaluation.runs.reader import natural_order, run_folders

SHOWN = 3  # names of skipped runs in a message


def find_runs(places: list[str]) -> list[str]:
    """Return the runs and checkpoints at `places`, each once.

    In a folder of runs, those without a checkpoint or a recorded divergence are skipped; one line names them.

    Raises UserError: a pattern matches nothing, or a folder has no run with a checkpoint.
    """
    found, skipped = dict[str, None](), list[str]()
    for place in places:
        for path in _matches(place):
            if not path.is_dir() or (path / "config.yaml").is_file() or (path / checkpoints.MANIFEST).is_file():
                found[str(path)] = None  # also a missing path: the evaluation reports it
                continue
            runs = sorted((p for p in run_folders(path) if (p / "config.yaml").is_file()), key=natural_order)
            usable = [run for run in runs if _can_be_evaluated(run)]
            if not usable:
                raise UserError(f"no run with a checkpoint at or below {path}")
            found |= {str(run): None for run in usable}
            skipped += [str(run) for run in runs if run not in usable]
    if skipped:
        more = f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
        print(f"skipped, no checkpoint: {', '.join(skipped[:SHOWN])}{more}", file=sys.stderr)
    return list(found)


def _matches(place: str) -> list[Path]:
    """Return the path, or the folders that match a pattern."""
    if not glob.has_magic(place) or Path(place).exists():
        return [Path(place)]
    matching = map(Path, glob.glob(place, recursive=True))  # noqa: PTH207 - a pattern may be absolute
    found = sorted(filter(Path.is_dir, matching), key=natural_order)
    if not found:
        raise UserError(f"no folder matches {place}")
    return found


def _can_be_evaluated(run: Path) -> bool:
    return bool(checkpoints.checkpoints(run)) or (run / directory.OUTCOME).is_file()
