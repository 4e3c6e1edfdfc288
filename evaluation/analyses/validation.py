"""Checks the evaluation itself: published weights on published sets, against the published numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from evaluation.analyses.reference import COPIES, DRAWN, TOLERANCE
from evaluation.datasets.folder import short_name
from evaluation.datasets.named import present
from evaluation.types import Result

Published = Mapping[str, Mapping[tuple[str, str], float]]  # model -> data set and metric -> value
Evaluate = Callable[[str, str, list[str]], list[Result]]  # model, task, data sets -> rows

ROUNDING = 5e-5  # of values that are printed with four digits


@dataclass(frozen=True)
class Line:
    """One measured number beside the published one."""

    model: str
    dataset: str
    metric: str
    measured: float
    published: float
    verdict: str  # agrees | differs

    @property
    def difference(self) -> float:
        """Measured less published, in points."""
        return 100 * (self.measured - self.published)


def validate(published: Published, root: Path, fetch_weights: Callable[[str], str], evaluate: Evaluate) -> list[Line]:
    """Runs every pair of model and data set that is here and prints the comparison, then what is absent.

    Args:
        published: the numbers to compare with.
        root: the folder of the data sets, as published or as CLIP-benchmark's copies.
        fetch_weights: the command that fetches a model's weights, "" where they are here.
        evaluate: runs a task of a model on data sets.
    """
    names = dict.fromkeys(name for values in published.values() for name, _ in values)
    specs = {name: spec for name in names if (spec := find(name, root))}
    lines: list[Line] = []
    absent = [f"{name}: {how_to_get(name, root)}" for name in names if name not in specs]
    for model, values in published.items():
        if command := fetch_weights(model):
            absent.append(f"{model}: {command}")
        else:
            rows = []
            for task in ("zeroshot", "retrieval"):
                wanted = dict.fromkeys(name for name, metric in values if ("recall" in metric) == (task == "retrieval"))
                if here := [specs[name] for name in wanted if name in specs]:
                    rows += evaluate(model, task, here)
            lines += compare(model, values, specs, rows)
    show(lines, absent)
    return lines


def compare(
    model: str, values: Mapping[tuple[str, str], float], specs: Mapping[str, str], rows: list[Result]
) -> list[Line]:
    """The rows that have a published value, beside it."""
    value_of = {(row.dataset, row.metric): row for row in rows}
    lines = []
    for (name, metric), value in values.items():
        row = value_of.get((short(specs[name]), metric)) if name in specs else None
        if row is not None:
            drawn = name in DRAWN and not specs[name].startswith("wds:")
            inside = drawn and row.low <= value <= row.high
            agrees = inside or abs(row.value - value) <= TOLERANCE + ROUNDING
            lines.append(Line(model, name, metric, row.value, value, "agrees" if agrees else "differs"))
    return lines


def find(name: str, root: Path) -> str:
    """The data set below root, CLIP-benchmark's copy first; "" where it is not here."""
    if (root / COPIES[name]).is_dir():
        return f"wds:{root / COPIES[name]}"
    return f"{name}:{root}" if present(name, root) else ""


def short(spec: str) -> str:
    """The name that rows of this set carry."""
    kind, _, place = spec.partition(":")
    return short_name(Path(place)) if kind == "wds" else kind


def how_to_get(name: str, root: Path) -> str:
    """The command that fetches CLIP-benchmark's copy."""
    copy = COPIES[name]
    return f"`hf download clip-benchmark/{copy} --repo-type dataset --local-dir {root / copy}`"


def show(lines: list[Line], absent: list[str]) -> None:
    """Prints the comparison and what is absent."""
    table = Table(box=box.SIMPLE)
    for column in ("model", "data set", "metric", "measured", "published", "difference", "verdict"):
        table.add_column(column, no_wrap=True)
    for line in lines:
        numbers = (f"{100 * line.measured:.2f}", f"{100 * line.published:.2f}", f"{line.difference:+.2f}")
        table.add_row(line.model, line.dataset, line.metric, *numbers, line.verdict)
    console = Console(soft_wrap=True)
    if lines:
        console.print(table)
    for entry in absent:
        console.print(f"not here: {entry}", markup=False, highlight=False)
    agreed = sum(line.verdict == "agrees" for line in lines)
    found = f"{agreed} of {len(lines)} numbers agree within {100 * TOLERANCE:.1f} points"
    console.print(found if lines else "nothing was checked", highlight=False)
