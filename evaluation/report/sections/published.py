"""Published results beside ours: columns of the tables of results, and of the CSV."""

from collections.abc import Sequence

from evaluation.reference.models import PublishedModel, source
from evaluation.reference.nearest import Comparison, compare, references
from evaluation.report.blocks import Cell
from evaluation.runs.description import digits
from evaluation.runs.reader import Run
from evaluation.types import Result

NEAREST = (
    "The nearest published model has the same training data, if there is one, then the nearest image tower, then the "
    "nearest number of samples seen; reference=[NAME/TAG] chooses others."
)
CSV = ("published_model", "published", "published_difference", "not_compared")


class Published:
    """Published models beside the results of some runs; nothing if no result has a counterpart."""

    def __init__(self, runs: list[Run], named: Sequence[PublishedModel] = ()) -> None:
        """`named`: the models to compare with; by default the nearest one to each run."""
        self._named = named
        self._models = {run.path: references(run, named) for run in runs}
        found = any(self.comparisons(run, row) for run in runs for row in run.results)
        columns = [model.name for model in named] or ["Nearest published"]
        self.columns = columns if found else []
        self.csv_columns = [f"{name}_{at}" if at else name for at in range(len(self.columns)) for name in CSV]
        self.note = " ".join([f"Published: {source()}.", *([] if named else [NEAREST])]) if found else ""

    def comparisons(self, run: Run, row: Result) -> list[Comparison]:
        """Return the row beside each model; [] if it has no counterpart."""
        found = [compare(row, model) for model in self._models[run.path]]
        return [one for one in found if one is not None]

    def cells(self, run: Run, row: Result) -> list[Cell]:
        """Return one cell for each of `columns`."""
        cells = [_cell(one) for one in self.comparisons(run, row)]
        return cells or [Cell("")] * len(self.columns)

    def csv_cells(self, run: Run, row: Result) -> list[object]:
        """Return one value for each of `csv_columns`."""
        values: list[object] = []
        for one in self.comparisons(run, row):
            values += [one.model.name, one.published, "" if one.obstacle else one.difference, one.obstacle]
        return values or [""] * len(self.csv_columns)


def _cell(one: Comparison) -> Cell:
    if one.obstacle:
        return Cell("not compared", tone="muted", note=one.obstacle)
    return Cell(f"{one.published:.4f}", one.published, note=f"{one.model.name}, ours {digits(one.difference, '+')}")
