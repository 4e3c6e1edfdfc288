"""`clipx report compare`: methods under the same conditions, ranked."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cli.settings.arguments import parse_arguments
from clipx.config.setting import setting
from clipx.errors import UserError
from clipx.utils.registry import one_of
from clipx.utils.terminal import empty_table, stdout_console
from evaluation.claims.measures import CANONICAL_HELD_OUT, canonical_name, dataset_key
from evaluation.compare import methods
from evaluation.compare.ladders import Ladder, find_ladders
from evaluation.compare.methods import Method, MethodComparison
from evaluation.report import comparison as page
from evaluation.runs import reader
from evaluation.runs.groups import MIN_SEEDS, group_runs
from evaluation.runs.results import TRAINING_PAIRS
from evaluation.types import first_names

INTERVAL = f"[95% interval over paired seeds, from {MIN_SEEDS} shared seeds on]"
WITH_ITEMS = "[below it: 95% interval over seeds and test items together]"
GEOMETRY = "gap"  # geometry measure in the printed table; the page shows all


@dataclass(kw_only=True)
class Options:
    """The options of `clipx report RUN_OR_DIR...`."""

    out: str | None = setting(None, "folder to write the report to; null: that of all RUN_OR_DIR")
    limited: bool = setting(False, "include the results of clipx eval limit=N")


@dataclass(kw_only=True)
class CompareOptions(Options):
    """The options of `clipx report compare`."""

    by: str = setting(methods.MEAN, "rank methods by this task; mean: by the mean of all tasks")
    on: list[str] = setting([], "evaluation sets that count; empty: all")
    reference: str = setting("", "method with which the others are compared; empty: the first one")


def common_folder(given: list[str]) -> str:
    """Return the folder that holds all given ones, but not the drive's root; one alone is this folder."""
    common = Path(os.path.commonpath([Path(one).absolute() for one in given]))
    return given[0] if len(given) == 1 or common == Path(common.anchor) else os.path.relpath(common)


def compare(arguments: list[str]) -> None:
    """Run `clipx report compare RUN_OR_DIR...`."""
    given, options = parse_arguments(arguments, CompareOptions, "report compare", "RUN_OR_DIR...")
    paths, out = [Path(path) for path in given], Path(options.out or common_folder(given))
    command = shlex.join(["clipx", "report", "compare", *arguments])
    compare_runs(paths, out, command, options)


@dataclass(frozen=True)
class Ranked:
    """The comparisons of some runs."""

    comparisons: list[MethodComparison]
    ladders: list[Ladder]
    left_out: methods.LeftOut
    remarks: list[str]  # printed after the tables: runs left out, results with limit=N, on other data or held-out pairs

    @property
    def notes(self) -> list[str]:
        """The leads and notes of the comparisons, then the remarks; for clipx.api, which prints no tables."""
        named = zip(self.comparisons, page.names(self.comparisons), strict=True)
        return [note for one, name in named for note in (page.lead(one, name), *page.notes(one))] + self.remarks


def ranked(paths: list[Path], by: str, on: Sequence[str] = (), reference: str = "", limited: bool = False) -> Ranked:
    """Compare the runs at or below `paths`. Raises UserError: as `compare_runs`."""
    runs = reader.find(paths, limited=limited)
    one_of(by, (methods.MEAN, *methods.rankable(runs)), "by")
    _check_sets(on, {row.dataset for run in runs for row in run.results})
    groups = group_runs(runs)
    leaked = sorted({row.dataset for run in runs for row in run.results if TRAINING_PAIRS in row.hashes})
    of_groups = [
        {canonical_name(row.dataset) for run in group.runs for row in run.results if TRAINING_PAIRS not in row.hashes}
        for group in groups
    ]
    evaluated = Counter(chain(*of_groups))  # data set -> number of methods
    of_held_out, of_others = evaluated.pop(CANONICAL_HELD_OUT, 0), max(evaluated.values(), default=0)
    on_held_out = not on and of_held_out > of_others and of_others < 2  # methods share no other set
    on = [CANONICAL_HELD_OUT] if on_held_out else on
    found, left_out = methods.compare(groups, by, tuple(map(dataset_key, on)))
    labels = {method.label for one in found for method in one.ranked}
    if reference and labels:  # without a score there is no label, and the lead says how to get scores
        one_of(reference, labels, "reference")
        found = [replace(one, reference_label=reference) for one in found]
    remarks = methods.describe_left_out(left_out)
    if on_held_out:
        remarks.append("Methods share held-out pairs only: choose settings with them, report results on other sets.")
    if (single := _of_one_method(found)) and (on_held_out or not on):
        remarks.append(f"No comparison counts sets that one method alone has: {first_names(single)}.")
    if of_held_out and not on:
        remarks.append("No score counts held-out pairs (on=held_out takes them).")
    if leaked and not on:
        remarks.append(f"No score counts training pairs: {first_names(leaked)} (on=SET takes them).")
    remarks += filter(None, (reader.limited_note(runs), reader.other_data_note(runs)))
    return Ranked(found, find_ladders(found, reference), left_out, remarks)


def _of_one_method(comparisons: list[MethodComparison]) -> list[str]:
    """Return the data sets on which one of several compared methods alone was evaluated."""
    of_methods = [
        {row.dataset for run in method.runs for row in run.results if TRAINING_PAIRS not in row.hashes}
        for one in comparisons
        for method in (*one.ranked, *one.unranked)
    ]
    number = Counter(chain(*of_methods))
    return sorted(name for name in number if number[name] == 1 and len(of_methods) > 1)


def compare_runs(paths: list[Path], out: Path, command: str, options: CompareOptions | None = None) -> None:
    """Print rankings and ladders, write them as `write_comparison` to `out`; `command` is shown in the files.

    Raises UserError: nothing to compare, or an unknown score, data set or reference.
    """
    options = options or CompareOptions()
    found = ranked(paths, options.by, options.on, options.reference, options.limited)
    console = stdout_console()
    for one, title in zip(found.comparisons, page.names(found.comparisons), strict=True):
        _print_ranking(console, one, title)
    for ladder in found.ladders:
        _print_ladder(console, ladder)
    for remark in found.remarks:
        print(remark)
    about = [*([options.by] if options.by != methods.MEAN else []), *options.on]
    written = page.write_comparison(found.comparisons, found.ladders, found.left_out, out, command, about)
    print(written.html, written.markdown, written.csv, written.csv.with_suffix(".tex"), sep="\n")


def _check_sets(names: Sequence[str], evaluated: set[str]) -> None:
    """Raise UserError if a name of on= is none of the evaluated data sets."""
    known = {*map(canonical_name, evaluated), *map(dataset_key, evaluated)}
    if not known:
        return
    for name in names:
        if canonical_name(name) == CANONICAL_HELD_OUT and CANONICAL_HELD_OUT not in known:
            raise UserError("on=held_out needs results on held-out pairs: clipx eval RUN... datasets=[held_out]")
        if dataset_key(name) not in known:
            one_of(name, evaluated, "on")


def _print_ranking(console: Console, one: MethodComparison, title: str) -> None:
    console.print(Text(page.lead(one, title), style="bold"))
    if not one.ranked:
        return
    to_reference = "to the reference" if one.reference_label == one.reference.label else "to the first"
    score_name = "score (%)" if one.is_share() else "score"
    columns = ("rank", "method", score_name, to_reference, "modality gap", "seeds")
    differences = {method.label: _difference(one, method) for method in one.ranked}
    with_items = any("\n" in shown for shown in differences.values())
    about = [INTERVAL, *([WITH_ITEMS] if with_items else []), f"[{page.FOR_ONE_PAIR}]"]
    table = empty_table(columns, ["method"], caption="\n".join(about))
    for position, method in enumerate(one.ranked, 1):
        score, text = one.mean(method, method.values[one.by]), one.text()
        assert score is not None  # methods without a score are not ranked
        geometry = one.mean(method, method.values.get(GEOMETRY, {}))
        table.add_row(
            page.rank(one, method, position).text,
            Text(method.label),
            text(score.value, ""),
            Text(differences[method.label]),
            "" if geometry is None else one.text(GEOMETRY)(geometry.value, ""),
            page.seeds(one, method).text,
        )
    console.print(table)
    for note in (*page.notes(one), *page.not_ranked(one)):
        console.print(Text(note))


def _difference(one: MethodComparison, method: Method) -> str:
    """Return the difference to the reference and its interval over seeds; on a second line that over test items too."""
    difference, text = one.difference(method, one.reference), one.text()
    if method is one.reference or difference is None:
        return ""
    lines = [f"{text(difference.value, '+')} {difference.interval('+', text)}".rstrip()]
    if found := one.over_items[method.label]:
        lines.append(f"[{text(found[0], '+')}, {text(found[1], '+')}]")
    return "\n".join(lines)


def _print_ladder(console: Console, ladder: Ladder) -> None:
    console.print(Text(page.ladder_title(ladder), style="bold"))
    shown = page.ladder_table(ladder)
    table = empty_table(shown.columns, shown.columns[:1], caption=INTERVAL)
    for row in shown.rows:
        table.add_row(*(Text("\n".join(filter(None, (cell.text, cell.note)))) for cell in row))
    console.print(table)
