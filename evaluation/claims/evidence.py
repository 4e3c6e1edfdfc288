"""Evidence for the claims: runs grouped by recipe, arm and seed; stored designs; findings of programs."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from clipx.errors import UserError
from clipx.run.folder import default_name
from clipx.utils.files import write_text
from clipx.utils.trust import load_json
from clipx.verdict import Verdict
from evaluation.claims.design import REPLICATION, Design, find_designs
from evaluation.claims.measures import CANONICAL_HELD_OUT, dataset_key
from evaluation.claims.table import CLAIMS, RECIPES, claims_of
from evaluation.claims.types import Finding, Measure
from evaluation.runs.description import data_settings, unfinished
from evaluation.runs.reader import STATED, Run
from evaluation.runs.results import data_hash
from evaluation.types import Result, first_names

V = TypeVar("V")
Seeds = dict[int, Run]
VERDICTS = get_args(Verdict)
HISTOGRAM = "missing_objects.json"  # written by `clipx report missing-objects`


@dataclass(frozen=True)
class Evidence:
    """The basis of all verdicts."""

    runs: dict[str, dict[str, Seeds]]  # recipe -> arm -> seed -> run
    stated: dict[str, list[Finding]]  # claim id -> findings that programs wrote to claims.json
    left_out: list[str]  # messages about runs that were not used
    missing_objects: list[int] | None = None  # [k]: pairs with k missing object categories (paper 1, Fig. 4)
    drawn: list[Path] = field(default_factory=list)  # SVG files next to a claims.json
    designs: dict[str, Design] = field(default_factory=dict)  # recipe -> design stored before the first seed
    others: dict[str, list[Run]] = field(default_factory=dict)  # recipe -> runs under the conditions of a control
    _known: dict[tuple[Measure, int], dict[str, float]] = field(default_factory=dict, compare=False, repr=False)

    def read(self, measure: Measure, run: Run) -> dict[str, float]:
        """Return the values of a measure on a run; they are cached."""
        key = measure, id(run)
        if key not in self._known:
            self._known[key] = measure.read(run)
        return self._known[key]


def collect_evidence(runs: list[Run], paths: list[Path]) -> Evidence:
    """Group runs by recipe, arm and seed. Read the stored designs and every claims.json at or below `paths`.

    Runs and results are left out, with a message, if they could change a verdict unnoticed: unfinished runs, runs with
    overrides or on other data, results on sets outside the stored design or scored in another way than most.

    Ids in the runs' settings that are not in the table, such as those of an older version, are named in a message.

    Raises UserError: a claims.json or a stored design is corrupt.
    """
    designs = find_designs(paths)
    experiments: dict[str, dict[str, list[Run]]] = {}  # recipe -> overrides in the run's name -> runs
    for run in runs:
        # what follows RECIPE-ARM, or the whole name if the user chose it
        overrides = run.name.removeprefix(default_name(run.config.recipe, run.config.arm))
        experiments.setdefault(run.config.recipe, {}).setdefault(overrides, []).append(run)
    found: dict[str, dict[str, Seeds]] = {}
    others: dict[str, list[Run]] = {}
    left_out = list[str]()
    for recipe, by_overrides in experiments.items():
        # Runs with overrides do not follow the recipe. They count only if no run of the recipe has different overrides.
        chosen = "" if "" in by_overrides or len(by_overrides) > 1 else next(iter(by_overrides))
        controls = [control for claim in claims_of(recipe) for control in claim.controls_of(recipe)]
        usual = {run.config.arm: run for run in by_overrides.get(chosen, ())}
        for overrides, same in by_overrides.items():
            if overrides == chosen:
                for run in _comparable(recipe, same, designs.get(recipe), left_out):
                    seeds = found.setdefault(recipe, {}).setdefault(run.config.arm, {})
                    if seeds.setdefault(run.seed, run) is not run and recipe in RECIPES:
                        left_out.append(f"left out, same recipe, arm and seed as {seeds[run.seed].path}: {run.path}")
            elif any(control.fits(run, usual.get(run.config.arm)) for control in controls for run in same):
                others.setdefault(recipe, []).extend(_comparable(recipe, same, designs.get(recipe), left_out))
            elif recipe in RECIPES:
                names = first_names([str(run.path) for run in same])
                left_out.append(f"left out, recipe={recipe} with other settings: {names}")
    if unknown := sorted({claim for run in runs for claim in run.config.claims} - {claim.id for claim in CLAIMS}):
        left_out.append(f"not judged, because this version has no such claims: {', '.join(unknown)}")
    drawn = [svg for file in _files(paths, STATED) for svg in sorted(file.parent.glob("*.svg")) if not svg.is_symlink()]
    histograms = _parsed(paths, HISTOGRAM, lambda content: [int(count) for count in content["histogram"]])
    return Evidence(found, _stated(paths), left_out, next(histograms, None), drawn, designs, others)


def _comparable(recipe: str, runs: list[Run], design: Design | None, left_out: list[str]) -> list[Run]:
    """Return the runs that were trained to the end on the usual data, with the results that can be compared.

    For runs and results that are left out, add messages to `left_out`.
    """
    early = [f"{run.path} ({text})" for run in runs if (text := unfinished(run))]
    runs = [run for run in runs if not unfinished(run)]
    # arms may differ in their data settings, and so in their samples
    texts = [data_settings(run) for run in runs]
    samples = _most_common((text, run.environment.get("data")) for text, run in zip(texts, runs, strict=True))
    is_usual = [run.environment.get("data") == samples[text] for text, run in zip(texts, runs, strict=True)]
    usual = [run for run, same in zip(runs, is_usual, strict=True) if same]
    other_data = [str(run.path) for run, same in zip(runs, is_usual, strict=True) if not same]
    scoring = _most_common((_purpose(row), _scoring(row)) for run in usual for row in run.results)
    sets = design.sets if design else ()
    found, other_sets, other_scoring = list[Run](), set[str](), set[str]()
    for run in usual:
        kept = []
        for row in run.results:
            if not _counts(row.dataset, run, sets):
                other_sets.add(row.dataset)
            elif not _usual(row, scoring):
                other_scoring.add(f"{run.path} {row.task} {row.dataset}")
            else:
                kept.append(row)
        artifacts = {s: a for s, a in run.artifacts.items() if _counts(run.dataset(s.partition("-")[2]), run, sets)}
        found.append(replace(run, results=kept, artifacts=artifacts))
    problems = {
        "not trained to the last step": early,
        "trained on other samples than most runs with these settings": other_data,
        "not an evaluation set of the stored design": sorted(other_sets),
        "scored with another precision, version of the task, prompts or examples than most runs": sorted(other_scoring),
    }
    if recipe in RECIPES:
        of_reason = {why: names for why, names in problems.items() if names}
        left_out += [f"left out, recipe={recipe}, {why}: {first_names(names)}" for why, names in of_reason.items()]
    return found


def _most_common(pairs: Iterable[tuple[str, V]]) -> dict[str, V]:
    """Return key -> its most frequent value; the first one among equally frequent values."""
    counts: dict[str, Counter[V]] = {}
    for key, value in pairs:
        counts.setdefault(key, Counter())[value] += 1
    return {key: counter.most_common(1)[0][0] for key, counter in counts.items()}


def _counts(dataset: str, run: Run, sets: tuple[str, ...]) -> bool:
    """Return True if a data set is in `sets`, the run's training data or held out of it; always if `sets` is empty.

    A set's splits train, val and dev are different sets: a result on dev is not one on test.
    """
    dataset = dataset.partition(", ")[0]
    known = {CANONICAL_HELD_OUT, dataset_key(run.config.data.name), *_keys_of(sets)}
    of_split = any(dataset.endswith(f"/{Path(spec.partition(':')[2])}") for spec in sets)  # FOLDER test: PARENT/test
    return not sets or dataset_key(dataset) in known or of_split


@cache
def _keys_of(sets: tuple[str, ...]) -> set[str]:
    """Return `dataset_key` of the names in result rows that the sets LAYOUT:PLACE or NAME:FOLDER may have."""
    names = list[str]()
    for kind, _, place in (spec.partition(":") for spec in sets):
        path = Path(place.partition("@")[0])  # hf:REPOSITORY@SPLIT
        stem = re.sub(r"^(dataset_|captions_)", "", path.stem)
        names += [kind, str(path), stem]
        names += [f"{kind}-count", f"{kind}-{stem.rpartition('_')[2]}"]  # clevr_count, xtd10_es
        names += [f"{path.name}-{kind}", f"{path.parent.name}-{kind}/{path.name}"]  # photos_swaps, flickr8k_swaps/test
    return {*map(dataset_key, names)}


def _quantity(row: Result) -> str:
    return f"{row.task} {dataset_key(row.dataset)} {row.split} {row.metric}"


def _purpose(row: Result) -> str:
    return f"{_quantity(row)}{' again' if row.seed in REPLICATION else ''}"


def _scoring(row: Result) -> tuple[str, str]:
    """Return precision and data, and the version of the task."""
    return f"{row.hashes.get('precision', '').partition(' ')[0]} {data_hash(row)}", row.hashes.get("scoring", "")


def _usual(row: Result, scoring: dict[str, tuple[str, str]]) -> bool:
    """Return True if a row was scored in the same way as most rows of its quantity.

    A replication may have been scored by another version of the task, but not on other data.
    """
    mine = scoring[_purpose(row)]
    return _scoring(row) == mine and mine[0] == scoring.get(_quantity(row), mine)[0]


def _files(paths: list[Path], name: str) -> list[Path]:
    return sorted({file.resolve() for path in paths for file in path.rglob(name)})


def _stated(paths: list[Path]) -> dict[str, list[Finding]]:
    """Return claim id -> findings from every claims.json: [{claim, statement, measured, expected, verdict}, ...].

    Entries with the key `settings` are skipped: they were computed with the user's own settings, not the paper's.
    """
    stated: dict[str, list[Finding]] = {}
    for findings in _parsed(paths, STATED, lambda rows: [_stated_finding(e) for e in rows if not e.get("settings")]):
        for claim, finding in findings:
            stated.setdefault(claim, []).append(finding)
    return stated


def write_stated(folder: Path, rows: list[dict[str, Any]], settings: dict[str, str]) -> Path:
    """Write the rows to claims.json in a folder and return its path; `settings`: those that the user gave."""
    write_text(folder / STATED, json.dumps([row | {"settings": settings} for row in rows], indent=1) + "\n")
    return folder / STATED


def _parsed(paths: list[Path], name: str, parse: Callable[[Any], Any]) -> Iterator[Any]:
    for file in _files(paths, name):
        try:
            yield parse(load_json(file.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file} is corrupt ({error!r}): delete it and run its command again") from error


def _stated_finding(entry: dict[str, Any]) -> tuple[str, Finding]:
    verdict, measured, expected = entry["verdict"], entry["measured"], entry["expected"]
    if verdict not in VERDICTS:
        raise ValueError(f"verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
    note = f"measured {_short(measured)}, expected {_short(expected)}"
    if isinstance(measured, dict) and isinstance(expected, dict):
        note = "; ".join(f"{name}: {_short(value)}, expected {expected.get(name)}" for name, value in measured.items())
    return str(entry["claim"]), Finding(str(entry["statement"]), verdict, note=note)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
