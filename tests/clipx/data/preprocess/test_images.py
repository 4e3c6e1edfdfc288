"""Damaged and oversized images are an outcome, not a crash."""

import io
import struct
import zlib

import pytest
from PIL import Image

from clipx.data.preprocess.images import MAX_PIXELS, BadSample, decode
from tests.helpers.folder import jpeg


def png_header(width: int, height: int) -> bytes:
    """A PNG of the given size whose pixel data would fill memory when decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 4), "red").convert(mode).save(buffer, "JPEG" if mode == "CMYK" else "PNG")
    image = decode(buffer.getvalue())
    assert (image.mode, image.size) == ("RGB", (5, 4))


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 500, b"hello", jpeg("red")[:200], jpeg("red")[:-80], jpeg("red")[:30] + b"\xff" * 600],
    ids=["empty", "zeros", "text", "cut early", "cut late", "garbled"],
)
def test_damage_is_a_bad_sample(data: bytes) -> None:
    with pytest.raises(BadSample, match="damaged image"):
        decode(data)


def test_a_decompression_bomb_is_refused_by_its_header() -> None:
    with pytest.raises(BadSample, match=r"20000 x 20000 pixels|exceeds limit"):
        decode(png_header(20_000, 20_000))


def test_the_limit_itself_is_in_force_below_pils_own() -> None:
    side = int(MAX_PIXELS**0.5) + 2  # PIL only warns here, and would then decode
    with pytest.raises(BadSample, match="at most"):
        decode(png_header(side, side))


def test_no_other_format_is_opened() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 4)).save(buffer, "EPS")  # PIL would start Ghostscript for it
    with pytest.raises(BadSample):
        decode(buffer.getvalue())
