"""Retrieval: chance with unequal numbers of captions, and honest examples."""

from pathlib import Path

import pytest
import torch

from evaluation.datasets.kinds import Captioned
from evaluation.datasets.opening import open_dataset
from evaluation.tasks.retrieval import Retrieval, chance_image_to_text
from tests.helpers import fakes

TASK = Retrieval()


def dataset(folder: Path, counts: tuple[int, ...]) -> Captioned:
    opened = open_dataset(fakes.captioned(folder, counts))
    assert isinstance(opened, Captioned)
    return opened


def test_random_embeddings_are_at_chance_inside_the_interval(tmp_path: Path) -> None:
    counts = (1, 5, 6) * 40
    data = dataset(tmp_path, counts)
    images, captions = TASK.requests(data)
    features = {images: fakes.embeddings(120, 0), captions: fakes.embeddings(sum(counts), 1)}
    rows = TASK.score(data, features).results
    assert len(rows) == 6
    for row in rows:
        assert row.chance is not None and row.low <= row.chance <= row.high, row
        assert row.n == (120 if row.metric.startswith("image_to_text") else sum(counts))


def test_chance_is_the_share_of_random_orders_that_hit() -> None:
    counts = torch.tensor([1, 3, 4])
    owner = torch.arange(3).repeat_interleave(counts)
    generator = torch.Generator().manual_seed(0)
    for k in (1, 2, 5, 9):
        found = 0.0
        for _ in range(4000):
            first = owner[torch.randperm(8, generator=generator)[:k]]
            found += len(set(first.tolist())) / 3
        assert chance_image_to_text(counts, k) == pytest.approx(found / 4000, abs=0.02)


def test_pairs_that_are_equal_are_all_found_and_shown_as_correct(tmp_path: Path) -> None:
    counts = (2,) * 12
    data = dataset(tmp_path, counts)
    images, captions = TASK.requests(data)
    image = fakes.embeddings(12, 0)
    score = TASK.score(data, {images: image, captions: image.repeat_interleave(2, dim=0)})
    assert all(row.value == 1.0 for row in score.results)
    assert score.artifact is not None
    for query in score.artifact["text_to_image"]:
        assert query["rank"] == 1 and [shown["correct"] for shown in query["images"]] == [True] + [False] * 4
        assert query["caption"].endswith(f"of image {query['images'][0]['image']}")
    for query in score.artifact["image_to_text"]:
        assert query["rank"] == 1
        assert [shown["correct"] for shown in query["captions"]] == [True, True, False, False, False]
