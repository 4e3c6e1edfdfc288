"""clipx from Python, for notebooks and scripts: `train`, `evaluate` and `compare` do what the commands do.

    from clipx import api

    clip = api.train("demo", seeds=3)
    siglip = api.train("demo", seeds=3, overrides=["objective=siglip"])
    api.evaluate([clip, siglip])
    found = api.compare([clip, siglip], reference="clip")
    found.table, found.notes, found.figure()
    api.read("runs").results  # of runs that exist

Overrides are those of the command line, and runs are the same folders: a command can go on with them. This is the only
file of clipx that imports `cli` and `evaluation`, inside its functions.

In a script, put the calls below `if __name__ == "__main__":`, because loader processes import the script.
"""

import contextlib
import io
import multiprocessing
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from clipx.errors import Fault, RunDiverged, UserError
from clipx.utils.figures import COLOURS, GREY, STYLE, Figure, panels

if TYPE_CHECKING:
    from evaluation.compare.methods import MethodComparison, SeedMean

DataFrame = Any  # pandas.DataFrame, which loads slowly


class _Shown:
    """An object that a notebook shows as its notes and its table."""

    notes: Sequence[str] = ()
    table: DataFrame

    def __repr__(self) -> str:
        text = self.table.to_string(index=False, na_rep="", float_format="{:.2f}".format)
        return "\n".join([*self.notes, text])

    def _repr_html_(self) -> str:
        html = self.table.to_html(index=False, na_rep="", float_format="{:.2f}".format)
        return "".join(f"<p>{escape(note)}</p>" for note in self.notes) + str(html)


@dataclass(frozen=True, repr=False)
class Runs(_Shown):
    """Run folders. Each table is read from the files when you ask for it."""

    folders: list[Path]

    @property
    def table(self) -> DataFrame:
        """One row per run: its name, seed, last step and loss, and its mean scores in per cent.

        Held-out pairs have their own columns, because settings may have been chosen by them.
        """
        from evaluation.claims.measures import CANONICAL_HELD_OUT
        from evaluation.compare.methods import SCORES
        from evaluation.runs import reader
        from evaluation.runs.description import last

        rows: list[dict[str, object]] = []
        for run in reader.find(self.folders):
            found = {task: score.read(run) for task, score in SCORES.items()}
            for task, score in SCORES.items():
                found[f"{task} held_out"] = replace(score, datasets=(CANONICAL_HELD_OUT,)).read(run)
            scores = {f"{task} (%)": 100 * fmean(of.values()) for task, of in found.items() if of}
            ended = {"step": int(last(run, "step") or 0), "loss": last(run, "loss")}
            rows.append({"run": run.name, "seed": run.seed, **ended, **scores})
        return _frame(rows)

    @property
    def log(self) -> DataFrame:
        """One row per line of log.jsonl; nested fields are called `terms.NAME` or `evaluation.NAME`."""
        import pandas

        from evaluation.runs import reader

        rows = [{"run": run.name, "seed": run.seed, **line} for run in reader.find(self.folders) for line in run.log]
        return pandas.json_normalize(rows)

    @property
    def results(self) -> DataFrame:
        """One row per metric, with the fields of results.jsonl; values are fractions."""
        from evaluation.runs import reader

        rows = [{"run": run.name, **vars(row)} for run in reader.find(self.folders) for row in run.results]
        return _frame(rows).drop(columns="hashes", errors="ignore")


Given = Runs | str | Path | Sequence[Runs | str | Path]  # results of `train`, run folders, or folders of runs


@dataclass(frozen=True, repr=False)
class Comparison(_Shown):
    """Methods under the same conditions, ranked, as by `clipx report compare`."""

    found: "list[MethodComparison]"
    notes: Sequence[str]  # what the command prints: who is first, the chance level, runs that are left out

    @property
    def table(self) -> DataFrame:
        """One row per method, best first: possible ranks, score and difference to the reference with 95% intervals."""
        from evaluation.report import comparison as page

        rows: list[dict[str, object]] = []
        for one, name in zip(self.found, page.names(self.found), strict=True):
            for place, method in enumerate(one.ranked, 1):
                rank = page.rank(one, method, place).text
                row: dict[str, object] = {"conditions": name, "rank": rank, "method": method.label}
                difference = None if method is one.reference else one.difference(method, one.reference)
                row |= _interval(page.with_unit(one), one.mean(method, method.values[one.by]), one.unit)
                seeds = len(one.shared_seeds(method))
                rows.append(row | _interval("difference", difference, one.unit) | {"seeds": seeds})
        table = _frame(rows)
        return table.drop(columns="conditions") if len(self.found) == 1 else table

    def figure(self, number: int = 0) -> Figure:
        """Draw the scores and the differences to the reference with their 95% intervals; return a matplotlib Figure.

        `number`: of the comparison, if there are methods under several conditions.
        """
        from matplotlib import rc_context

        from evaluation.report.comparison import with_unit

        if not 0 <= number < len(self.found) or not self.found[number].ranked:
            raise UserError(f"number={number} is no comparison with scores; the numbers are 0..{len(self.found) - 1}")
        one = self.found[number]
        unit, reference = one.unit, one.reference
        with rc_context(STYLE):
            figure, (left, right) = panels(2, height=1.2 + 0.35 * len(one.ranked))
            for place, method in enumerate(one.ranked):
                _draw(left, place, one.mean(method, method.values[one.by]), unit)
                _draw(right, place, None if method is reference else one.difference(method, reference), unit)
            for axes in (left, right):
                axes.set_yticks(range(len(one.ranked)), [method.label for method in one.ranked])
                axes.set_ylim(len(one.ranked) - 0.5, -0.5)
            right.tick_params(labelleft=False)
            right.axvline(0, color=GREY, linewidth=1, linestyle=":")
            left.set_xlabel(with_unit(one))
            right.set_xlabel(f"minus {reference.label}")
        figure._repr_png_ = lambda: _png(figure)  # so that a notebook shows it without %matplotlib inline
        return figure


def train(recipe: str, seeds: int | Sequence[int] = 1, overrides: Sequence[str] = ()) -> Runs:
    """Train or resume a run for each seed, as `clipx train` does; finished runs are not trained again.

    Args:
        recipe: name of a recipe.
        seeds: how many, from 0 on, or a list of them.
        overrides: as on the command line, ["objective=siglip", "train.samples=50000", "plugins=[MODULE]"].

    A diverged run is named on stderr, and the next seed follows: `compare` counts diverged seeds.

    Raises:
        UserError: settings or data are wrong (no run is started then), or another process is training the run.
        Fault: a run stopped early and was saved; call `train` again to resume.
    """
    from cli.settings.compose import compose_run
    from cli.train import train as train_run
    from clipx.run.folder import RunFolder

    if getattr(multiprocessing.current_process(), "_inheriting", False):  # a loader process that imports a script
        raise UserError('put the calls of clipx.api below `if __name__ == "__main__":`')
    given = _overrides(overrides)
    configs = [compose_run([f"recipe={recipe}", *given, f"seed={seed}"]) for seed in _seeds(seeds)]
    if configs[0].launch.slurm:
        raise UserError("launch.slurm= works with the command only: clipx train")
    folders = [RunFolder.of(config).path for config in configs]
    for config, folder in zip(configs, folders, strict=True):
        try:
            train_run(config)
        except RunDiverged as error:
            print(error, file=sys.stderr)
        except SystemExit as error:  # the exit code of `clipx train` for schedulers
            raise Fault(f"{folder} stopped early and was saved: call train again to resume") from error
    return Runs(folders)


def evaluate(runs: Given, overrides: Sequence[str] = ()) -> Runs:
    """Evaluate runs as `clipx eval` does and return them.

    `Runs.table` and `Runs.results` then have the scores of those that are fully trained.

    `overrides`: as on the command line, ["datasets=[held_out]", "limit=100"].

    Raises UserError, Fault: as the command; after all runs, if one has failed.
    """
    from cli.eval.many import evaluate as evaluate_runs
    from cli.settings.compose import compose_eval

    config, folders = compose_eval(_overrides(overrides)), _folders(runs)
    with contextlib.redirect_stdout(io.StringIO()):  # the tables that the command prints
        evaluate_runs(config, [str(folder) for folder in folders])
    return Runs(folders)


def compare(runs: Given, by: str = "mean", on: str | Sequence[str] = (), reference: str = "") -> Comparison:
    """Rank methods with paired intervals as `clipx report compare` does, without writing files.

    `by`, `on`, `reference`: as the options of the command. Raises UserError: as the command.
    """
    from cli.report.compare import ranked

    found = ranked(_folders(runs), by, [on] if isinstance(on, str) else on, reference)
    return Comparison(found.comparisons, found.notes)


def read(runs: Given) -> Runs:
    """Return runs that exist, for their tables: `read("runs").results`. Raises UserError: no run there."""
    return Runs(_folders(runs))


def _overrides(given: Sequence[str]) -> list[str]:
    from cli.settings.arguments import with_home

    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise UserError(f"overrides={given!r} must be a list of texts, as ['train.samples=50000']")
    return [with_home(one) for one in given]


def _seeds(given: int | Sequence[int]) -> list[int]:
    found = [*range(given)] if type(given) is int else [*given] if isinstance(given, Iterable) else []
    if not found or any(type(seed) is not int for seed in found):
        raise UserError(f"seeds={given!r} must be a number above 0, or a list of seeds")
    return found


def _folders(given: Given) -> list[Path]:
    """Return the run folders at or below what is given. Raises UserError: a wrong type, or no run."""
    from cli.settings.arguments import with_home
    from clipx.run.folder import runs_below

    found: list[Path] = []
    for one in given if isinstance(given, Sequence) and not isinstance(given, str) else [given]:
        if not isinstance(one, Runs | str | Path):
            raise UserError(f"runs={one!r} must be the result of train, a folder, or a list of these")
        below = one.folders if isinstance(one, Runs) else runs_below([Path(with_home(str(one)))])
        if not below:
            raise UserError(f"no run at or below {one}; train(...) makes runs")
        found += below
    if not found:
        raise UserError("runs=[] is empty; train(...) makes runs")
    return found


def _frame(rows: list[dict[str, object]]) -> DataFrame:
    import pandas

    return pandas.DataFrame(rows)


def _interval(name: str, mean: "SeedMean | None", unit: float) -> dict[str, object]:
    value, low, high = (mean.value, mean.low, mean.high) if mean else (None, None, None)
    ends = {name: value, f"{name} low": low, f"{name} high": high}
    return {key: None if end is None else unit * end for key, end in ends.items()}


def _draw(axes: Any, place: int, mean: "SeedMean | None", unit: float) -> None:
    if mean is None:
        return
    axes.plot(unit * mean.value, place, "o", color=COLOURS[0])
    if mean.low is not None and mean.high is not None:
        axes.plot([unit * mean.low, unit * mean.high], [place, place], color=COLOURS[0])


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
