"""The tokenizer with the words of rendered scenes."""

from collections.abc import Iterator

import pytest
import torch

from clipx.config.scene_words import END, FIRST, PADDING, UNKNOWN, VOCABULARY, WORDS
from clipx.config.schema import ScenesConfig
from clipx.data.preprocess.tokenizer import WORD, WordTokenizer, build_tokenizer, notes
from clipx.data.scenes.captions import FAULTS, UNRELATED
from clipx.data.scenes.evaluation_sets import CLASS_SETS, pair_samples, retrieval_samples
from clipx.data.scenes.samples import training_sample
from tests.helpers.loading import inputs


def unknown(texts: Iterator[str]) -> set[str]:
    """Return the words that occur in the texts but not in the vocabulary."""
    return {word for text in texts for word in WORD.findall(text.lower())} - set(WORDS)


def prompts() -> Iterator[str]:
    config = ScenesConfig(max_count=9)
    for class_set in CLASS_SETS.values():
        yield from (t.replace("{c}", c) for t in class_set.templates for c in class_set.classnames(config))


def with_fault(fault: str) -> ScenesConfig:
    """Return settings with which each training caption has this fault."""
    config = ScenesConfig(omit=0.0, max_count=9)
    setattr(config, fault, 1.0)
    return config


def test_prompts_of_the_evaluation_sets_have_no_unknown_word() -> None:
    assert unknown(prompts()) == set()


def test_captions_of_the_evaluation_sets_have_no_unknown_word() -> None:
    config = ScenesConfig(max_count=9)
    samples = [*retrieval_samples(config, 300), *pair_samples(config)]
    assert unknown(caption for sample in samples for caption in sample.captions) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_training_captions_have_no_unknown_word(fault: str) -> None:
    config = with_fault(fault)
    assert unknown(caption for i in range(300) for caption in training_sample(config, i).captions) == set()
    assert unknown(iter(UNRELATED)) == set()


def test_every_word_of_the_vocabulary_occurs_in_a_caption_or_prompt() -> None:
    configs = [with_fault(fault) for fault in FAULTS]
    captions = (caption for config in configs for i in range(1000) for caption in training_sample(config, i).captions)
    used = {word for text in [*captions, *prompts(), "one object"] for word in WORD.findall(text.lower())}
    assert set(WORDS) - used == set()


def test_no_word_is_listed_twice() -> None:
    assert len(set(WORDS)) == len(WORDS) == VOCABULARY - 3


def test_each_word_gives_a_token_in_lower_or_upper_case() -> None:
    tokens = WordTokenizer(6)(["Two red, circles", "a"])
    assert [WORDS[i - FIRST] for i in tokens[0, :3].tolist()] == ["two", "red", "circles"]
    assert tokens[0, 3:].tolist() == [END, PADDING, PADDING]
    assert tokens.dtype == torch.int64 and tokens.shape == (2, 6)


def test_unknown_words_share_one_token_and_long_texts_keep_the_end_token() -> None:
    tokens = WordTokenizer(4)(["elephant zebra red red red", ""])
    assert tokens[0].tolist() == [UNKNOWN, UNKNOWN, FIRST + WORDS.index("red"), END]
    assert tokens[1].tolist() == [END, PADDING, PADDING, PADDING]


def test_the_end_token_has_the_largest_id() -> None:
    """Text transformers of open_clip take the features at the position of the largest id."""
    assert VOCABULARY - 1 == END > max(FIRST + len(WORDS) - 1, UNKNOWN)


def test_the_setting_selects_the_tokenizer_and_texts_are_cleaned_first() -> None:
    cleaned = inputs(tokenizer="words:scenes", length=4, clean="lower_no_punctuation")
    assert torch.equal(build_tokenizer(cleaned)(["two-red"]), WordTokenizer(4)(["two red"]))


def test_a_run_on_other_data_logs_that_most_words_are_unknown() -> None:
    words = inputs(tokenizer="words:scenes")
    assert notes(words, "scenes") == []
    assert "data.source=shards" in notes(words, "shards")[0]
