"""Captions from the text members of a shard or the cells of a table, and their keyword labels.

A label says which keyword of a list a caption contains (paper 2). Keywords match whole words in any case. A hyphen
joins words, so "twenty-one" and "two-storey" do not match. A caption with different keywords gets label 0, like a
caption without keywords, because it is unclear which of them describes the image. Number words are not combined:
"two hundred" matches "two".
"""

import random
import re

from clipx.data.preprocess.images import BadSample
from clipx.errors import UserError
from clipx.utils.trust import load_json

MEMBERS = {"first": "txt", "random": "json"}  # data.captions -> member: .txt has one caption, .json a list of captions


def choose_caption(captions: list[str], at_random: bool, generator: random.Random) -> str:
    """Return a random caption if `at_random`, else the first one. Raises BadSample if all are empty."""
    captions = usable(captions)
    return stripped(generator.choice(captions) if at_random else captions[0])


def usable(captions: list[str]) -> list[str]:
    """Return the captions that are not empty; all of them if all are empty."""
    return [caption for caption in captions if plain(caption)] or captions


def all_from_member(column: str, data: bytes) -> list[str]:
    """Return the caption of a .txt member, or all captions of a .json member. Raises BadSample if unreadable."""
    if column == "json":
        return all_from_json(data)
    try:
        return [data.decode("utf-8-sig")]
    except UnicodeDecodeError as error:
        raise BadSample(f"caption is not UTF-8 ({error})") from error


def all_from_json(data: bytes, key: str = "captions") -> list[str]:
    """Return the list `key` of a .json member. Raises BadSample if it is missing, empty or not a list of texts."""
    try:
        captions = load_json(data)[key]
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


CARDINALS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
PRESETS = {  # name of a list -> its words
    "numbers": CARDINALS[2:],  # paper 2, section 6
    "colours": ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "grey"),
    "directions": ("left", "right", "above", "below"),
}
SPELLINGS = {"gray": "grey"}  # spelling -> keyword
HYPHENS = "-\u2010\u2011"  # ASCII, Unicode and non-breaking hyphen
LETTER = r"[\w\u0300-\u036f]"  # also digits and combining accents
# A match must not be part of a longer word, a hyphenated word, a decimal, a time or a fraction.
BEFORE = rf"(?<!{LETTER})(?<!{LETTER}[{HYPHENS}])(?<!\d[.,:/])"
AFTER = rf"(?!{LETTER})(?![{HYPHENS}]{LETTER})(?![.,:/]\d)"


class Keywords:
    """Labels captions with the 1-based index of their keyword."""

    def __init__(self, keywords: list[str], digits: bool) -> None:
        """Accept words, phrases and names of PRESETS as `keywords`. With `digits`, "2" matches like "two".

        Raises UserError for an empty or a repeated keyword.
        """
        expanded = [word for name in keywords for word in PRESETS.get(name, (name,))]
        self.digits = digits
        self.words = [" ".join(word.casefold().split()) for word in expanded]
        if "" in self.words or len(set(self.words)) < len(self.words):
            raise UserError(f"data.keywords={keywords} holds an empty word, or the same word twice")
        self._label = {word: i for i, word in enumerate(self.words, start=1)}
        self._label |= {s: self._label[w] for s, w in SPELLINGS.items() if w in self._label and s not in self._label}
        if digits:
            numbers = {str(n): self._label[word] for n, word in enumerate(CARDINALS) if word in self._label}
            self._label = numbers | self._label  # a listed "2" keeps its own label
        longest_first = sorted(self._label, key=len, reverse=True)
        alternatives = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in longest_first)
        self._pattern = re.compile(f"{BEFORE}({alternatives}){AFTER}", re.IGNORECASE)

    def __call__(self, caption: str) -> int:
        """Return the label of a caption: 1 for the first keyword, ...; 0 for no keyword or for different keywords."""
        if not self._label:
            return 0
        found = {self._label[" ".join(word.split())] for word in self._pattern.findall(caption.casefold())}
        return found.pop() if len(found) == 1 else 0

    def replace(self, caption: str, label: int) -> str:
        """Return the caption with the keyword of `label` instead of every keyword; a first capital letter stays."""

        def word(found: re.Match[str]) -> str:
            keyword = self.words[label - 1]
            return keyword.capitalize() if found[0][0].isupper() else keyword

        return self._pattern.sub(word, caption)
