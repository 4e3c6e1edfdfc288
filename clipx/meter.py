"""Speed of a run between two lines of the log."""

import time
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """Images per second, and the share of the time that steps wait for data."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.waited = 0.0
        self.images = 0

    def wait(self, batches: Iterator[T]) -> Iterator[T]:
        """The same batches, with the time between asking for one and getting it added up."""
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - asked
            if batch is None:
                return
            yield batch

    def read(self) -> dict[str, float]:
        """`images_per_s` and `data_wait` since the last call."""
        elapsed = time.perf_counter() - self.start
        rates = {
            "images_per_s": round(self.images / elapsed, 1),
            "data_wait": round(self.waited / elapsed, 4),
        }
        self.start, self.waited, self.images = time.perf_counter(), 0.0, 0
        return rates
