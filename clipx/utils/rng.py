"""Seeds and generators that depend only on a key of integers, such as (seed, step, STREAM).

Equal keys give equal numbers on every rank, and after a resume.
"""

import numpy as np
import torch
from torch import Generator


def derive_seed(*key: int) -> int:
    """Return a different seed for each key, e.g. (seed, step, STREAM), where each purpose has its own constant STREAM.

    The key is hashed, because neighbouring integer seeds give correlated Mersenne Twister streams.
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def generator(*key: int, device: torch.device | str = "cpu") -> Generator:
    """Return a generator on `device`, seeded with `derive_seed(*key)`."""
    return torch.Generator(device).manual_seed(derive_seed(*key))


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the CPU and the device. torch.manual_seed would also queue a call for a GPU that is not used."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
