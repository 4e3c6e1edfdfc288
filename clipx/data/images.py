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
    try:
        image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP"))
        width, height = image.size
        if width * height <= MAX_PIXELS:
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise BadSample("damaged image (no JPEG, PNG or WebP)") from error
    except Exception as error:  # PIL's decoders raise OSError, SyntaxError, struct.error, ... on damage
        raise BadSample(f"damaged image ({type(error).__name__}: {error})") from error
    raise BadSample(f"image of {width} x {height} pixels, at most {MAX_PIXELS} are read")
