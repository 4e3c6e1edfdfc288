"""What image towers compute before their projection, for linear probes (paper 5, table 2, "bef")."""

from collections.abc import Callable
from typing import Any

from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from clipx.errors import UserError
from clipx.models.point_sets import PointTower
from clipx.models.towers.base import Projected


def penultimate_features(tower: nn.Module, image: Tensor) -> Tensor:
    """[b, 3, H, W] -> [b, width].

    Raises:
        UserError: a tower whose pooling and projection are one.
    """
    if type(tower) not in BEFORE:
        allowed = "vision transformers of open_clip, timm: towers and point sets"
        raise UserError(
            f"data.before_projection=true: {type(tower).__name__} has no features before a projection; {allowed} have"
        )
    return BEFORE[type(tower)](tower, image)


def _pooled(tower: VisionTransformer, image: Tensor) -> Tensor:
    """What `forward` projects, whether it is the class token or a mean: its result without the projection."""
    projection, tower.proj = tower.proj, None
    try:
        pooled: Tensor = tower(image)
    finally:
        tower.proj = projection
    return pooled


BEFORE: dict[type, Callable[[Any, Tensor], Tensor]] = {
    VisionTransformer: _pooled,
    Projected: lambda tower, image: tower.body(image),
    PointTower: lambda tower, image: tower.before_projection(image),
}
