"""Corrupt and oversized images raise BadSample and nothing else."""

import io

import pytest
from PIL import Image

from clipx.data.preprocess.images import MAX_PIXELS, BadSample, decode
from tests.helpers.folder import png_header


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 4), "red").convert(mode).save(buffer, "JPEG" if mode == "CMYK" else "PNG")
    image = decode(buffer.getvalue())
    assert (image.mode, image.size) == ("RGB", (5, 4))


@pytest.mark.parametrize("side", [20_000, int(MAX_PIXELS**0.5) + 2], ids=["bomb", "PIL only warns"])
def test_an_image_above_the_limit_is_refused_before_it_is_decoded(side: int) -> None:
    with pytest.raises(BadSample, match=r"image too large .at most 89478485 pixels are read"):
        decode(png_header(side, side))


def test_an_eps_file_is_not_opened() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 4)).save(buffer, "EPS")  # PIL would start Ghostscript to decode the file
    with pytest.raises(BadSample):
        decode(buffer.getvalue())
