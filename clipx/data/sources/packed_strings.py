"""Millions of texts in two arrays: Python strings would be copied into every worker as soon as they are looked at."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class PackedTexts:
    """A list of texts as one block of UTF-8 bytes and the ends of each; worker processes share it."""

    def __init__(self, texts: Iterable[str]) -> None:
        block = bytearray()
        ends = []
        for text in texts:
            block += text.encode("utf-8", "surrogatepass")
            ends.append(len(block))
        self._block: NDArray[np.uint8] = np.frombuffer(bytes(block), np.uint8)
        self._ends: NDArray[np.int64] = np.array([0, *ends], np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        begin, end = self._ends[index], self._ends[index + 1]
        return self._block[begin:end].tobytes().decode("utf-8", "surrogatepass")

    def digest_bytes(self) -> bytes:
        """What a hash of the content is taken over."""
        return self._block.tobytes() + self._ends.tobytes()
