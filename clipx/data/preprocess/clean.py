"""What is done to captions and prompts before they are tokenized (`data.clean`)."""

import re
from collections.abc import Callable

from clipx.utils.registry import lookup

Clean = Callable[[str], str]


def none(text: str) -> str:
    """As it is."""
    return text


def lower_no_punctuation(text: str) -> str:
    """Lower case, letters and digits only; a hyphen or slash separates words, other marks vanish (paper 3)."""
    words = re.sub(r"[-/]", " ", text.lower())
    return " ".join(re.sub(r"[^\w\s]|_", "", words).split())


CLEAN: dict[str, Clean] = {"none": none, "lower_no_punctuation": lower_no_punctuation}


def build_cleaner(name: str) -> Clean:
    """The function of `data.clean`.

    Raises:
        UserError: an unknown name.
    """
    return lookup(CLEAN, name, "data.clean")
