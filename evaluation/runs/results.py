"""`results.jsonl`: one result a line, replaced in one step so that a killed run loses nothing."""

import csv
import io
import json
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clipx.errors import UserError
from clipx.run.log import WANDB_ID
from clipx.utils.files import write_text
from evaluation.types import Result, printable_line

NAMES = [field.name for field in fields(Result)]


def read(path: Path) -> list[Result]:
    """The rows of a results file, none where it is missing.

    Raises:
        UserError: a line that is no result, naming it.
    """
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            row = Result(**json.loads(line))
            if not all(isinstance(v, int | float) for v in (row.value, row.n, row.low, row.high)):
                raise TypeError("a number is none")
            dict(row.hashes)
            rows.append(row)
        except (ValueError, TypeError):
            if number == len(lines):  # what follows the last line's end: nothing, or half a line
                break
            needs = f"a JSON object with {', '.join(NAMES)}"
            raise UserError(f"{path}:{number} is not a result row ({needs}): remove that line") from None
    return rows


def write(path: Path, rows: list[Result]) -> None:
    """Replaces the file."""
    write_text(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def add(path: Path, rows: list[Result]) -> None:
    """Adds rows; those of the same task, data set and hashes make way."""

    def key(row: Result) -> tuple[str, str, list[tuple[str, str]]]:
        return row.task, row.dataset, sorted(row.hashes.items())

    new = [key(row) for row in rows]
    write(path, [row for row in read(path) if key(row) not in new] + rows)


def write_tables(out: Path, rows: list[Result]) -> None:
    """results.csv (all fields, hashes as JSON) and results.md (shares in per cent) beside the JSONL."""
    lines = io.StringIO()
    table = csv.DictWriter(lines, NAMES, lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow(asdict(row) | {"hashes": json.dumps(row.hashes)})
    write_text(out / "results.csv", lines.getvalue())
    text = "| model | task | data set | split | metric | %, geometry: value | 95% interval | chance | n |\n"
    text += "|---|---|---|---|---|--:|---|--:|--:|\n"
    for row in rows:
        names = (row.model, row.task, row.dataset, row.split, row.metric)
        cells = [printable_line(name).replace("|", "\\|") for name in names]
        text += f"| {' | '.join([*cells, *numbers(row)])} |\n"
    write_text(out / "results.md", text)


def numbers(row: Result) -> tuple[str, str, str, str]:
    """Value, interval, chance and n for a table: shares in per cent, geometry as it is."""
    value, low, high = (
        f"{x:.3f}" if row.task == "geometry" else f"{100 * x:.1f}" for x in (row.value, row.low, row.high)
    )
    chance = "" if row.chance is None else f"{100 * row.chance:.1f}"
    return value, f"{low} .. {high}", chance, str(row.n)


def to_wandb(rows: list[Result], model: str, mode: str, project: str, out: Path) -> None:
    """The rows as a summary on W&B: `task/dataset[, choices]/metric` -> fraction.

    Of the run that training has there, where results go to its directory; else of a run of their own.
    """
    import wandb

    trained = out / WANDB_ID
    if trained.is_file():
        whose: dict[str, Any] = {"id": trained.read_text().strip(), "resume": "allow"}
    else:
        config = {"model": model, "checkpoint": rows[0].hashes["checkpoint"] if rows else ""}
        whose = {"name": f"eval {model}", "job_type": "eval", "config": config}
    run = wandb.init(project=project, dir=out, mode="online" if mode == "online" else "offline", **whose)
    for row in rows:
        run.summary[f"{row.task}/{_measured_on(row)}/{row.metric}"] = row.value
    run.finish()


def show(rows: list[Result]) -> None:
    """Prints a table: shares in per cent, geometry as it is; the 95% interval, and what chance is."""
    table = Table(box=box.SIMPLE, caption="95% intervals over examples", caption_justify="left")
    table.add_column("metric", overflow="fold")
    for column in ("%", "interval", "chance", "n"):
        table.add_column(column, justify="right", no_wrap=True)
    for (task, measured_on), group in groupby(rows, lambda row: (row.task, _measured_on(row))):
        table.add_section()
        table.add_row(Text(f"{task} {measured_on}", style="bold"), "value" if task == "geometry" else "")
        for row in group:
            table.add_row(Text(f"  {row.metric}"), *numbers(row))
    Console().print(table)


def _measured_on(row: Result) -> str:
    """The data set, and what was chosen where there is a choice: `flickr8k, 400 of 1000 images (seed 0)`."""
    _, comma, choices = row.split.partition(", ")
    return row.dataset + comma + choices
