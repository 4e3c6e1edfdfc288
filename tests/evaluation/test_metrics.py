"""Metrics against golden values, plain loops and chance levels; test_field_faults.py has faults of others."""

from math import nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evaluation.metrics import (
    MISS,
    accuracy,
    bootstrap_interval,
    macro_f1,
    mean_per_class,
    pair_accuracy,
    recall_at_k,
    retrieval_ranks,
)
from tests.golden import GOLDEN
from tests.helpers.fakes import embeddings


def recall_by_loops(image: Tensor, text: Tensor, image_of_text: Tensor, k: int) -> dict[str, float]:
    """Compute recall by sorting each row of similarities, which must have no ties."""
    owner: list[int] = image_of_text.tolist()
    image_hits, text_hits, queries = 0, 0, sorted(set(owner))
    for i in queries:
        order = sorted(range(len(text)), key=lambda t: -float(image[i].double() @ text[t].double()))
        image_hits += any(owner[t] == i for t in order[:k])
    for t in range(len(text)):
        order = sorted(range(len(image)), key=lambda i: -float(image[i].double() @ text[t].double()))
        text_hits += owner[t] in order[:k]
    return {"image_to_text": image_hits / len(queries), "text_to_image": text_hits / len(text)}


def test_recall_equals_the_golden_values() -> None:
    values = GOLDEN["retrieval"]
    image, text = (torch.tensor(values[side], dtype=torch.float64) for side in ("image", "text"))
    for k in (1, 5):
        found = recall_at_k(image, text, torch.tensor(values["image_of_text"]), k)
        for direction in ("image_to_text", "text_to_image"):
            assert found[direction] == pytest.approx(values[f"{direction}_recall@{k}"], abs=1e-9)


@settings(max_examples=25)
@given(counts=st.lists(st.integers(1, 6), min_size=2, max_size=9), k=st.integers(1, 12), seed=st.integers(0, 99))
def test_recall_with_any_numbers_of_captions_equals_a_plain_loop(counts: list[int], k: int, seed: int) -> None:
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    owner = owner[torch.randperm(len(owner), generator=torch.Generator().manual_seed(seed))]
    image, text = embeddings(len(counts), seed), embeddings(len(owner), seed + 1)
    assert recall_at_k(image, text, owner, k) == recall_by_loops(image, text, owner, k)


def test_an_image_without_captions_is_a_wrong_answer_but_not_a_query() -> None:
    image = torch.eye(3)
    text = torch.eye(3)[[0, 2]]
    assert recall_at_k(image, text, torch.tensor([0, 1]), 1) == {"image_to_text": 0.5, "text_to_image": 0.5}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [1.0, nan])
def test_ties_and_nan_are_never_hits(value: float, dtype: torch.dtype) -> None:
    same = value * embeddings(1, 0, dim=37).to(dtype).expand(203, -1)
    assert recall_at_k(same, same, torch.arange(203), 10) == {"image_to_text": 0.0, "text_to_image": 0.0}
    scores, label = torch.full((50, 10), value, dtype=dtype), torch.arange(50) % 10
    assert accuracy(scores, label, k=9) == mean_per_class(scores, label) == 0.0
    assert pair_accuracy(torch.full((20, 2, 2), value, dtype=dtype)) == 0.0


def test_a_nan_among_others_has_no_rank() -> None:
    image, text = embeddings(8, 0), embeddings(8, 0)
    text[3] = nan
    ranks = retrieval_ranks(image, text, torch.arange(8))
    assert ranks.text_to_image[3] == MISS and ranks.image_to_text[3] == MISS


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_the_chunk_size_does_not_change_ranks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image, text, owner = embeddings(61, 3), embeddings(183, 4), torch.arange(183) // 3
    whole = retrieval_ranks(image, text, owner)
    monkeypatch.setattr("evaluation.metrics.CHUNK", chunk)
    chunked = retrieval_ranks(image, text, owner)
    assert torch.equal(whole.image_to_text, chunked.image_to_text)
    assert torch.equal(whole.text_to_image, chunked.text_to_image)


def test_invalid_arguments_are_refused() -> None:
    image = embeddings(3, 0)
    with pytest.raises(ValueError, match="k=0"):
        recall_at_k(image, image, torch.arange(3), 0)
    with pytest.raises(ValueError, match=r"outside 0\.\.2"):
        recall_at_k(image, image, torch.tensor([0, 1, 3]), 1)
    with pytest.raises(ValueError, match=r"expected: \[T\] with T=3 as in text"):
        recall_at_k(image, image, torch.arange(2), 1)
    with pytest.raises(ValueError, match="no text to rank: no image has a caption"):
        recall_at_k(image, image[:0], torch.arange(0), 1)


def test_a_pair_counts_when_each_statement_finds_its_image() -> None:
    both = [[0.9, 0.1], [0.2, 0.8]]
    first_only = [[0.9, 0.9], [0.2, 0.8]]  # statement 1 is nearer to image 0: not matched
    biased_to_one_statement = [[0.5, 0.6], [0.4, 0.7]]  # each image prefers statement 1: still matched
    found = [pair_accuracy(torch.tensor([pair])) for pair in (both, first_only, biased_to_one_statement)]
    assert found == [1.0, 0.0, 1.0]


def test_the_bootstrap_interval_covers_the_truth_about_95_times_in_100() -> None:
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(300):
        low, high = bootstrap_interval(torch.rand(200, generator=generator) < 0.3)
        covered += low <= 0.3 <= high
    assert 270 <= covered <= 297  # 285 are expected


def test_the_interval_of_macro_f1_contains_it_also_with_rare_classes() -> None:
    """Half of the resamples lack a class with a single image: they must not count it as 0."""
    generator, label = torch.Generator().manual_seed(0), torch.arange(300) % 150
    wrong = torch.randint(150, (300,), generator=generator)
    predicted = torch.where(torch.rand(300, generator=generator) < 0.7, label, wrong)
    value, low, high = macro_f1(predicted, label)
    assert low < value < high
    assert macro_f1(label, label) == (1.0, 1.0, 1.0)


def test_the_bootstrap_is_repeatable_and_uses_the_weights() -> None:
    values = torch.tensor([1.0] * 50 + [0.0] * 50)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    low, high = bootstrap_interval(values, torch.tensor([9.0] * 50 + [1.0] * 50))
    assert low < 0.9 < high and low > 0.8


def test_the_interval_has_a_width_if_all_or_none_are_hits() -> None:
    low, high = bootstrap_interval(torch.zeros(1000))
    assert low == 0.0 and 0.003 < high < 0.004  # 1 - 0.025 ** (1 / 1000)
    assert bootstrap_interval(torch.ones(1000)) == pytest.approx((1 - high, 1.0))
