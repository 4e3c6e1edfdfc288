"""Result rows in `results.jsonl`, one per line, and their tables in CSV, Markdown, W&B and the terminal.

The file is replaced as a whole, so a kill while it is written loses nothing. Several evaluations may write to one
folder: a lock lets only one of them change the files at a time.
"""

import json
import math
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.text import Text

from clipx.config.setting import from_values
from clipx.errors import UserError, one_line, printable_line
from clipx.run.folder import RESULTS, WANDB_ID, Diverged, RunFolder
from clipx.run.log_writers import start_wandb
from clipx.utils.files import content_hash, write_text
from clipx.utils.lock import turn
from clipx.utils.terminal import empty_table, stdout_console
from clipx.utils.trust import load_json
from evaluation.types import Result, csv_text

NAMES = [field.name for field in fields(Result)]
LOCK = "results.lock"
INTERMEDIATE = "intermediate"  # in a run directory: a folder per evaluated checkpoint that is not the run's result
DIVERGED = "train"  # task of the row of a diverged run
LIMIT = "limit"  # key in the hashes of a row that scores only some examples (limit=N)
TRAINING_PAIRS = "training pairs"  # key in the hashes of a row that scores the pairs that the run was trained on


def read(path: Path) -> list[Result]:
    """Return the rows of a results file, [] if it does not exist.

    An incomplete last line, left by a kill, is dropped. Raises UserError for any other line that is not a result.
    """
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            content = load_json(line)
            required = [name for name in NAMES if name != "hashes"]
            if not isinstance(content, dict) or not content.keys() >= set(required):
                raise UserError(f"a JSON object with {', '.join(required)}")
            rows.append(from_values(Result, content))
        except ValueError as error:
            if number == len(lines):  # text after the last line break: empty, or an incomplete row
                break
            raise UserError(f"{path}:{number} is not a result row ({one_line(error)}): remove that line") from None
    return rows


def write(path: Path, rows: list[Result]) -> None:
    """Replace the file by these rows."""
    write_text(path, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def split_note(hashes: dict[str, str]) -> str:
    """Return what limit=N and the run's training pairs add to the names of splits and artifacts; "" without both."""
    limit = f", {LIMIT} {hashes[LIMIT]}" if LIMIT in hashes else ""
    return limit + (f", {TRAINING_PAIRS}" if TRAINING_PAIRS in hashes else "")


def data_hash(row: Result) -> str:
    """Return a hash of the labels, class names, prompts and captions that a row was scored on, but not of images."""
    of_data = {name: value for name, value in row.hashes.items() if "/" in name and not name.startswith("images/")}
    return content_hash(sorted(of_data.items()))[:6]


def add(path: Path, rows: list[Result]) -> None:
    """Add rows to the file; they replace rows with the same task, data set and hashes."""

    def key(row: Result) -> tuple[str, str, list[tuple[str, str]]]:
        return row.task, row.dataset, sorted(row.hashes.items())

    new = [key(row) for row in rows]
    with turn(path.parent / LOCK):
        write(path, [row for row in read(path) if key(row) not in new] + rows)


def record_divergence(run: Path, ended: Diverged) -> list[Result]:
    """Write a row with a NaN loss for a run that diverged; return all rows of the run."""
    config = RunFolder(run).load_config()
    row = Result(
        task=DIVERGED,
        dataset=config.data.name,
        split=config.data.split,
        metric="loss",
        value=math.nan,
        n=ended.step * config.train.batch_size,
        low=math.nan,
        high=math.nan,
        chance=None,
        higher_is_better=False,
        seed=config.seed,
        model=f"{config.name}/s{config.seed} diverged at step {ended.step}",
    )
    add(run / RESULTS, [row])  # replaces that of an earlier call
    write_tables(run)
    return read(run / RESULTS)


def write_tables(out: Path) -> None:
    """Write the rows of results.jsonl in `out` to results.csv (all fields) and results.md (shares in per cent)."""
    with turn(out / LOCK):
        rows = read(out / RESULTS)
        table = [list((asdict(row) | {"hashes": json.dumps(row.hashes)}).values()) for row in rows]
        write_text(out / "results.csv", csv_text([NAMES, *table]))
        write_text(out / "results.md", markdown(rows))


def markdown(rows: list[Result]) -> str:
    """Return a table of the rows; shares in per cent."""
    text = "| model | task | data set | split | metric | value (%: per cent) | 95% interval | chance | n |\n"
    text += "|---|---|---|---|---|--:|---|--:|--:|\n"
    for row in rows:
        cells = [printable_line(name).replace("|", "\\|") for name in (row.model, *row.key)]
        text += f"| {' | '.join([*cells, *_formatted(row)])} |\n"
    return text


def _formatted(row: Result) -> tuple[str, str, str, str]:
    """Return value, interval, chance and n; shares in per cent."""
    numbers = (row.value, row.low, row.high, row.chance)
    value, low, high, chance = ("" if x is None else f"{100 * x:.1f}" if row.is_share else f"{x:.3f}" for x in numbers)
    interval = "" if row.low == row.high else f"{low} .. {high}"
    return f"{value}%" if row.is_share else value, interval, chance, str(row.n)


def to_wandb(rows: list[Result], model: str, mode: str, project: str, out: Path) -> None:
    """Write the rows to a W&B summary: `task/dataset[, choices]/metric` -> value.

    If `out` is the directory of a run that was logged to W&B, use its W&B run, otherwise a new one.
    """
    trained = out / WANDB_ID
    if trained.is_file():
        target: dict[str, Any] = {"id": trained.read_text().strip(), "resume": "allow"}
    else:
        config = {"model": model, "checkpoint": rows[0].hashes["checkpoint"] if rows else ""}
        target = {"name": f"eval {model}", "job_type": "eval", "config": config}
    run = start_wandb("wandb", mode, project=project, dir=out, **target)
    for row in rows:
        run.summary[f"{row.task}/{_dataset_and_choices(row)}/{row.metric}"] = row.value
    run.finish()


def show(rows: list[Result]) -> None:
    """Print a table of values, 95% intervals and chance levels; shares in per cent.

    Its title is the model and its step, with `ema` or the `alpha` of an interpolation if used.
    """
    title = ", ".join(dict.fromkeys(row.model for row in rows))
    columns = ("metric", "value", "interval", "chance", "n")
    table = empty_table(columns, ["metric"], title, "95% intervals over examples")
    for (task, dataset), group in groupby(rows, lambda row: (row.task, _dataset_and_choices(row))):
        table.add_section()
        table.add_row(Text(f"{task} {dataset}", style="bold"))
        for row in group:
            table.add_row(Text(f"  {row.metric}"), *_formatted(row))
    stdout_console().print(table)


def _dataset_and_choices(row: Result) -> str:
    """Return the data set with the choices that the split names: `flickr8k, 400 of 1000 images (seed 0)`."""
    _, comma, choices = row.split.partition(", ")
    return row.dataset + comma + choices
