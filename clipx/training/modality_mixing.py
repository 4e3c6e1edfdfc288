"""Modality mixing: exchanges entries between paired features before the objective (paper 4, sec. 4.1, app. D.2).

With probability p a step mixes the gathered image features X and text features Y, both [B, E]:

    hard       X'_ij = Y_ij and Y'_ij = X_ij where m_ij = 1, m_ij ~ Bernoulli(1/2) for each entry   ("HS")
    hard_rows  the same with one m_i for a whole row                                  ("Hard Swap Feature")
    soft       X' = l X + (1 - l) Y,  Y' = l Y + (1 - l) X,  l_ij ~ U[0, 1] for each entry          ("SS")

Features are not normalised afterwards. Masks are drawn on the CPU, seeded by (seed, step), so all ranks and devices
mix identically, and a resumed run draws the same masks.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from clipx.errors import UserError
from clipx.types import Embeddings
from clipx.utils import rng
from clipx.utils.device import to_device
from clipx.utils.registry import lookup

STREAM = 0x4D4958  # separates these random draws from other draws seeded by (seed, step)

Mask = Callable[[int, int, Generator], Tensor]  # B, E -> l, the share of each entry that is kept, [B, E] or [B, 1]
Mixing = Callable[[Embeddings, int], Embeddings]  # (embeddings, step) -> mixed embeddings
MASKS: dict[str, Mask | None] = {
    "none": None,
    "hard": lambda B, E, generator: torch.randint(0, 2, (B, E), generator=generator),
    "hard_rows": lambda B, E, generator: torch.randint(0, 2, (B, 1), generator=generator),
    "soft": lambda B, E, generator: torch.rand(B, E, generator=generator),
}


def mixes(probability: float, generator: Generator) -> bool:
    """Return True if a step mixes; `generator`: that of (seed, step, STREAM), before any other draw."""
    return bool(torch.rand((), generator=generator) < probability)


def build_mixing(kind: str, probability: float, seed: int) -> Mixing:
    """Build the mixing function; kind=none returns embeddings unchanged.

    Raises UserError for an unknown mixing.kind, or a kind with mixing.probability=0.
    """
    mask = lookup(MASKS, kind, "mixing.kind")
    if mask is None:
        return lambda embeddings, step: embeddings
    if not probability:
        raise UserError(f"mixing.kind={kind} never mixes with mixing.probability=0; allowed: above 0, up to 1")

    def mix(embeddings: Embeddings, step: int) -> Embeddings:
        generator = rng.generator(seed, step, STREAM)
        if not mixes(probability, generator):
            return embeddings
        X, Y = embeddings.image, embeddings.text
        share = to_device(mask(X.shape[0], X.shape[1], generator).to(X.dtype), X.device)
        return replace(embeddings, image=share * X + (1 - share) * Y, text=share * Y + (1 - share) * X)

    return mix
