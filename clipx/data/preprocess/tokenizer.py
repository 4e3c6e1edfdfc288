"""Tokenizers: text cleaning (data.clean), followed by the tokenizer of the text tower."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipx.config import scene_words
from clipx.errors import UserError, one_line
from clipx.types import Tokens
from clipx.utils.hub import download_error, quiet_hub
from clipx.utils.registry import lookup

Tokenizer = Callable[[list[str]], Tensor]  # -> int64 [n, L]
WORD = re.compile(r"\w+")


def lower_no_punctuation(text: str) -> str:
    """Lower-case a text, replace hyphens and slashes by spaces, and remove all other punctuation (paper 3's code)."""
    words = re.sub(r"[-/]", " ", text.lower())
    return " ".join(re.sub(r"[^\w\s]|_", "", words).split())


CLEANERS: dict[str, Callable[[str], str]] = {"none": str, "lower_no_punctuation": lower_no_punctuation}


class WordTokenizer:
    """`words:scenes`: one token per word of a lower-cased text; all characters between words are dropped."""

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length
        self._ids = {word: number for number, word in enumerate(scene_words.WORDS, start=scene_words.FIRST)}

    def __call__(self, texts: list[str]) -> Tensor:
        """Return token ids, int64 [n, L], L = context length: at most L - 1 words, the end token, then padding."""
        rows = torch.full((len(texts), self.context_length), scene_words.PADDING)
        for row, text in zip(rows.numpy(), texts, strict=True):
            words = WORD.findall(text.lower())[: self.context_length - 1]
            row[: len(words) + 1] = [*(self._ids.get(word, scene_words.UNKNOWN) for word in words), scene_words.END]
        return rows


def build_tokenizer(inputs: Tokens) -> Tokenizer:
    """Return the tokenizer of a text tower, preceded by `data.clean`; it truncates and pads to the context length.

    Raises UserError if the tokenizer can be neither found locally nor downloaded, or data.clean is unknown.
    """
    kind, _, source = inputs.tokenizer.partition(":")
    tokenizer: Tokenizer
    if inputs.tokenizer == scene_words.NAME:
        tokenizer = WordTokenizer(inputs.context_length)
    elif kind == "hf" and source:
        tokenizer = _hugging_face(source, inputs.context_length)
    else:
        tokenizer = _open_clip(inputs)
    clean = lookup(CLEANERS, inputs.clean, "data.clean")
    return lambda texts: tokenizer([clean(text) for text in texts])


def notes(inputs: Tokens, source: str) -> list[str]:
    """Return a log message if the tokenizer has only the words of scenes, but `source` (data.source) is other data."""
    if inputs.tokenizer != scene_words.NAME or source == "scenes":
        return []
    return [f"the tokenizer has only the words of scenes: all other words of data.source={source} share one token"]


def _open_clip(inputs: Tokens) -> Tokenizer:
    import open_clip

    on_hub = inputs.tokenizer.startswith(open_clip.factory.HF_HUB_PREFIX)
    try:
        text = {} if on_hub else (open_clip.get_model_config(inputs.tokenizer) or {}).get("text_cfg", {})
        with quiet_hub(fetching=on_hub or "hf_tokenizer_name" in text):
            tokenizer: Any = open_clip.get_tokenizer(inputs.tokenizer, context_length=inputs.context_length)
            text = (open_clip.get_model_config(inputs.tokenizer) or {}).get("text_cfg", {})
    except Exception as error:  # the hub's client raises many types
        raise UserError(f"the tokenizer of {inputs.tokenizer} could not be loaded: {one_line(error)}") from error
    encoder = text.get("hf_model_name")
    size = _vocab_size(encoder) if encoder else text.get("vocab_size", open_clip.CLIPTextCfg.vocab_size)
    _refuse_unknown_ids(f"open_clip's {inputs.tokenizer}", getattr(tokenizer, "tokenizer", tokenizer), size)
    return tokenizer  # type: ignore[no-any-return]


def _hugging_face(source: str, context_length: int) -> Tokenizer:
    from transformers import AutoTokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # loader processes already run in parallel
    folder = Path(source)
    try:
        with quiet_hub(fetching=not folder.is_dir()):
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        tokenizer("a")  # a vocabulary without an unknown token only fails here
        if len(tokenizer) <= len({*tokenizer.all_special_ids}):  # of a folder without the tokenizer's files
            raise ValueError("it has no words")
    except Exception as error:  # the hub's client raises many types
        what = f"the tokenizer of model.text.name=hf:{source}"
        if folder.is_dir():
            needed = "tokenizer.json and tokenizer_config.json, or vocab.txt"
            raise UserError(f"{what} is missing or corrupt; it needs {needed} ({one_line(error)})") from error
        raise download_error(what, f"`hf download {source}`", "give a local folder, hf:FOLDER", error) from error
    if tokenizer.cls_token_id is None or tokenizer.pad_token_id is None:
        raise UserError(
            f"the tokenizer of model.text.name=hf:{source} has no class token or no padding token; BERT's has both"
        )
    _refuse_unknown_ids(f"model.text.name=hf:{source}", tokenizer, _vocab_size(source))
    options = {"padding": "max_length", "truncation": True, "max_length": context_length, "return_tensors": "pt"}
    return lambda texts: tokenizer(texts, **options)["input_ids"]


def _vocab_size(source: str) -> int | None:
    """Return the number of embeddings of a tower on the hub or in a folder; None if its configuration is not there."""
    from transformers import AutoConfig

    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").is_file():
        return None
    try:
        with quiet_hub(fetching=not folder.is_dir()):
            return getattr(AutoConfig.from_pretrained(source, trust_remote_code=False), "vocab_size", None)
    except Exception:  # building the tower says what is wrong
        return None


def _refuse_unknown_ids(name: str, tokenizer: Any, size: int | None) -> None:
    """Raise UserError if a text can have an id for which a tower of `size` embeddings has none.

    Special tokens that occur in no text, such as [MASK], do not count.
    """
    if size is None:
        return
    if hasattr(tokenizer, "get_vocab"):
        kinds = ("cls", "sep", "bos", "eos", "pad", "unk")
        never = {*tokenizer.all_special_ids} - {getattr(tokenizer, f"{kind}_token_id", None) for kind in kinds}
        largest = max({*tokenizer.get_vocab().values()} - never)
    else:  # open_clip's own
        largest = tokenizer.vocab_size - 1
    if largest >= size:
        raise UserError(
            f"the tokenizer of {name} has ids up to {largest}, but the tower's vocab_size is {size}: they do not "
            "belong together"
        )
