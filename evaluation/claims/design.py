"""Designs of experiments: the claims of a recipe, and its looks (numbers of seeds at which the claims are judged).

A design is stored before the first seed.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import pairwise
from pathlib import Path

from clipx.config.setting import from_values
from clipx.errors import UserError
from clipx.utils.files import write_text
from clipx.utils.trust import load_json
from evaluation.claims.table import CLAIMS, RECIPES

LOOKS = (3, 5, 8)  # default numbers of seeds of a new design
LOOKS_WITHOUT_DESIGN = (3, 5, 8, 12, 20)  # of runs whose seeds came before a design
REPLICATION = range(100, 108)  # seeds of a replication; smaller seeds decide verdicts, those from 1000 on tune settings
ERROR = 0.025  # rate of false verdicts in one direction, over all looks together
FOLDER = "designs"  # in the folder of the runs; one file per recipe


Looks = Mapping[int, float]  # number of seeds at a look -> rate of false verdicts in one direction at this look


def equal_errors(looks: tuple[int, ...]) -> Looks:
    """Return looks with equal error rates, whose sum is ERROR: the rule of runs and designs before version 0.2."""
    return dict.fromkeys(looks, ERROR / len(looks))


def spent_errors(looks: tuple[int, ...]) -> Looks:
    """Return looks with error rates that rise with the share of the seeds, as O'Brien and Fleming (1979) choose them.

    The look at n of N seeds has the rate P(Z > c sqrt(N/n)) of a standard normal Z, with c such that the rates add up
    to ERROR. So the last look keeps most of the error: 0.0199 of 0.025 for 3, 5 and 8 seeds. Because of the sum, all
    looks together have at most ERROR for any statistic and any dependence between the looks.
    """
    from scipy import optimize, special

    def rates(c: float) -> list[float]:
        return [float(special.ndtr(-c * math.sqrt(looks[-1] / look))) for look in looks]

    c = optimize.brentq(lambda c: sum(rates(c)) - ERROR, 1.0, 10.0)
    return dict(zip(looks, rates(c), strict=True))


def look_at(looks: Iterable[int], seeds: int) -> int:
    """Return the largest look that `seeds` seeds allow; 0 if there are too few."""
    return max((look for look in looks if look <= seeds), default=0)


def look_after(looks: Iterable[int], look: int) -> int:
    """Return the next look after `look`, which must not be the last one."""
    return min(later for later in looks if later > look)


def check_looks(looks: tuple[int, ...]) -> tuple[int, ...]:
    """Return `looks`. Raises UserError unless they increase from LOOKS[0] or more to REPLICATION.start or less."""
    most = REPLICATION.start
    if not looks or looks[0] < LOOKS[0] or looks[-1] > most or any(b <= a for a, b in pairwise(looks)):
        allowed = f"the first at least {LOOKS[0]}, the last at most {most}"
        raise UserError(f"looks={list(looks)} must be increasing numbers of seeds, {allowed}")
    return looks


CONTROL = "control, "  # begins the label of a control in a stored design


@dataclass(frozen=True)
class Design:
    """The design of one recipe's experiment."""

    recipe: str
    recipe_hash: str  # of the recipe's settings and the user's overrides
    arms: tuple[str, ...]
    looks: tuple[int, ...]  # numbers of seeds at which the claims are judged
    claims: Mapping[str, Mapping[str, str]]  # claim id -> label of each part -> its arms, measures and bound as text
    sets: tuple[str, ...] = ()  # LAYOUT:FOLDER or NAME:FOLDER; results on other sets do not count; empty: all count
    # a run has failed if it diverged, or if its loss, the mean of the last tenth of the steps, is above this value; the
    # claims are about the seeds that trained. None: no run counts as failed, and one that diverged blocks its claims
    failed_loss: float | None = None
    errors: tuple[float, ...] = ()  # error rate of each look; (): equal rates

    @property
    def judged_at(self) -> Looks:
        """The looks with their error rates."""
        return dict(zip(self.looks, self.errors, strict=True)) if self.errors else equal_errors(self.looks)

    def changes(self, other: "Design") -> list[str]:
        """Return one text per difference of `other` from this design."""
        found = []
        if self.recipe_hash != other.recipe_hash:
            found.append("the recipe or the overrides changed")
        if self.failed_loss != other.failed_loss:
            found.append(f"failed_loss: {self.failed_loss} -> {other.failed_loss}")
        for name in ("looks", "arms", "sets"):
            old, new = getattr(self, name), getattr(other, name)
            if old != new:
                found.append(f"{name}: {','.join(map(str, old)) or 'none'} -> {','.join(map(str, new)) or 'none'}")
        if self.looks == other.looks and self.judged_at != other.judged_at:
            found.append("the error rates of the looks differ")
        return [*found, *changed_claims(self.claims, other.claims)]


def changed_claims(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one text per claim that differs, with its first part that differs."""
    changed = []
    for claim in dict.fromkeys((*old, *new)):
        before, now = old.get(claim, {}), new.get(claim, {})
        parts = [part for part in dict.fromkeys((*before, *now)) if before.get(part) != now.get(part)]
        # a control that clipx got later is no change: it can only weaken a verdict
        parts = [part for part in parts if part in before or not part.startswith(CONTROL)]
        changed += [
            f"claim {claim}: {part}: {before.get(part, 'new')} -> {now.get(part, 'gone')}" for part in parts[:1]
        ]
    return changed


def describe_claims(recipe: str) -> dict[str, dict[str, str]]:
    """Return claim id -> label of each part -> its arms, measures and bound as text, for all claims of the recipe."""
    return {
        claim.id: {
            part.label: f"{','.join(part.arms)} {part.kind} {part.contrast} {_text(part.measures)} above {part.least:g}"
            for part in claim.parts(recipe)
        }
        | {f"{CONTROL}{control.condition}": control.text for control in claim.controls_of(recipe)}
        for claim in CLAIMS
        if recipe in claim.recipes
    }


def _text(value: object) -> str:
    """Return a measure as text. Settings with their default are left out.

    So a new setting of a measure does not change the text of stored designs.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if not is_dataclass(value):
        return repr(value)
    settings = [(field.name, getattr(value, field.name), field.default) for field in fields(value)]
    given = [f"{name}={_text(setting)}" for name, setting, default in settings if setting != default]
    return f"{type(value).__name__}({', '.join(given)})"


def hash_of(settings: object) -> str:
    """Return a short hash of a value that can be written as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]


def stored(runs: Path, recipe: str) -> Design | None:
    """Return the recipe's design in the folder of the runs; None without one. Raises UserError: the file is corrupt."""
    file = _file(runs, recipe)
    return _read(file) if file.exists() else None


def refuse_another(runs: Path, design: Design) -> None:
    """Raise UserError if the folder of the runs stores another design of this recipe, or a corrupt one."""
    before = stored(runs, design.recipe)
    if before and (changes := before.changes(design)):
        raise UserError(
            f"{_file(runs, design.recipe)} stores another design ({'; '.join(changes)}): use the stored one, or "
            "another folder with runs=DIR; clipx report judges the runs in this folder by the stored design"
        )


def store(runs: Path, design: Design) -> None:
    """Write the design into the folder of the runs, unless that folder already has it.

    Raises UserError: the folder has another design of this recipe, or the file is corrupt.
    """
    refuse_another(runs, design)
    if not (file := _file(runs, design.recipe)).exists():
        write_text(file, json.dumps(asdict(design), indent=1) + "\n")


def find_designs(paths: list[Path]) -> dict[str, Design]:
    """Return recipe -> design, from folders `designs` in `paths` (at any depth), their parents or grandparents.

    Raises UserError: a file is corrupt, or two files store different designs of a recipe.
    """
    files: list[Path] = []
    for path in (path.resolve() for path in paths):
        above = [folder / FOLDER for folder in (path.parent, path.parent.parent)]
        files += [folder / f"{recipe}.json" for folder in [*path.rglob(FOLDER), *above] for recipe in sorted(RECIPES)]
    found: dict[str, tuple[Design, Path]] = {}
    for file in filter(Path.is_file, dict.fromkeys(files)):  # many runs have the same folder above them
        design = _read(file)
        first, first_file = found.setdefault(design.recipe, (design, file))
        if changes := first.changes(design):
            different = f"{first_file} and {file} store different designs ({'; '.join(changes)})"
            raise UserError(f"{different}: give their folders to separate commands")
    return {recipe: design for recipe, (design, _) in found.items()}


def _file(runs: Path, recipe: str) -> Path:
    return runs / FOLDER / f"{recipe}.json"


def _read(file: Path) -> Design:
    try:
        design = from_values(Design, load_json(file.read_text(encoding="utf-8")))
        check_looks(design.looks)
        if design.errors and len(design.errors) != len(design.looks):
            raise ValueError("not one error rate for each look")
        return design
    except (UserError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file} is corrupt ({error!r}): restore it from a copy, or use another runs=DIR") from error
