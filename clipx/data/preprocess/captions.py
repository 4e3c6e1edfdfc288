"""From the text members of a sample to one caption."""

import json
import random

from clipx.data.preprocess.images import BadSample


def from_txt(data: bytes) -> str:
    """The caption of a .txt member.

    Raises:
        BadSample: it is no UTF-8, or empty.
    """
    try:
        return checked(data.decode())
    except UnicodeDecodeError as error:
        raise BadSample(f"caption is not UTF-8 ({error})") from error


def from_json(data: bytes, generator: random.Random) -> str:
    """One of the "captions" of a .json member.

    Raises:
        BadSample: there is no list of texts under that name, or the drawn one is empty.
    """
    return checked(generator.choice(all_from_json(data)))


def all_from_json(data: bytes) -> list[str]:
    """All "captions" of a .json member. Raises BadSample where there is no list of texts under that name."""
    try:
        captions = json.loads(data)["captions"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadSample(f'.json has no "captions" ({type(error).__name__}: {error})') from error
    if not isinstance(captions, list) or not captions or not all(isinstance(c, str) for c in captions):
        raise BadSample('"captions" in its .json is not a list of texts')
    return captions


def checked(caption: str) -> str:
    """Without space around it. Raises BadSample where nothing is left."""
    stripped = caption.strip()
    if not stripped:
        raise BadSample("empty caption")
    return stripped
