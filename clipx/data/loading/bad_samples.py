"""List of a training run's bad samples, RUN/bad_samples.txt, and the error if their share exceeds data.max_bad_rate."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clipx.errors import UserError

LOGGED = 20  # number of bad samples that a run logs by name; it only counts the others


class TooManyBadSamples(UserError):
    """Too many samples are bad to continue; `names` has the location and the error of each bad sample found."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = list(names)


class BadSampleFile:
    """RUN/bad_samples.txt: one line per bad sample, even if the sample recurs in later epochs or after a resume."""

    def __init__(self, run: Path) -> None:
        self.path = run / "bad_samples.txt"
        self.known = set(self.path.read_text(errors="replace").splitlines()) if self.path.is_file() else set()

    def add(self, bad: list[str]) -> list[str]:
        """Append the new bad samples, and return log messages: the first LOGGED names of a run, then only counts."""
        new = [line for line in dict.fromkeys(" ".join(b.split()) for b in bad) if line not in self.known]
        messages = [f"left out: {line}" for line in new[: max(0, LOGGED - len(self.known))]]
        self.known.update(new)
        if new:
            with self.path.open("a", errors="backslashreplace") as file:
                file.writelines(f"{line}\n" for line in new)
        if len(messages) < len(new):
            more = len(new) - len(messages)
            messages.append(f"left out: {more} more samples, {len(self.known)} in total; all are in {self.path}")
        return messages


@contextmanager
def listed_bad_samples(run: Path) -> Iterator[None]:
    """Add the samples of TooManyBadSamples to RUN/bad_samples.txt, because the run ends before it logs them."""
    try:
        yield
    except TooManyBadSamples as error:
        file = BadSampleFile(run)
        file.add(error.names)
        raise UserError(f"{error}; all bad samples found are listed in {file.path}") from error


@dataclass
class BadSampleCounter:
    """Count of the samples seen while training, and of the bad ones among them."""

    limit: float  # data.max_bad_rate
    min_seen: int  # number of samples before the share of bad ones is checked
    seen: int = 0
    bad: int = 0
    names: dict[str, None] = field(default_factory=dict)  # bad samples in order of occurrence, without repeats

    def count(self, total: int, bad: list[str]) -> None:
        """Add `total` samples, of which `bad` are bad. Raises TooManyBadSamples if the share exceeds `limit`."""
        self.seen += total
        self.bad += len(bad)
        self.names.update(dict.fromkeys(bad))
        if self.seen >= self.min_seen:
            check_bad_rate(self.limit, self.bad, self.seen, self.names)


def check_bad_rate(limit: float, bad: int, total: int, names: Iterable[str]) -> None:
    """Raise TooManyBadSamples if `bad` of `total` samples exceed the share `limit`; the message has the first names."""
    if bad > limit * total:
        listed = list(names)
        more = f"; and {len(listed) - 5} more" if len(listed) > 5 else ""
        raise TooManyBadSamples(
            f"{bad} of {total} samples are bad, more than data.max_bad_rate={limit}: {'; '.join(listed[:5])}{more}",
            listed,
        )
