"""Evidence for the claims: runs grouped by recipe, arm and seed; stored designs; findings of programs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from clipx.errors import UserError
from evaluation.claims.design import Design, find_designs
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import Finding, Measure, Verdict
from evaluation.runs.reader import STATED, Run

Seeds = dict[int, Run]
VERDICTS = get_args(Verdict)
RECIPES = {recipe for claim in CLAIMS for recipe in claim.recipes}
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
    _known: dict[tuple[Measure, int], dict[str, float]] = field(default_factory=dict, compare=False, repr=False)

    def read(self, measure: Measure, run: Run) -> dict[str, float]:
        """Return the values of a measure on a run; they are cached."""
        key = measure, id(run)
        if key not in self._known:
            self._known[key] = measure.read(run)
        return self._known[key]


def collect_evidence(runs: list[Run], paths: list[Path]) -> Evidence:
    """Group runs by recipe, arm and seed, and read every claims.json at or below `paths`.

    Raises UserError: a claims.json or a stored design is corrupt.
    """
    experiments: dict[str, dict[str, list[Run]]] = {}  # recipe -> overrides in the run's name -> runs
    for run in runs:
        experiments.setdefault(_setting(run, "recipe"), {}).setdefault(_overrides(run), []).append(run)
    found: dict[str, dict[str, Seeds]] = {}
    left_out = []
    for recipe, by_overrides in experiments.items():
        # Runs with overrides do not follow the recipe. They count only if no run of the recipe has different overrides.
        chosen = "" if "" in by_overrides or len(by_overrides) > 1 else next(iter(by_overrides))
        for overrides, same in by_overrides.items():
            for run in same if overrides == chosen else ():
                seeds = found.setdefault(recipe, {}).setdefault(_setting(run, "arm"), {})
                if seeds.setdefault(run.seed, run) is not run and recipe in RECIPES:
                    left_out.append(f"left out, same recipe, arm and seed as {seeds[run.seed].path}: {run.path}")
            if overrides != chosen and recipe in RECIPES:
                names = [str(run.path) for run in same]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                left_out.append(f"left out, recipe={recipe} with other settings: {', '.join(names[:3])}{more}")
    drawn = [svg for file in _files(paths, STATED) for svg in sorted(file.parent.glob("*.svg"))]
    return Evidence(found, _stated(paths), left_out, _missing_objects(paths), drawn, find_designs(paths))


def _setting(run: Run, key: str) -> str:
    return str(run.config.get(key) or "")


def _overrides(run: Run) -> str:
    """Return the part of the run's name after RECIPE-ARM, or the whole name if the user chose it."""
    return run.name.removeprefix("-".join(filter(None, (_setting(run, "recipe"), _setting(run, "arm")))))


def _files(paths: list[Path], name: str) -> list[Path]:
    return sorted({file.resolve() for path in paths for file in path.rglob(name)})


def _missing_objects(paths: list[Path]) -> list[int] | None:
    for file in _files(paths, HISTOGRAM):
        with _damage_as_user_error(file):
            return [int(count) for count in json.loads(file.read_text())["histogram"]]
    return None


def _stated(paths: list[Path]) -> dict[str, list[Finding]]:
    """Return claim id -> findings from every claims.json: [{claim, statement, measured, expected, verdict}, ...].

    Entries with the key `settings` are skipped: they were computed with the user's own settings, not the paper's.
    """
    stated: dict[str, list[Finding]] = {}
    for file in _files(paths, STATED):
        with _damage_as_user_error(file):
            for entry in json.loads(file.read_text()):
                if not entry.get("settings"):
                    stated.setdefault(str(entry["claim"]), []).append(_stated_finding(entry))
    return stated


@contextmanager
def _damage_as_user_error(file: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is corrupt ({error!r}): delete it and run its command again") from error


def _stated_finding(entry: dict[str, Any]) -> Finding:
    verdict, measured, expected = entry["verdict"], entry["measured"], entry["expected"]
    if verdict not in VERDICTS:
        raise ValueError(f"verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
    note = f"measured {_short(measured)}, expected {_short(expected)}"
    if isinstance(measured, dict) and isinstance(expected, dict):
        note = "; ".join(f"{name}: {_short(value)}, expected {expected.get(name)}" for name, value in measured.items())
    return Finding(str(entry["statement"]), verdict, note=note)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
