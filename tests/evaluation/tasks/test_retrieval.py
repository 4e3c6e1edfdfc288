"""Retrieval: chance level with unequal numbers of captions, pools of images, and examples for the report."""

from pathlib import Path

import pytest
import torch

from evaluation.datasets.kinds import Captioned
from evaluation.tasks.retrieval import Retrieval, chance_image_to_text, pool
from tests.helpers import fakes


def test_chance_equals_the_hit_rate_of_random_orders() -> None:
    counts = torch.tensor([1, 3, 4])
    owner = torch.arange(3).repeat_interleave(counts)
    generator = torch.Generator().manual_seed(0)
    for k in (1, 2, 5, 9):
        found = 0.0
        for _ in range(4000):
            first = owner[torch.randperm(8, generator=generator)[:k]]
            found += len(set(first.tolist())) / 3
        assert chance_image_to_text(counts, k) == pytest.approx(found / 4000, abs=0.02)


def test_identical_pairs_are_all_found_and_shown_as_correct(tmp_path: Path) -> None:
    data = fakes.opened(fakes.captioned(tmp_path, (2,) * 12), Captioned)
    image = fakes.embeddings(12, 0)
    score = fakes.scored(Retrieval(), data, image, image.repeat_interleave(2, dim=0))
    assert all(row.value == 1.0 for row in score.results)
    assert [row.n for row in score.results if row.metric.startswith("image_to_text")] == [12] * 3
    assert [row.n for row in score.results if row.metric.startswith("text_to_image")] == [24] * 3
    assert score.artifact is not None
    for query in score.artifact["text_to_image"]:
        assert query["rank"] == 1 and [shown["correct"] for shown in query["images"]] == [True] + [False] * 4
        assert query["caption"].endswith(f"of image {query['images'][0]['image']}")
    for query in score.artifact["image_to_text"]:
        assert query["rank"] == 1
        assert [shown["correct"] for shown in query["captions"]] == [True, True, False, False, False]


def test_a_pool_has_all_captions_of_its_images_and_is_the_same_in_every_call() -> None:
    owner = torch.arange(50).repeat_interleave(torch.tensor([5, 6] * 25))
    images, texts, owner_in_pool = pool(owner, 50, 20)
    assert len(images) == 20 and torch.equal(images, pool(owner, 50, 20)[0])
    assert torch.equal(images[owner_in_pool], owner[texts])
    assert torch.equal(owner_in_pool.bincount(), owner.bincount()[images])
