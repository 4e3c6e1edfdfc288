"""A small convolutional image tower for CPUs, in timm's registry so that open_clip's configurations find it.

Four 3 x 3 stages reduce the image by 8, half of what the usual stems do: at 48 px a shape of 10 px still
covers more than one cell of the last map. The pooling (open_clip's `abs_attn`) knows where a cell lies.
"""

from timm.models import register_model
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg
from torch import nn

REDUCTION = 8  # pixels of the image per cell of the last map, on a side


def _conv(image_size: int) -> nn.Module:
    """RepVGG blocks of 48, 96 and 192 channels after a stem of 24."""
    stages = ((48, 2), (96, 1), (192, 2))
    blocks = tuple(ByoBlockCfg(type="rep", d=1, c=channels, s=stride) for channels, stride in stages)
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


for entry in (clipx_conv_48, clipx_conv_64):
    register_model(entry)
