"""Tokenizers: the text tower's tokenizer, cleaning by data.clean, and errors for a missing tokenizer."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from clipx.config.scene_words import END, FIRST, PADDING, UNKNOWN, VOCABULARY, WORDS
from clipx.config.schema import ScenesConfig
from clipx.data.preprocess import tokenizer
from clipx.data.scenes.captions import FAULTS, UNRELATED
from clipx.data.scenes.evaluation_sets import CLASS_SETS, pair_samples, retrieval_samples
from clipx.data.scenes.samples import training_sample
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


def test_a_hugging_face_tokenizer_cuts_and_pads_to_the_context_length(tmp_path: Path) -> None:
    name = f"hf:{write_distilbert(tmp_path)}"
    tokenize = tokenizer.build_tokenizer(inputs(tokenizer=name, length=12))
    tokens = tokenize(["A red picture", "a " * 30])
    assert tokens.shape == (2, 12) and tokens.dtype == torch.int64
    words = {word: i for i, word in enumerate((tmp_path / "vocab.txt").read_text().split())}
    start, end = words["[CLS]"], words["[SEP]"]
    assert tokens[0].tolist() == [start, words["a"], words["red"], words["picture"], end, *[0] * 7]
    assert tokens[1].tolist() == [start, *[words["a"]] * 10, end]
    cleaned = tokenizer.build_tokenizer(inputs(tokenizer=name, length=12, clean="lower_no_punctuation"))
    (found,), (uncleaned,) = (one(["A red-picture!"]) for one in (cleaned, tokenize))
    assert torch.equal(found, tokens[0]) and not torch.equal(uncleaned, tokens[0])


def test_open_clip_tokens_are_unchanged() -> None:
    tokenize = tokenizer.build_tokenizer(inputs(length=77))
    assert torch.equal(tokenize(["A dog, red."]), open_clip.get_tokenizer("RN50")(["A dog, red."]))


@pytest.mark.parametrize("place", ["hub", "open_clip", "open_clip on the hub", "open_clip of another encoder"])
def test_a_tokenizer_of_the_hub_or_of_open_clip_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A folder stands in for the hub."""
    import transformers

    folder = write_distilbert(tmp_path / "folder")
    most = len((folder / "vocab.txt").read_text().splitlines())
    shape = json.loads((folder / "config.json").read_text())
    for kind in ("AutoTokenizer", "AutoConfig"):
        read = getattr(transformers, kind).from_pretrained
        monkeypatch.setattr(getattr(transformers, kind), "from_pretrained", lambda _, read=read, **__: read(folder))
    for size, fits in ((most, True), (most - 1, False)):
        (folder / "config.json").write_text(json.dumps(shape | {"vocab_size": size}))
        named = {"hf_model_name": "me/x"} if "another" in place else {"vocab_size": size}
        config = {"text_cfg": {"hf_tokenizer_name": "me/x", **named}, "vision_cfg": {}, "embed_dim": 8}
        monkeypatch.setattr("open_clip.factory._get_hf_config", lambda *_, c=config, **__: {"model_cfg": c})
        monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "mine", config)
        name = {"hub": "hf:me/x", "open_clip on the hub": "hf-hub:me/x"}.get(place, "mine")
        with nullcontext() if fits else pytest.raises(UserError, match=f"ids up to {size}, but .* is {size}"):
            tokenizer.build_tokenizer(inputs(tokenizer=name))


def test_special_tokens_that_no_text_has_need_no_embedding(tmp_path: Path) -> None:
    folder = write_distilbert(tmp_path)
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join([line for line in lines if line != "[MASK]"] + ["[MASK]"]) + "\n")
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(shape | {"vocab_size": len(lines) - 1}))
    tokens = tokenizer.build_tokenizer(inputs(tokenizer=f"hf:{folder}"))(["a red circle"])
    assert int(tokens.max()) < len(lines) - 1, "every id has an embedding"


def test_the_error_of_a_missing_or_empty_tokenizer_names_what_is_needed(tmp_path: Path, no_hub: None) -> None:
    missing, empty = write_distilbert(tmp_path / "missing", tokenizer=False), write_distilbert(tmp_path / "empty")
    (empty / "vocab.txt").write_text("")  # not even an unknown token
    for folder in (missing, empty):
        with pytest.raises(UserError, match=r"is missing or corrupt; it needs .* vocab.txt"):
            tokenizer.build_tokenizer(inputs(tokenizer=f"hf:{folder}"))
    with pytest.raises(UserError, match=r"run `hf download distilbert-base-uncased`.*local folder"):
        tokenizer.build_tokenizer(inputs(tokenizer="hf:distilbert-base-uncased"))


def unknown(texts: Iterator[str]) -> set[str]:
    """Return the words that occur in the texts but not in the vocabulary."""
    return {word for text in texts for word in tokenizer.WORD.findall(text.lower())} - set(WORDS)


def test_captions_and_prompts_of_scenes_have_no_unknown_word() -> None:
    config = ScenesConfig(max_count=9)
    samples = [*retrieval_samples(config, 100), *pair_samples(config)]
    for fault in FAULTS:  # in each training caption
        shares: dict[str, Any] = {"omit": 0.0, fault: 1.0}
        faulty = ScenesConfig(max_count=9, **shares)
        samples += [training_sample(faulty, i) for i in range(150)]
    assert unknown(caption for sample in samples for caption in sample.captions) == set()
    assert unknown(iter(UNRELATED)) == set()
    for class_set in CLASS_SETS.values():
        names = class_set.classnames(config)
        assert unknown(t.replace("{c}", c) for t in class_set.templates for c in names) == set()


def test_a_run_on_other_data_logs_that_most_words_are_unknown() -> None:
    words = inputs(tokenizer="words:scenes")
    assert tokenizer.notes(words, "scenes") == []
    assert "data.source=shards" in tokenizer.notes(words, "shards")[0]


def test_known_words_have_a_token_in_any_case_unknown_ones_share_one_and_long_texts_keep_the_end_token() -> None:
    tokens = tokenizer.WordTokenizer(4)(["Two red, circles", "elephant zebra red red red", ""])
    two, red, circles = (FIRST + WORDS.index(word) for word in ("two", "red", "circles"))
    assert tokens.tolist() == [[two, red, circles, END], [UNKNOWN, UNKNOWN, red, END], [END, *[PADDING] * 3]]
    assert tokens.dtype == torch.int64
    # text transformers of open_clip take the features at the position of the largest id
    assert VOCABULARY - 1 == END > max(FIRST + len(WORDS) - 1, UNKNOWN)
