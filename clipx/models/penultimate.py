"""Image features before the projection, for linear probes (paper 5, table 2, "bef")."""

from collections.abc import Callable
from typing import Any

from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from clipx.errors import UserError
from clipx.models.point_sets import PointTower
from clipx.models.towers.base import Projected


def penultimate_features(tower: nn.Module, image: Tensor) -> Tensor:
    """[b, 3, H, W] -> [b, width]. Raises UserError if the tower pools and projects in one step."""
    if type(tower) not in FEATURES:
        raise UserError(
            f"data.before_projection=true: {type(tower).__name__} has no features before a projection; vision "
            "transformers of open_clip, timm: towers and point sets have them"
        )
    return FEATURES[type(tower)](tower, image)


def _without_projection(tower: VisionTransformer, image: Tensor) -> Tensor:
    """Run `forward` without the projection; works for pooling by class token, mean or attention."""
    projection, tower.proj = tower.proj, None
    try:
        pooled: Tensor = tower(image)
    finally:
        tower.proj = projection
    return pooled


FEATURES: dict[type, Callable[[Any, Tensor], Tensor]] = {
    VisionTransformer: _without_projection,
    Projected: lambda tower, image: tower.body(image),
    PointTower: lambda tower, image: tower.penultimate_features(image),
}
