"""When damage is no longer an exception."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from clipx.errors import UserError


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
