"""Fast and exact decoding show the same part of the image; boxes and RandAugment are those of torchvision."""

import io
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import RandAugment, RandomResizedCrop

from clipx.config.schema import DataConfig
from clipx.data.loading.collate import DecodedSample, collate
from clipx.data.preprocess.images import BadSample, decode, open_image, rgb_pixels
from clipx.data.preprocess.on_device import TURNS, Box, Operations
from clipx.data.preprocess.transforms import TrainTransform, crop_box
from clipx.errors import UserError
from tests.helpers.folder import jpeg
from tests.helpers.loading import inputs


def transform(decode: str, size: int = 32, interpolation: str = "bicubic", flip: bool = False) -> TrainTransform:
    config = DataConfig(decode=decode, crop_scale=[0.3, 1.0], flip=flip)
    return TrainTransform(config, inputs(size, interpolation=interpolation))


def picture(kind: str = "JPEG", width: int = 301, height: int = 203) -> bytes:
    """Encode a smooth image: red increases to the right, green increases downwards, blue has waves."""
    x = torch.linspace(0, 255, width).expand(height, width)
    y = torch.linspace(0, 255, height)[:, None].expand(height, width)
    blue = 127 + 120 * torch.sin(x / 20) * torch.sin(y / 20)
    buffer = io.BytesIO()
    Image.fromarray(torch.stack([x, y, blue], -1).byte().numpy()).save(buffer, kind, quality=95)
    return buffer.getvalue()


def both(data: bytes, seed: int, **settings: int | str | bool) -> tuple[Tensor, Tensor]:
    """Return the transformed image with exact and with fast decoding."""
    exact, fast = (transform(d, **settings)(open_image(data), random.Random(seed)) for d in ("exact", "fast"))  # type: ignore[arg-type]
    return exact, fast


@pytest.mark.parametrize(
    ("kind", "size", "interpolation"), [("JPEG", 16, "bicubic"), ("PNG", 48, "bilinear"), ("WEBP", 250, "bicubic")]
)
def test_fast_decoding_shows_the_same_part_of_the_image(kind: str, size: int, interpolation: str) -> None:
    for width, height in ((1, 1), (1, 300), (300, 1)):
        assert both(picture(kind, width, height), 0, size=size, interpolation=interpolation)[1].shape == (3, size, size)
    for seed in range(6):
        exact, fast = both(picture(kind), seed, size=size, interpolation=interpolation)
        assert exact.dtype == fast.dtype == torch.uint8 and exact.shape == fast.shape == (3, size, size)
        difference = (exact.float() - fast.float()).abs()
        assert difference.mean() < 5
        # a box that is off by one pixel of the reduced image would shift red and green
        assert (exact[:2].float() - fast[:2].float()).mean().abs() < 2


def test_fast_decoding_reduces_only_images_larger_than_needed() -> None:
    sizes = []
    for size in (250, 100, 40, 20):
        image = open_image(picture(width=400, height=400))
        fast = transform("fast", size=size)
        fast.scale = (1.0, 1.0)
        fast(image, random.Random(3))
        sizes.append(image.size)
    assert sizes[0] == (400, 400) and sizes == sorted(sizes, reverse=True) and sizes[-1][0] <= 50


@pytest.mark.parametrize("data", [jpeg("red", 200)[:300], jpeg("red", 200)[:-400], picture("PNG")[:-300]])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_both_decoders_refuse_corrupt_images(data: bytes, mode: str) -> None:
    with pytest.raises(BadSample):
        transform(mode)(open_image(data), random.Random(0))


PHOTOS = [(300, 200), (400, 300), (500, 100), (200, 300), (300, 400), (100, 500), (333, 250), (500, 375)]


def torchvision_box(width: int, height: int, scale: tuple[float, float]) -> Box:
    """Return a random box of torchvision's RandomResizedCrop."""
    empty = torch.empty(3, height, width, dtype=torch.uint8)
    top, left, h, w = RandomResizedCrop.get_params(empty, list(scale), [3 / 4, 4 / 3])
    return left, top, left + w, top + h


@pytest.mark.parametrize(("width", "height"), PHOTOS)
def test_the_box_equals_that_of_torchvision_if_no_random_box_fits(width: int, height: int) -> None:
    scale = (0.99999, 0.99999)  # a random box of almost the whole area does not fit
    torch.manual_seed(0)
    expected = torchvision_box(width, height, scale)
    found = crop_box(width, height, scale, random.Random(0))
    assert found == pytest.approx(expected, abs=1)  # torchvision rounds to whole pixels
    assert 0 <= found[0] < found[2] <= width and 0 <= found[1] < found[3] <= height


@pytest.mark.parametrize(("width", "height", "low"), [(300, 200, 0.2), (500, 100, 0.9)])
def test_boxes_have_the_distribution_of_torchvision(width: int, height: int, low: float) -> None:
    torch.manual_seed(0)
    generator, draws = random.Random(0), range(2000)
    expected = torch.tensor([torchvision_box(width, height, (low, 1.0)) for _ in draws], dtype=torch.float64)
    found = torch.tensor([crop_box(width, height, (low, 1.0), generator) for _ in draws], dtype=torch.float64)
    size = torch.tensor([width, height, width, height])
    for difference in ((found.mean(0) - expected.mean(0)) / size, (found.std(0) - expected.std(0)) / size):
        assert difference.abs().max() < 0.02


@pytest.mark.parametrize(("width", "height"), [(48, 48), *PHOTOS])
def test_a_scale_of_one_is_the_central_square_and_makes_the_same_number_of_draws(width: int, height: int) -> None:
    generator, other = random.Random(5), random.Random(5)
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    assert crop_box(width, height, (1.0, 1.0), generator) == (left, top, left + side, top + side)
    for _ in range(20):  # area and ratio of ten boxes
        other.random()
    assert generator.random() == other.random()  # so the flip is the same as after random boxes


def test_randaugment_is_that_of_torchvision() -> None:
    ours, theirs = Operations([2, 7], 32), RandAugment(2, 7, num_magnitude_bins=11)
    image = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8)
    for seed in range(100):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.Random(seed).getrandbits(62))
            expected = theirs(image)
        found = image
        for operation in ours.draw(random.Random(seed)):
            found = ours.apply(found, operation)
        assert torch.equal(found, expected)


SIZES = [*PHOTOS, (1, 1), (1, 300), (300, 1), (32, 32), (256, 341), (900, 800)]


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("scale", [[0.1, 1.0], [1.0, 1.0]], ids=str)
@pytest.mark.parametrize("rand_augment", [None, [2, 7]], ids=str)
def test_the_device_makes_the_same_pixels_as_a_loader_process(
    interpolation: str, scale: list[float], rand_augment: list[int] | None
) -> None:
    """Noise shows a wrong rounding. One pixel, tall images and one above LARGEST are in the batch."""
    here, device = (
        TrainTransform(
            DataConfig(crop_scale=scale, flip=True, rand_augment=rand_augment, augment=augment),
            inputs(interpolation=interpolation),
        )
        for augment in ("workers", "device")
    )
    draw, expected, samples = np.random.default_rng(0), [], []
    for number, (width, height) in enumerate(SIZES):
        image = Image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8))
        expected.append(here(image, random.Random(number)))
        pixels, crops = device.for_device(image, random.Random(number))
        samples.append(DecodedSample(number, pixels, torch.zeros(1), crops=crops))
    batch = collate(samples)
    assert batch.crops is not None
    assert batch.crops.flags.any(0).tolist() == [TURNS, True], "some images are turned (by PIL 13), some are flipped"
    assert torch.equal(device.finish(batch.pixels, batch.crops, batch.crops), torch.stack(expected))


@pytest.mark.parametrize("options", [{"subsampling": k} for k in (0, 1, 2)] + [{"progressive": True}], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_simplejpeg_gives_the_same_pixels(mode: str, options: dict[str, int]) -> None:
    pytest.importorskip("simplejpeg")
    buffer = io.BytesIO()
    Image.effect_noise((61, 43), 80).resize((301, 203)).convert("RGB").convert(mode).save(buffer, "JPEG", **options)
    found = rgb_pixels(open_image(buffer.getvalue()))
    assert np.array_equal(found, np.array(decode(buffer.getvalue())))
    with pytest.raises(BadSample, match="truncated"):
        rgb_pixels(open_image(buffer.getvalue()[:-400]))


def test_the_device_refuses_interpolations_that_it_cannot_repeat() -> None:
    with pytest.raises(UserError, match="interpolation=nearest is not known"):
        TrainTransform(DataConfig(augment="device"), inputs(interpolation="nearest"))
