"""Bytes to pixels, with damage as an ordinary outcome."""

import io
import warnings

from PIL import Image, UnidentifiedImageError

# 20,000 x 20,000 pixels in a file of some kB fill 1.2 GB of memory: such a sample is damage, not data.
MAX_PIXELS = 89_478_485
# PIL warns at this very size; ours is an error, so the warning would only say it twice.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BadSample(ValueError):
    """A sample that cannot be used: damaged or oversized image, missing or undecodable text."""


def decode(data: bytes) -> Image.Image:
    """An RGB image from JPEG, PNG or WebP bytes.

    Raises:
        BadSample: the bytes are no complete image of at most MAX_PIXELS pixels.
    """
    return load(header(data))


def header(data: bytes) -> Image.Image:
    """An image whose size is known and whose pixels are not decoded yet; `load` does that.

    Raises:
        BadSample: no JPEG, PNG or WebP, or one of more than MAX_PIXELS pixels.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP"))
    except UnidentifiedImageError as error:
        raise BadSample("damaged image (no JPEG, PNG or WebP)") from error
    except Exception as error:  # PIL's readers raise OSError, SyntaxError, struct.error, ... on damage
        raise BadSample(f"damaged image ({type(error).__name__}: {error})") from error
    if image.width * image.height > MAX_PIXELS:
        raise BadSample(f"image of {image.width} x {image.height} pixels, at most {MAX_PIXELS} are read")
    return image


def load(image: Image.Image) -> Image.Image:
    """The image as RGB, decoded. Raises BadSample."""
    try:
        return image.convert("RGB")
    except Exception as error:  # as above
        raise BadSample(f"damaged image ({type(error).__name__}: {error})") from error
