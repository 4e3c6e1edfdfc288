"""The tokenizer `words:scenes`: one token per word, with the vocabulary of clipx/config/scene_words.py."""

import re

import torch
from torch import Tensor

from clipx.config.scene_words import END, FIRST, PADDING, UNKNOWN, WORDS

WORD = re.compile(r"\w+")


class WordTokenizer:
    """Lower-cases texts and splits them into words; all characters between words are dropped."""

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length
        self._ids = {word: number for number, word in enumerate(WORDS, start=FIRST)}

    def __call__(self, texts: list[str]) -> Tensor:
        """Return token ids, int64 [n, L], L = context length: at most L - 1 words, the end token, then padding."""
        rows = torch.full((len(texts), self.context_length), PADDING)
        for row, text in zip(rows.numpy(), texts, strict=True):
            ids = [self._ids.get(word, UNKNOWN) for word in WORD.findall(text.lower())[: self.context_length - 1]]
            row[: len(ids) + 1] = [*ids, END]
        return rows
