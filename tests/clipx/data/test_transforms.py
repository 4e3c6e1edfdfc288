"""Two ways to the same pixels: fast decoding may differ by rounding, not by place, and never in what is damaged."""

import io
import random

import pytest
import torch
from PIL import Image
from torch import Tensor

from clipx.config import DataConfig
from clipx.data.images import BadSample, decode, header
from clipx.data.transforms import TrainTransform
from clipx.errors import UserError
from clipx.types import Inputs
from tests.clipx.folder import jpeg


def transform(decode: str, size: int = 32, interpolation: str = "bicubic", flip: bool = False) -> TrainTransform:
    inputs = Inputs(size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), interpolation, "shortest", "RN50", 8)
    return TrainTransform(DataConfig(decode=decode, crop_scale=[0.3, 1.0], flip=flip), inputs)


def picture(kind: str = "JPEG", width: int = 301, height: int = 203) -> bytes:
    """Smooth ramps: red to the right, green downwards, blue in rings."""
    x = torch.linspace(0, 255, width).expand(height, width)
    y = torch.linspace(0, 255, height)[:, None].expand(height, width)
    blue = 127 + 120 * torch.sin(x / 20) * torch.sin(y / 20)
    buffer = io.BytesIO()
    Image.fromarray(torch.stack([x, y, blue], -1).byte().numpy()).save(buffer, kind, quality=95)
    return buffer.getvalue()


def both(data: bytes, seed: int, **settings: int | str | bool) -> tuple[Tensor, Tensor]:
    made = [transform(d, **settings)(header(data), random.Random(seed)) for d in ("exact", "fast")]  # type: ignore[arg-type]
    return made[0], made[1]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("size", [16, 48, 250])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_fast_shows_the_same_part_of_the_picture(kind: str, size: int, interpolation: str) -> None:
    for seed in range(6):
        exact, fast = both(picture(kind), seed, size=size, interpolation=interpolation)
        assert exact.dtype == fast.dtype == torch.uint8 and exact.shape == fast.shape == (3, size, size)
        difference = (exact.float() - fast.float()).abs()
        assert difference.mean() < 5
        # a box that is off by a pixel of the scaled picture would move the ramps
        assert (exact[:2].float() - fast[:2].float()).mean().abs() < 2


def test_nearest_takes_pixels_as_they_are() -> None:
    exact, fast = both(picture("PNG"), 0, interpolation="nearest")
    assert (exact.float() - fast.float()).abs().mean() < 10  # up to a pixel apart


def test_flip_is_the_same_choice_in_both() -> None:
    for seed in range(8):
        exact, fast = both(picture(), seed, flip=True)
        assert (exact[0, :, -1].float().mean() > exact[0, :, 0].float().mean()) == (
            fast[0, :, -1].float().mean() > fast[0, :, 0].float().mean()
        )


def test_only_what_is_too_large_is_decoded_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for size in (250, 100, 40, 20):
        image = header(picture(width=400, height=400))
        made = transform("fast", size=size)
        made.scale = (1.0, 1.0)
        made(image, random.Random(3))
        sizes.append(image.size)
    assert sizes[0] == (400, 400) and sizes == sorted(sizes, reverse=True) and sizes[-1][0] <= 50


@pytest.mark.parametrize("data", [jpeg("red", 200)[:300], jpeg("red", 200)[:-400], picture("PNG")[:-300]])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_damage_is_found_either_way(data: bytes, mode: str) -> None:
    with pytest.raises(BadSample):
        decode(data)
    with pytest.raises(BadSample):
        transform(mode)(header(data), random.Random(0))


def test_a_one_pixel_image_and_thin_ones_work() -> None:
    for width, height in ((1, 1), (1, 300), (300, 1)):
        for seed in range(5):
            assert both(picture(width=width, height=height), seed)[1].shape == (3, 32, 32)


def test_other_decoders_are_refused() -> None:
    with pytest.raises(UserError, match=r"data\.decode=quick is not known"):
        transform("quick")
