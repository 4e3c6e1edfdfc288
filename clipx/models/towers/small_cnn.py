"""Small convolutional image towers for CPUs, in timm's registry so that open_clip's configurations find them.

Four 3 x 3 stages reduce the image by 8, half of what the usual stems do: at 48 px a shape of 10 px still
covers more than one cell of the last map. The pooling (open_clip's `abs_attn`) knows where a cell lies.
"""

from timm.models import register_model
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg
from torch import nn

REDUCTION = 8  # pixels of the image per cell of the last map, on a side
STRIDES = (2, 1, 2)  # of the stages after the stem, which has 2


def _conv(image_size: int, channels: tuple[int, int, int] = (48, 96, 192)) -> nn.Module:
    """RepVGG blocks of these channels after a stem of 24."""
    blocks = tuple(ByoBlockCfg(type="rep", d=1, c=c, s=stride) for c, stride in zip(channels, STRIDES, strict=True))
    model = ByobNet(ByoModelCfg(blocks=blocks, stem_chs=24, stem_type="3x3", stem_pool=""))
    side = image_size // REDUCTION
    model.default_cfg = {"pool_size": (side, side)}  # type: ignore[assignment]  # for open_clip's pooling
    return model


# timm calls an entry with all four; ours have no published weights that they could describe
def clipx_conv_48(
    pretrained: bool, pretrained_cfg: object, pretrained_cfg_overlay: object, cache_dir: object
) -> nn.Module:
    """For images of 48 px."""
    return _conv(48)


def clipx_conv_64(
    pretrained: bool, pretrained_cfg: object, pretrained_cfg_overlay: object, cache_dir: object
) -> nn.Module:
    """For images of 64 px."""
    return _conv(64)


def clipx_conv_48_thin(
    pretrained: bool, pretrained_cfg: object, pretrained_cfg_overlay: object, cache_dir: object
) -> nn.Module:
    """For images of 48 px, in two thirds of the time."""
    return _conv(48, (48, 64, 128))


for entry in (clipx_conv_48, clipx_conv_64, clipx_conv_48_thin):
    register_model(entry)
