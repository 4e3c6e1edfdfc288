"""Speed of a run between two lines of the log."""

import time
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """Images per second, and the share of the time that steps wait for data.

    Both count from the first batch on. What that one takes is the start of the loader, once in a run: it is reported
    by itself, with the first numbers.
    """

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.first: float | None = None  # seconds until the first batch, until it was read
        self.waited = 0.0
        self.images = 0

    def wait(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, with the time between asking for one and getting it added up."""
        started, asked = False, time.perf_counter()
        for batch in batches:
            now = time.perf_counter()
            if started:
                self.waited += now - asked
            else:
                started, self.start, self.first = True, now, now - asked
            yield batch
            asked = time.perf_counter()

    def read(self) -> dict[str, float]:
        """`images_per_s` and `data_wait` since the last call; in the first one also `first_batch_s`."""
        elapsed = time.perf_counter() - self.start
        rates = {
            "images_per_s": round(self.images / elapsed, 1),
            "data_wait": round(self.waited / elapsed, 4),
        }
        if self.first is not None:
            rates["first_batch_s"] = round(self.first, 2)
        self.start, self.waited, self.images, self.first = time.perf_counter(), 0.0, 0, None
        return rates
