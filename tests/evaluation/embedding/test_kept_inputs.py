"""Inputs kept for the next model equal newly computed ones, and their memory is bounded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL.Image import Image
from torch import Tensor

from evaluation.datasets.opening import open_dataset
from evaluation.embedding import kept_inputs
from evaluation.embedding.features import Loading, embed
from evaluation.embedding.kept_inputs import kept
from evaluation.types import FeatureRequest
from tests.helpers import fakes


def batches(made: list[int], count: int = 3) -> Iterator[Tensor]:
    """Yield batches of 16 bytes, and append each batch's index to `made`."""
    for number in range(count):
        made.append(number)
        yield torch.full((4,), float(number))


def test_a_second_pass_yields_equal_batches_without_computing_them() -> None:
    made: list[int] = []
    first, second = (list(kept("a", batches(made))) for _ in range(2))
    assert made == [0, 1, 2]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    list(kept("b", batches(made)))
    assert len(made) == 6


def test_an_incomplete_pass_keeps_nothing() -> None:
    made: list[int] = []
    next(kept("a", batches(made)))
    assert len(list(kept("a", batches(made)))) == 3 and made == [0, 0, 1, 2]


def test_large_sets_are_not_kept_and_the_least_recently_used_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_inputs, "LIMIT", 100)  # bytes: room for two sets of three batches
    made: list[int] = []
    assert len(list(kept("large", batches(made, 9)))) == 9
    for key in ("a", "b", "c", "b", "c"):
        list(kept(key, batches(made)))
    assert list(kept_inputs._kept) == ["b", "c"]


@pytest.mark.parametrize("workers", [0, 2])
def test_another_model_gets_the_same_inputs_without_decoding(tmp_path: Path, workers: int) -> None:
    dataset = open_dataset(fakes.captioned(tmp_path / "set", counts=(1, 2, 1)))
    plain = fakes.encoder()
    encoder = replace(plain, provenance={"transform": "t", "tokenizer": "w"})
    requests = [FeatureRequest(dataset.name, "all", "images"), FeatureRequest(dataset.name, "all", "captions")]
    loading = Loading(2, workers, "cpu")
    expected = embed(plain, {dataset.name: dataset}, requests, loading)
    embed(encoder, {dataset.name: dataset}, requests, loading)

    def fails(image_or_texts: Image | list[str]) -> Tensor:
        raise AssertionError("decoded again")

    again = replace(encoder, preprocess=fails, tokenize=fails)
    found = embed(again, {dataset.name: dataset}, requests, loading)
    assert all(torch.equal(expected[request], found[request]) for request in requests)
    other = replace(again, provenance={"transform": "another", "tokenizer": "w"})
    with pytest.raises(AssertionError, match="decoded again"):
        embed(other, {dataset.name: dataset}, requests, Loading(2, 0, "cpu"))
