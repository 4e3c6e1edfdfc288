"""clipx watch [RUN_OR_DIR...] [every=2]

Prints a line for each run at or below the folders (runs): share done, time left, loss with its curve, tau, modality
gap (log.geometry_every), mean score (log.evaluate_every), images per second, and whether it runs. On a terminal the
table is renewed until all runs have ended or Ctrl-C; elsewhere it is printed once.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich import box
from rich.live import Live
from rich.table import Table

from cli.settings.arguments import parse_options
from clipx.config.setting import POSITIVE, setting
from clipx.errors import UserError
from clipx.run.folder import LOG, RunFolder, runs_below
from clipx.utils.terminal import duration, stdout_console

BARS = "▁▂▃▄▅▆▇█"
CURVE, RUNNING = "curve", "running"
COLUMNS = ("run", "done", "left", "loss", CURVE, "tau", "gap", "score", "images/s", "state")
WIDE = 100  # columns of a terminal on which the curve fits
POINTS = 16  # of the curve of the loss
LATE, SLACK = 3, 30.0  # a run is silent if its last line is older than LATE times the last interval plus SLACK seconds
UNKNOWN = 60.0  # seconds between two lines, if the log does not tell them yet
Logs = dict[Path, tuple[float, list[dict[str, Any]]]]  # run -> time and rows of its log


@dataclass(kw_only=True)
class Options:
    """The options of `clipx watch`."""

    every: float = setting(2.0, "seconds until the logs are read again", POSITIVE, unit="seconds")


def watch(arguments: list[str]) -> None:
    """Run `clipx watch [RUN_OR_DIR...] [every=2]`: renew a table on a terminal; print it once elsewhere."""
    folders, options = parse_options(arguments, Options, "watch")
    paths = [Path(folder) for folder in folders or ["runs"]]
    if missing := [path for path in paths if not path.is_dir()]:
        raise UserError(f"{missing[0]} is no folder; clipx watch RUN_OR_DIR...")
    logs: Logs = {}
    console, (table, running) = stdout_console(), _table_of_runs(paths, logs)
    if not console.is_terminal:
        console.print(table)
        return
    with Live(table, console=console, auto_refresh=False) as live:
        while running:
            time.sleep(options.every)
            table, running = _table_of_runs(paths, logs)
            live.update(table, refresh=True)
    print("all runs have ended", file=sys.stderr)


def _table_of_runs(paths: list[Path], logs: Logs) -> tuple[Table, bool]:
    """Return the table, and True while a run is training; read the logs that have changed.

    Raises UserError if there is no run.
    """
    runs = [run for run in runs_below(paths) if (run / LOG).is_file()]
    if not runs:
        raise UserError(f"no run with a {LOG} at or below {', '.join(map(str, paths))}")
    lines = []
    for run in runs:
        written = (run / LOG).stat().st_mtime
        if run not in logs or logs[run][0] != written:
            logs[run] = written, RunFolder(run).log
        rows = logs[run][1]
        state = _state(run, rows, time.time() - written)
        lines.append([f"{run.parent.name}/{run.name}", *_cells(rows), state])
    return _table(lines), any(line[-1] == RUNNING for line in lines)


def _table(lines: list[list[str]]) -> Table:
    """Return the table of all runs, without columns that are empty, and without the curve on a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    narrow = stdout_console().width < WIDE
    kept = [k for k, name in enumerate(COLUMNS) if any(line[k] for line in lines) and not (narrow and name == CURVE)]
    for k in kept:
        text = COLUMNS[k] in ("run", CURVE, "state")
        table.add_column(COLUMNS[k], justify="left" if text else "right", no_wrap=COLUMNS[k] != "run", overflow="fold")
    for line in lines:
        table.add_row(*(line[k] for k in kept))
    return table


def _cells(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cells from `done` to `images/s`, each from the last row that has its number."""

    def last(key: str, text: Callable[[Any], str]) -> str:
        return next((text(row[key]) for row in reversed(rows) if row.get(key) is not None), "")

    evaluations = (row["evaluation"].values() for row in reversed(rows) if row.get("evaluation"))
    scores = [score for score in next(evaluations, ()) if score is not None]  # null: not finite
    losses = [row["loss"] for row in rows if isinstance(row.get("loss"), float)]
    return [
        last("progress", "{:.0%}".format),
        last("left_s", duration),
        last("loss", "{:.3f}".format),
        curve(losses),
        last("tau", "{:.4f}".format),
        last("geometry", lambda found: f"{found['gap']:.3f}" if found.get("gap") is not None else ""),
        f"{100 * fmean(scores):.1f}%" if scores else "",
        last("images_per_s", "{:.0f}".format),
    ]


def curve(values: list[float]) -> str:
    """Draw the values as a row of at most POINTS bars. With more values, a bar is the mean of neighbours."""
    count = min(POINTS, len(values))
    parts = [values[k * len(values) // count : (k + 1) * len(values) // count] for k in range(count)]
    means = [fmean(part) for part in parts]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "".join(
        BARS[round((len(BARS) - 1) * (mean - low) / (high - low))] if high > low else BARS[0] for mean in means
    )


def _state(run: Path, rows: list[dict[str, Any]], age: float) -> str:
    """Return `finished`, `diverged`, `running`, or `silent` with the age of the last line, which is late."""
    if (ended := RunFolder(run).divergence()) is not None:
        return f"diverged at step {ended.step}"
    if RunFolder(run).is_evaluated or any(row.get("progress") == 1 for row in rows[-2:]):
        return "finished"
    steps = [row for row in rows if isinstance(row.get("images_per_s"), float)]
    seconds = UNKNOWN
    if len(steps) > 1 and steps[-1]["images_per_s"]:
        seconds = (steps[-1]["samples"] - steps[-2]["samples"]) / steps[-1]["images_per_s"]
    return RUNNING if age < LATE * seconds + SLACK else f"silent for {duration(age)}"
