"""Keyword labels of captions; with a wrong label, the loss treats a false negative as a true negative."""

from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipx.config.schema import DataConfig, TrainConfig
from clipx.data.preprocess.captions import PRESETS, Keywords
from clipx.errors import UserError
from tests.helpers.folder import COLOURS
from tests.helpers.loading import load

NUMBERS = PRESETS["numbers"]
SEPARATORS = (" ", ", ", ". ", "; ", " - ", "\n", " (", '"', "--", "/", "'", "\u2014")


@pytest.mark.parametrize(
    ("caption", "digits", "word"),
    [
        ("Two dogs and TWO cats", False, "two"),
        ("two dogs and three cats", False, None),
        ("twenty-one people", False, None),
        ("twenty\u2011one people", False, None),
        ("a two-storey house", False, None),
        ("one dog", False, None),
        ("2 dogs", False, None),
        ("2 dogs", True, "two"),
        ("12 eggs.", True, "twelve"),
        ("two dogs in 3 baskets", True, None),
        ("2.5 miles", True, None),
        ("1,2", True, None),
        ("at 10:12", True, None),
        ("2nd place", True, None),
        ("a 3-2 win", True, None),
    ],
)
def test_only_whole_words_match_and_with_digits_also_numbers_in_digits(
    caption: str, digits: bool, word: str | None
) -> None:
    assert Keywords(["numbers"], digits)(caption) == (NUMBERS.index(word) + 1 if word else 0)


def test_a_keyword_between_separators_is_found_in_any_case() -> None:
    keywords = Keywords(list(NUMBERS), digits=False)
    for number, (before, after) in enumerate(product(SEPARATORS, repeat=2)):
        word = NUMBERS[number % len(NUMBERS)]
        typed = (word, word.upper(), word.capitalize())[number % 3]
        assert keywords.words[keywords(f"some{before}{typed}{after}things") - 1] == word


@given(st.sampled_from(NUMBERS), st.text(st.characters(categories=["L", "N"]), max_size=3), st.booleans())
def test_a_keyword_within_a_longer_word_does_not_match(word: str, more: str, hyphen: bool) -> None:
    keywords = Keywords(["numbers"], digits=False)
    joined = "-" if hyphen and more else ""
    expected = keywords(word) if not more else 0
    if (word + more).casefold() not in NUMBERS:
        assert keywords(word + joined + more) == expected
    if (more + word).casefold() not in NUMBERS:
        assert keywords(more + joined + word) == expected


def test_a_phrase_takes_precedence_over_its_words() -> None:
    keywords = Keywords(["left", "to the left of"], digits=False)
    assert keywords("a cup TO  the left of a box") == 2
    assert keywords("turn left") == 1


@pytest.mark.parametrize("words", [["two", "Two"], ["numbers", "three"], [" "]])
def test_lists_with_empty_or_repeated_words_are_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"data\.keywords="):
        Keywords(words, digits=False)


def test_the_loader_labels_the_caption_it_returns(shards: Path) -> None:
    config = DataConfig(name="t", source="shards", root=str(shards), workers=0, keywords=COLOURS[:4])
    for batch, _ in load(config, TrainConfig(epochs=1, batch_size=8)):
        colour = batch.sample_id % len(COLOURS)
        assert batch.label.dtype == torch.int64
        assert batch.label.tolist() == [c + 1 if c < 4 else 0 for c in colour.tolist()]


def test_digits_that_are_listed_keep_their_own_label() -> None:
    keywords = Keywords(["two", "2", "three"], digits=True)
    assert [keywords(text) for text in ("two dogs", "2 dogs", "3 dogs")] == [1, 2, 3]


def test_both_spellings_of_grey_are_one_keyword_unless_both_are_listed() -> None:
    colours = Keywords(["colours"], digits=False)
    assert colours("a gray cat") == colours("a grey cat") == colours("a gray or grey cat") == len(colours.words)
    assert Keywords(["gray", "grey"], digits=False)("a gray cat") == 1
    assert Keywords(["red"], digits=False)("a gray cat") == 0
