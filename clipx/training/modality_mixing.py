"""Mixing of the two modalities before the objective (paper 4, section 4.2 and appendix D.2).

With probability p a step exchanges parts of the paired features X (images) and Y (texts), both [B, E]:

    hard       X'_ij = Y_ij and Y'_ij = X_ij where m_ij = 1, m_ij ~ Bernoulli(1/2) for each entry   ("HS")
    hard_rows  the same with one m_i for a whole row                                  ("Hard Swap Feature")
    soft       X' = l X + (1 - l) Y,  Y' = l Y + (1 - l) X,  l_ij ~ U[0, 1] for each entry          ("SS")

Nothing is normalised again. It acts on the gathered batch, with masks drawn from (seed, step) on the CPU, so
that every rank and every device mixes the same way and a resumed run goes on as it would have.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor

from clipx.config.schema import MixingConfig
from clipx.errors import UserError
from clipx.types import Embeddings
from clipx.utils import rng
from clipx.utils.registry import lookup

STREAM = 0x4D4958  # keeps these draws apart from others made of (seed, step)

Mask = Callable[[int, int, Generator], Tensor]  # B, E -> the share l of each entry that stays, [B, E] or [B, 1]
Mixing = Callable[[Embeddings, int], Embeddings]  # (embeddings, step)


def hard(B: int, E: int, generator: Generator) -> Tensor:
    """Each entry stays or goes."""
    return torch.randint(0, 2, (B, E), generator=generator)


def hard_rows(B: int, E: int, generator: Generator) -> Tensor:
    """Each row stays or goes."""
    return torch.randint(0, 2, (B, 1), generator=generator)


def soft(B: int, E: int, generator: Generator) -> Tensor:
    """Each entry stays in part."""
    return torch.rand(B, E, generator=generator)


MASKS: dict[str, Mask | None] = {"none": None, "hard": hard, "hard_rows": hard_rows, "soft": soft}


def build_mixing(config: MixingConfig, seed: int) -> Mixing:
    """The mixing of a run.

    Raises:
        UserError: unknown mixing.kind, or one that would never mix.
    """
    mask = lookup(MASKS, config.kind, "mixing.kind")
    if mask is None:
        return lambda embeddings, step: embeddings
    if not config.probability:
        raise UserError(f"mixing.kind={config.kind} never mixes with mixing.probability=0; allowed: above 0, up to 1")

    def mix(embeddings: Embeddings, step: int) -> Embeddings:
        generator = rng.generator(seed, step, STREAM)
        if torch.rand((), generator=generator) >= config.probability:
            return embeddings
        X, Y = embeddings.image, embeddings.text
        share = mask(X.shape[0], X.shape[1], generator).to(X)
        return replace(embeddings, image=share * X + (1 - share) * Y, text=share * Y + (1 - share) * X)

    return mix
