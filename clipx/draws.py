"""Random numbers that depend on what they are for alone: equal on all ranks and devices, and after a resume."""

import numpy as np
import torch
from torch import Generator


def seed(*key: int) -> int:
    """A seed of its own for each key, e.g. (seed, step, a number of the purpose).

    The key is hashed: Mersenne twisters seeded with neighbours start alike.
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def generator(*key: int) -> Generator:
    """A stream of its own on the CPU for each key."""
    return torch.Generator().manual_seed(seed(*key))
