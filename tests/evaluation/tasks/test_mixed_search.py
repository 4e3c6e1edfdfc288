"""NDCG in a pool of images and texts: plain loops, the effect of a gap, and chance."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets.opening import open_dataset
from evaluation.tasks import TASKS
from evaluation.tasks.mixed_search import chance_ndcg
from evaluation.types import Result, Settings
from tests.helpers import fakes


def score(
    folder: Path, counts: tuple[int, ...], image: Tensor, text: Tensor, protocol: str = "corrected"
) -> dict[str, Result]:
    data = open_dataset(fakes.captioned(folder, counts), Settings(protocol=protocol))
    return {row.metric: row for row in fakes.scored(TASKS["mixed_search"], data, image, text).results}


def test_it_equals_plain_loops(tmp_path: Path) -> None:
    counts = (3, 1, 0, 5, 12)
    owner = [i for i, count in enumerate(counts) for _ in range(count)]
    image, text = fakes.embeddings(5, 0, dim=4), fakes.embeddings(len(owner), 1, dim=4)
    values, with_image = [], 0
    for i in (0, 1, 3, 4):
        query = owner.index(i)
        pool = [(float(text[query] @ x), j == i) for j, x in enumerate(image)]
        pool += [(float(text[query] @ y), owner[t] == i) for t, y in enumerate(text) if t != query]
        order = sorted(pool, reverse=True)[:10]
        with_image += (float(text[query] @ image[i]), True) in order
        dcg = sum(right / math.log2(place + 2) for place, (_, right) in enumerate(order))
        values.append(dcg / sum(1 / math.log2(place + 2) for place in range(min(10, counts[i]))))
    rows = score(tmp_path, counts, image, text)
    assert rows["ndcg@10"].value == pytest.approx(sum(values) / 4, abs=1e-9)
    assert rows["image_recall@10"].value == with_image / 4 == 0.5


def test_a_gap_puts_other_captions_before_the_image_and_centring_removes_it(tmp_path: Path) -> None:
    n = 30
    image = fakes.embeddings(n, 0)
    text = F.normalize(image.repeat_interleave(2, dim=0) + 0.5 * fakes.embeddings(2 * n, 1), dim=1)
    shift = 2 * torch.eye(fakes.WIDTH)[0]
    apart = F.normalize(image - shift, dim=1), F.normalize(text + shift, dim=1)
    cases = ((image, text, "corrected"), (*apart, "corrected"), (*apart, "centred"))
    closed, raw, centred = (score(tmp_path, (2,) * n, *case)["ndcg@10"] for case in cases)
    assert closed.value > 0.95 and raw.value < 0.75 and centred.value > 0.9
    assert (raw.split, centred.split) == ("all", "all, centred protocol")


def test_chance_is_the_mean_over_all_orders() -> None:
    """Two relevant answers in a pool of 12, at all pairs of places."""
    ideal = 1 + 1 / math.log2(3)
    gain = [1 / math.log2(place + 2) if place < 10 else 0.0 for place in range(12)]
    pairs = [(gain[a] + gain[b]) / ideal for a in range(12) for b in range(a)]
    assert chance_ndcg(2, 12) == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
