"""Image decoding; an unusable image raises BadSample."""

import errno
import io
import stat
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from clipx.errors import DRIVE_FAILED, Fault, UserError

try:
    from simplejpeg import decode_jpeg
except ImportError:  # the extra `jpeg` is not installed
    decode_jpeg = None

# Limit against decompression bombs: a PNG of 50 kB can hold 20,000 x 20,000 pixels of 1 bit, which take 1.2 GB as RGB.
MAX_PIXELS = 89_478_485
GREY_16 = ("I;16", "I;16B", "I;16L", "I;16N")
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 64 * 2**20  # bytes of metadata, also of ICC profiles
TOO_LARGE = f"image too large (at most {MAX_PIXELS} pixels are read)"
# PIL warns above this size and raises an error above twice this size. `open_image` raises an error for both.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BadSample(ValueError):
    """A sample that cannot be used: its image is corrupt or too large, or its text is missing or unreadable."""


def read_error(error: OSError, path: Path, is_shard: bool = False) -> BadSample | Fault | UserError:
    """Return the error to raise if an image file or a shard cannot be read.

    BadSample: the disk cannot read these bytes, or an image file is missing or cannot be opened. Fault: the network
    drive has failed. UserError: a shard cannot be opened or read for another reason.
    """
    drive_failed = error.errno in DRIVE_FAILED
    if error.errno == errno.EIO or not (drive_failed or is_shard):
        return BadSample(f"cannot be read ({error.strerror})")
    return (Fault if drive_failed else UserError)(f"cannot use {path}: {error.strerror}")


def read_image(path: Path) -> bytes:
    """Return the content of an image file. Raises BadSample or Fault, as `read_error`."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or device would be read for ever
            raise OSError(errno.EINVAL, "neither a file nor a link to one", str(path))
        return path.read_bytes()
    except ValueError as error:  # a NUL byte in the name
        raise BadSample(f"cannot be read ({error})") from error
    except OSError as error:
        raise read_error(error, path) from error


def decode(data: bytes) -> Image.Image:
    """Return the RGB image of a JPEG, PNG or WebP file. Raises BadSample if it is corrupt or above MAX_PIXELS."""
    return to_rgb(open_image(data))


def open_image(data: bytes, any_format: bool = False) -> Image.Image:
    """Return an image whose header is read; `to_rgb` decodes its pixels. Raises BadSample like `decode`.

    `any_format`: read all formats that PIL knows.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=None if any_format else ("JPEG", "PNG", "WEBP"))
    except UnidentifiedImageError as error:
        known = "an image file" if any_format else "a JPEG, PNG or WebP file"
        raise BadSample(f"corrupt image (not {known})") from error
    except Image.DecompressionBombError as error:
        raise BadSample(TOO_LARGE) from error
    except Exception as error:  # PIL's readers raise OSError, SyntaxError, struct.error, ... for a corrupt file
        raise BadSample(f"corrupt image ({type(error).__name__}: {error})") from error
    if image.width * image.height > MAX_PIXELS:
        raise BadSample(TOO_LARGE)
    return image


def to_rgb(image: Image.Image) -> Image.Image:
    """Decode the pixels of an image and convert them to RGB; 16-bit grey values are divided by 257.

    Transparency is dropped, and a rotation in the metadata is not applied, as in open_clip.

    Raises BadSample if the image is corrupt, or has 32-bit values, whose range is unknown.
    """
    is_grey_16 = image.mode in GREY_16 or (image.mode == "I" and image.format == "PNG")  # older versions of PIL say I
    if image.mode in ("I", "F") and not is_grey_16:
        raise BadSample(f"image of mode {image.mode}: the range of 32-bit values is unknown; write 8 or 16 bits")
    try:
        if is_grey_16:
            values = np.asarray(image).astype(np.uint32)
            return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
        if image.mode == "RGB":  # without the copy that `convert` makes
            image.load()
            return image
        return image.convert("RGB")
    except Exception as error:  # as in open_image
        raise BadSample(f"corrupt image ({type(error).__name__}: {error})") from error


def rgb_pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Return the pixels of `to_rgb`, [H, W, 3]; simplejpeg decodes to the same pixels in less time."""
    if decode_jpeg is not None and image.format == "JPEG" and image.mode == "RGB":
        with suppress(ValueError):  # corrupt: PIL says why
            pixels: NDArray[np.uint8] = decode_jpeg(image.fp.getvalue(), "RGB")  # type: ignore[attr-defined]
            return pixels
    return np.array(to_rgb(image))
