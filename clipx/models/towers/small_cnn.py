"""Small convolutional image towers for CPUs, in timm's registry so that open_clip's configurations find them.

A 3 x 3 stem and three stages of 3 x 3 RepVGG blocks reduce each side of the image by a factor of 8, not 16 or 32 as
usual. In an image of 48 px, a shape of 10 px then covers more than one cell of the last feature map. The pooling
(open_clip's `abs_attn`) uses the positions of the cells.
"""

from timm.models import register_model
from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg
from torch import nn

REDUCTION = 8  # pixels per cell of the last feature map, along one side
STRIDES = (2, 1, 2)  # of the three stages; the stem before them has stride 2

# name -> image size in pixels, channels of the stages
TOWERS = {
    "clipx_conv_48": (48, (48, 96, 192)),
    "clipx_conv_64": (64, (48, 96, 192)),
    "clipx_conv_48_thin": (48, (48, 64, 128)),  # takes two thirds of the time of clipx_conv_48
}


def _register(name: str, image_size: int, channels: tuple[int, int, int]) -> None:
    # timm passes these four arguments, which describe published weights; these towers have no published weights
    def create(
        pretrained: bool, pretrained_cfg: object, pretrained_cfg_overlay: object, cache_dir: object
    ) -> nn.Module:
        blocks = tuple(ByoBlockCfg(type="rep", d=1, c=c, s=stride) for c, stride in zip(channels, STRIDES, strict=True))
        model = ByobNet(ByoModelCfg(blocks=blocks, stem_chs=24, stem_type="3x3", stem_pool=""))
        side = image_size // REDUCTION
        model.default_cfg = {"pool_size": (side, side)}  # type: ignore[assignment]  # for open_clip's pooling
        return model

    create.__name__ = name
    register_model(create)


for name, (image_size, channels) in TOWERS.items():
    _register(name, image_size, channels)
