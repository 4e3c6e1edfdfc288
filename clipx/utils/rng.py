"""Random streams keyed by (seed, step, purpose), so that all ranks, devices and resumed runs draw the same numbers."""

import numpy as np
import torch
from torch import Generator


def derive_seed(*key: int) -> int:
    """A seed of its own for each key, e.g. (seed, step, a number of the purpose).

    Hashed, because neighbouring integer seeds give correlated Mersenne Twister streams.
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def generator(*key: int) -> Generator:
    """A stream of its own on the CPU for each key."""
    return torch.Generator().manual_seed(derive_seed(*key))
