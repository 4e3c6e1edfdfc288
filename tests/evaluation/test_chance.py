"""Every metric of every task is at chance on random embeddings, within its interval."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.tasks import TASKS
from evaluation.types import Settings
from tests.helpers import fakes, replicas

SEEDS = 20
INSIDE = 15  # 95% intervals hold chance in fewer of 20 once in 3,000 metrics


def counting(folder: Path) -> str:
    replicas.clevr(folder, {"train": [3 + i % 8 for i in range(160)], "val": [3 + i % 8 for i in range(320)]})
    return f"clevr_count:{folder}"


def of_captions(folder: Path) -> str:
    return fakes.captioned(folder / "captions", (5, 6, 1, 5) * 30)


def of_pairs(folder: Path) -> str:
    return fakes.pairs(folder / "pairs", ("colour", "count", "size") * 60)


@pytest.mark.parametrize(
    ("task", "make", "settings"),
    [
        ("zeroshot", counting, Settings()),
        ("zeroshot", counting, Settings(prompts="a photo of {c} objects.")),
        ("linear_probe", counting, Settings()),
        ("retrieval", of_captions, Settings(pools=(40, 80))),
        ("retrieval", of_captions, Settings(pools=(40,), protocol="paper")),
        ("pairs", of_pairs, Settings()),
    ],
)
def test_random_embeddings_are_at_chance(
    task: str, make: Callable[[Path], str], settings: Settings, tmp_path: Path
) -> None:
    data: AnyDataset = open_dataset(make(tmp_path), settings)
    asked = TASKS[task].requests(data)
    inside: Counter[tuple[str, str]] = Counter()
    for seed in range(SEEDS):
        features: dict[Any, Any] = {}
        for number, request in enumerate(asked):
            images = request.view == "images"
            count = len(data.images(request.split)) if images else len(data.texts(request.split, request.view))
            features[request] = fakes.embeddings(count, 1000 * seed + number, dim=8)
        for row in TASKS[task].score(data, features).results:
            assert row.chance is not None
            inside[row.split, row.metric] += row.low - 1e-9 <= row.chance <= row.high + 1e-9
    assert inside and min(inside.values()) >= INSIDE, inside
