"""Texts to token ids, by the tokenizer that belongs to a text tower."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from clipx.data.preprocess import clean
from clipx.errors import UserError
from clipx.types import Inputs
from clipx.utils.hub import quiet_hub

Tokenizer = Callable[[list[str]], Tensor]  # -> int64 [n, L]
# one of these is in every folder with a Hugging Face tokenizer; without any, an empty one would be made up
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)


class Tokenize:
    """Cleans texts, and tokenizes them to the context length; a class, so that worker processes can be given it."""

    def __init__(self, clean_text: clean.Clean, tokenizer: Tokenizer) -> None:
        self.clean = clean_text
        self.tokenizer = tokenizer

    def __call__(self, texts: list[str]) -> Tensor:
        return self.tokenizer([self.clean(text) for text in texts])


class HfTokenizer:
    """A Hugging Face tokenizer, cut and padded to the context length."""

    def __init__(self, tokenizer: Any, context_length: int) -> None:
        self.tokenizer = tokenizer
        self.context_length = context_length

    def __call__(self, texts: list[str]) -> Tensor:
        tokens: Tensor = self.tokenizer(
            texts, padding="max_length", truncation=True, max_length=self.context_length, return_tensors="pt"
        )["input_ids"]
        return tokens


def build_tokenizer(inputs: Inputs) -> Tokenizer:
    """The tokenizer of a text tower, with the cleaning of `data.clean` in front, cut and padded to L.

    Raises:
        UserError: a tokenizer that is neither here nor can be fetched, or an unknown data.clean.
    """
    kind, _, source = inputs.tokenizer.partition(":")
    tokenizer = _hugging_face(source, inputs.context_length) if kind == "hf" and source else _open_clip(inputs)
    return Tokenize(clean.build_cleaner(inputs.clean), tokenizer)


def _open_clip(inputs: Inputs) -> Tokenizer:
    import open_clip

    text = (open_clip.get_model_config(inputs.tokenizer) or {}).get("text_cfg", {})
    try:
        with quiet_hub(fetching="hf_tokenizer_name" in text):
            tokenizer: Tokenizer = open_clip.get_tokenizer(inputs.tokenizer, context_length=inputs.context_length)
    except Exception as error:  # the hub's client raises a dozen kinds
        reason = " ".join(str(error).split()[:30])
        raise UserError(f"the tokenizer of {inputs.tokenizer} could not be loaded: {reason}") from error
    return tokenizer


def _hugging_face(source: str, context_length: int) -> Tokenizer:
    from transformers import AutoTokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # worker processes are the parallelism
    folder = Path(source)
    if folder.is_dir() and not any((folder / file).is_file() for file in VOCABULARIES):
        raise UserError(
            f"model.text.name=hf:{source} has no tokenizer: the folder needs the tokenizer's files too, "
            "tokenizer.json and tokenizer_config.json, or vocab.txt"
        )
    try:
        with quiet_hub(fetching=not folder.is_dir()):
            tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # the hub's client raises a dozen kinds
        reason = " ".join(str(error).split()[:30])
        raise UserError(
            f"the tokenizer of model.text.name=hf:{source} is not on this machine and could not be fetched; run "
            f"`hf download {source}` where there is a network, or give a local folder, hf:FOLDER ({reason})"
        ) from error
    if tokenizer.cls_token_id is None or tokenizer.pad_token_id is None:
        raise UserError(f"model.text.name=hf:{source}: its tokenizer has no class or no padding token, as BERT's has")
    return HfTokenizer(tokenizer, context_length)
