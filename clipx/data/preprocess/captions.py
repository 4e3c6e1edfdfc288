"""Captions from the text members of a shard or the cells of a table."""

import json
import random

from clipx.data.preprocess.images import BadSample

MEMBERS = {"first": "txt", "random": "json"}  # data.captions -> member: .txt has one caption, .json a list of captions


def choose_caption(captions: list[str], at_random: bool, generator: random.Random) -> str:
    """Return a random caption if `at_random`, else the first one. Raises BadSample if it is empty."""
    return stripped(generator.choice(captions) if at_random else captions[0])


def all_from_member(column: str, data: bytes) -> list[str]:
    """Return the caption of a .txt member, or all captions of a .json member. Raises BadSample if unreadable."""
    if column == "json":
        return all_from_json(data)
    try:
        return [data.decode()]
    except UnicodeDecodeError as error:
        raise BadSample(f"caption is not UTF-8 ({error})") from error


def all_from_json(data: bytes, key: str = "captions") -> list[str]:
    """Return the list `key` of a .json member. Raises BadSample if it is missing, empty or not a list of texts."""
    try:
        captions = json.loads(data)[key]
    except (ValueError, KeyError, TypeError) as error:
        raise BadSample(f'.json has no "{key}" ({type(error).__name__}: {error})') from error
    if not isinstance(captions, list) or not captions or not all(isinstance(c, str) for c in captions):
        raise BadSample(f'"{key}" in .json is empty or not a list of texts')
    return captions


def all_from_cell(cell: object) -> list[str]:
    """Return all captions of a table cell, which holds one caption or a list. Raises BadSample if there is none."""
    several = [cell] if isinstance(cell, str) else cell
    if not isinstance(several, list) or not several or not all(isinstance(c, str) for c in several):
        raise BadSample("no caption")
    return several


def stripped(caption: str) -> str:
    """Return the caption as `plain` does. Raises BadSample if it is empty."""
    text = plain(caption)
    if not text:
        raise BadSample("empty caption")
    return text


def plain(caption: str) -> str:
    """Return the caption without surrounding white space; half of a surrogate pair, which tokenizers refuse, is "?"."""
    return caption.encode(errors="replace").decode().strip()
