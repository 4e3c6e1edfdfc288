"""A classification problem for tests of the linear probe."""

import torch
import torch.nn.functional as F
from torch import Tensor

CLASSES = 5


def problem(n: int, seed: int, noise: float = 6.0) -> tuple[Tensor, Tensor]:
    """Return normalised features with a large common mean, and labels; every seed has the same class centres."""
    centres = torch.randn(CLASSES, 48, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(CLASSES, (n,), generator=generator)
    features = centres[label] + noise * torch.linspace(1, 0.05, 48) * torch.randn(n, 48, generator=generator)
    return F.normalize(features + 4.0, dim=1), label
