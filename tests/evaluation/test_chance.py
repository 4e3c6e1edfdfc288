"""On random embeddings, the intervals of all metrics of eight tasks contain the metrics' chance levels."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timm.data.imagenet_info import ImageNetInfo

from evaluation.datasets.composition import CHANGES
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.tasks import TASKS
from evaluation.types import Settings
from tests.helpers import fakes, replicas

SEEDS = 20
# At least this many of the 20 intervals must contain chance. Correct 95% intervals fail this once in 3,000 tests.
INSIDE = 15


def of_counting(folder: Path) -> str:
    replicas.clevr(folder, {"train": [3 + i % 8 for i in range(160)], "val": [3 + i % 8 for i in range(320)]})
    return f"clevr_count:{folder}"


def of_captions(folder: Path) -> str:
    return fakes.captioned(folder / "captions", (5, 6, 1, 5) * 30)


def of_pairs(folder: Path) -> str:
    return fakes.pairs(folder / "pairs", ("colour", "count", "size") * 60)


def of_sugar_crepe(folder: Path) -> str:
    replicas.sugar_crepe(folder, dict.fromkeys(CHANGES, 60))
    return f"sugar_crepe:{folder}"


def of_winoground(folder: Path) -> str:
    replicas.winoground(folder, ["Object", "Relation", "Both"] * 60)
    return f"winoground:{folder}"


def of_countbench(folder: Path) -> str:
    replicas.countbench(folder, [2, 3, 5, 7, 9, 10] * 40)
    return f"countbench:{folder}"


def of_relations(folder: Path) -> str:
    replicas.aro(folder, ["riding", "above", "near"] * 60, [])
    return f"aro_relation:{folder}"


def of_order(folder: Path) -> str:
    replicas.aro_order(folder, 240)
    return f"aro_coco_order:{folder}"


def of_eccv_caption(folder: Path) -> str:
    replicas.eccv_caption(folder, images=60)
    return f"eccv_caption:{folder}"


def of_winogavil(folder: Path) -> str:
    replicas.winogavil(folder, [(5, 2), (6, 3), (10, 2), (12, 4)] * 60)
    return f"winogavil:{folder}"


def of_imagenet_a(folder: Path) -> str:
    ids: Any = ImageNetInfo("imagenet-1k")
    replicas.imagenet_variant(folder, "imagenet-a", ids.label_names()[::5], images=3)
    return f"imagenet_a:{folder}"


@pytest.mark.parametrize(
    ("task", "make", "settings"),
    [
        ("choices", of_sugar_crepe, Settings()),
        ("choices", of_countbench, Settings()),
        ("choices", of_relations, Settings()),
        ("choices", of_order, Settings()),
        ("many_to_many", of_eccv_caption, Settings()),
        ("associations", of_winogavil, Settings()),
        ("pairs", of_winoground, Settings()),
        ("zeroshot", of_imagenet_a, Settings(prompts="simple")),
        ("zeroshot", of_counting, Settings()),
        ("zeroshot", of_counting, Settings(prompts="a photo of {c} objects.")),
        ("linear_probe", of_counting, Settings()),
        ("retrieval", of_captions, Settings(pools=(40, 80))),
        ("retrieval", of_captions, Settings(pools=(40,), protocol="paper")),
        ("mixed_search", of_captions, Settings()),
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
