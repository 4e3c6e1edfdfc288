"""Tokenizers: the text tower's tokenizer, cleaning by data.clean, and errors for a missing tokenizer."""

import pickle
from pathlib import Path

import open_clip
import pytest
import torch

from clipx.data.preprocess import tokenizer
from clipx.errors import UserError
from tests.helpers.hub import write_distilbert
from tests.helpers.loading import inputs


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("A man's dog, happy!", "a mans dog happy"),
        ("T-shirt and/or  hat\n(red)", "t shirt and or hat red"),
        ("<PERSON> at 5:30 #fun", "person at 530 fun"),
        ("Café – naïve… “quoted”", "café naïve quoted"),
        ("snake_case", "snakecase"),
        ("?!", ""),
    ],
)
def test_cleaning_leaves_only_words(text: str, cleaned: str) -> None:
    assert tokenizer.lower_no_punctuation(text) == cleaned
    assert tokenizer.lower_no_punctuation(cleaned) == cleaned
    assert tokenizer.CLEANERS["none"](text) == text


def test_an_unknown_cleaning_is_refused() -> None:
    with pytest.raises(UserError, match=r"data.clean=lower is not known; allowed: lower_no_punctuation, none"):
        tokenizer.build_tokenizer(inputs(clean="lower"))


def test_a_hugging_face_tokenizer_cuts_and_pads_to_the_context_length(tmp_path: Path) -> None:
    tokenize = tokenizer.build_tokenizer(inputs(tokenizer=f"hf:{write_distilbert(tmp_path)}", length=12))
    tokens = tokenize(["A red picture", "a " * 30])
    assert tokens.shape == (2, 12) and tokens.dtype == torch.int64
    words = {word: i for i, word in enumerate((tmp_path / "vocab.txt").read_text().split())}
    start, end = words["[CLS]"], words["[SEP]"]
    assert tokens[0].tolist() == [start, words["a"], words["red"], words["picture"], end, *[0] * 7]
    assert tokens[1].tolist() == [start, *[words["a"]] * 10, end]


def test_texts_are_cleaned_before_tokenization(tmp_path: Path) -> None:
    name = f"hf:{write_distilbert(tmp_path)}"
    cleaned = tokenizer.build_tokenizer(inputs(tokenizer=name, clean="lower_no_punctuation"))
    uncleaned = tokenizer.build_tokenizer(inputs(tokenizer=name))
    assert torch.equal(cleaned(["A red-picture!"]), uncleaned(["a red picture"]))
    assert not torch.equal(uncleaned(["A red-picture!"]), uncleaned(["a red picture"]))


def test_open_clip_tokens_are_unchanged() -> None:
    tokenize = tokenizer.build_tokenizer(inputs(length=77))
    assert torch.equal(tokenize(["A dog, red."]), open_clip.get_tokenizer("RN50")(["A dog, red."]))


def test_a_tokenizer_can_be_pickled_for_loader_processes(tmp_path: Path) -> None:
    tokenize = tokenizer.build_tokenizer(
        inputs(tokenizer=f"hf:{write_distilbert(tmp_path)}", clean="lower_no_punctuation")
    )
    again = pickle.loads(pickle.dumps(tokenize))
    assert torch.equal(again(["a red picture"]), tokenize(["a red picture"]))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no tokenizer: the folder needs .* vocab.txt"):
        tokenizer.build_tokenizer(inputs(tokenizer=f"hf:{write_distilbert(tmp_path, tokenizer=False)}"))


def test_the_error_of_a_missing_tokenizer_names_the_download_command_and_a_local_folder(no_hub: None) -> None:
    with pytest.raises(UserError, match=r"run `hf download distilbert-base-uncased`.*local folder"):
        tokenizer.build_tokenizer(inputs(tokenizer="hf:distilbert-base-uncased"))
