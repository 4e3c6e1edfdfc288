"""Position embeddings of start weights, fitted to another image size or context length.

Images: timm resamples the grid (bicubic), tokens before the grid stay. Texts: Long-CLIP (Zhang et al. 2024,
arXiv 2403.15378) keeps the first 20 positions and interpolates the others linearly; a shorter context keeps the first L
positions, so that texts that fit have the same embedding as before.
"""

from collections.abc import Mapping
from math import isqrt

import torch
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from clipx.errors import UserError

KEPT = 20  # number of positions that CLIP has trained well (Long-CLIP, section 3.1)
NAMES = ("positional_embedding", "pos_embed")  # ends of the keys in open_clip and timm
TEXT = "text."  # start of the keys of a text tower; all others are of the image tower


def fit_positions(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `weights` with position embeddings in the shapes that the model's weights `own` have.

    All other weights are returned as they are, and so are positions of images if a grid is not square or the
    number of class and register tokens differs. Raises UserError for a text tower with too few positions to stretch.
    """
    fitted = dict(weights)
    for key, old in weights.items():
        if key in own and old.shape != own[key].shape and key.endswith(NAMES):
            of_text = key.startswith(TEXT) or key == "positional_embedding"  # without `text.` in open_clip's CLIP
            fit = stretch if of_text else _resample
            fitted[key] = fit(old, own[key].shape[-2])
    return fitted


def stretch(positions: Tensor, length: int) -> Tensor:
    """Return the embeddings [length, width] of the positions of a text, from [n, width].

    If length > n, position i >= 20 takes the value at 20 + (i - 20) (n - 20) / (length - 20); beyond n - 1, the line
    through the last two positions continues. For 77 -> 248 this is Long-CLIP's interpolation. If length <= n, the first
    `length` positions are kept.
    """
    if length <= len(positions):
        return positions[:length]
    rest = positions[KEPT:]
    if len(rest) < 2:
        raise UserError(
            f"model.text.context_length={length}: the start weights have {len(positions)} positions, and stretching "
            f"needs {KEPT + 2}; allowed: up to {len(positions)}"
        )
    place = torch.arange(length - KEPT) * (len(rest) / (length - KEPT))
    low = place.long().clamp(max=len(rest) - 2)
    return torch.cat([positions[:KEPT], torch.lerp(rest[low], rest[low + 1], (place - low)[:, None])])


def _resample(positions: Tensor, count: int) -> Tensor:
    """Resample [n, width] or [1, n, width] to `count` tokens: a square grid, after class or register tokens."""
    n, side = positions.shape[-2], isqrt(count)
    prefix = count - side**2
    if n - isqrt(n) ** 2 != prefix:
        return positions
    resampled: Tensor = resample_abs_pos_embed(positions.reshape(1, n, -1), [side, side], num_prefix_tokens=prefix)
    return resampled.reshape(*positions.shape[:-2], count, -1)
