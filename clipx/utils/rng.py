"""Random generators keyed by (seed, step, purpose): all ranks, devices and resumed runs draw the same numbers."""

import numpy as np
import torch
from torch import Generator


def derive_seed(*key: int) -> int:
    """Return a different seed for each key, e.g. (seed, step, number of the purpose).

    The key is hashed, because neighbouring integer seeds give correlated Mersenne Twister streams.
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def generator(*key: int) -> Generator:
    """Return a CPU generator seeded with `derive_seed(*key)`."""
    return torch.Generator().manual_seed(derive_seed(*key))
