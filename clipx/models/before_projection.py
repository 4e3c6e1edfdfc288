"""What image towers compute before their projection, for linear probes (paper 5, table 2, "bef")."""

from collections.abc import Callable
from typing import Any

from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from clipx.errors import UserError
from clipx.models.base import Projected
from clipx.models.point_sets import PointTower


def features(tower: nn.Module, image: Tensor) -> Tensor:
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


def _class_token(tower: VisionTransformer, image: Tensor) -> Tensor:
    found = tower.forward_intermediates(
        image,
        indices=1,
        normalize_intermediates=True,
        intermediates_only=True,
        output_fmt="NLC",
        output_extra_tokens=True,
    )
    token: Tensor = found["image_intermediates_prefix"][-1][:, 0]
    return token


BEFORE: dict[type, Callable[[Any, Tensor], Tensor]] = {
    VisionTransformer: _class_token,
    Projected: lambda tower, image: tower.body(image),
    PointTower: lambda tower, image: tower.before_projection(image),
}
