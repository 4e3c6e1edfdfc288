"""Damaged samples that training meets: written down, named to the person, and when they are no longer an exception."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clipx.errors import UserError

NAMED = 20  # samples that a run says one by one


class DamageFile:
    """RUN/damage.txt: a line for each damaged sample, however many epochs and resumes meet it."""

    def __init__(self, run: Path) -> None:
        self.path = run / "damage.txt"
        self.known = set(self.path.read_text(errors="replace").splitlines()) if self.path.is_file() else set()

    def add(self, damage: list[str]) -> list[str]:
        """Writes those that are new; returns what to say: the names of a run's first ones, then how many more."""
        met = dict.fromkeys(" ".join(line.split()) for line in damage)
        new = [line for line in met if line not in self.known]
        said = [f"left out: {line}" for line in new[: max(0, NAMED - len(self.known))]]
        self.known.update(new)
        if new:
            with self.path.open("a", errors="backslashreplace") as file:
                file.writelines(f"{line}\n" for line in new)
        if len(said) < len(new):
            said.append(f"left out: {len(new) - len(said)} more samples, {len(self.known)} by now; all in {self.path}")
        return said


@dataclass
class BadSamples:
    """Counts damage met while decoding and ends the run where there is too much of it."""

    limit: float  # data.max_bad_rate
    enough: int  # samples seen before a rate is judged
    seen: int = 0
    bad: int = 0
    names: dict[str, None] = field(default_factory=dict)  # each once, in the order met

    def count(self, total: int, damage: list[str]) -> None:
        """Raises UserError once `enough` samples were seen and more than `limit` of them were bad."""
        self.seen += total
        self.bad += len(damage)
        self.names.update(dict.fromkeys(damage))
        if self.seen >= self.enough and self.bad > self.limit * self.seen:
            refuse_above(self.limit, self.bad, self.seen, list(self.names))


def refuse_above(limit: float, bad: int, total: int, names: Sequence[str]) -> None:
    """Raises UserError naming bad samples if they are more than a share `limit` of the total."""
    if bad > limit * total:
        more = f"; and {len(names) - 5} more" if len(names) > 5 else ""
        raise UserError(
            f"{bad} of {total} samples are bad, more than data.max_bad_rate={limit}: {'; '.join(names[:5])}{more}"
        )
