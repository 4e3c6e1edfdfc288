"""On random embeddings, the intervals of all metrics of seven tasks contain the metrics' chance levels."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timm.data.imagenet_info import ImageNetInfo

from evaluation.datasets.composition import CHANGES, PIECES
from evaluation.datasets.kinds import AnyDataset
from evaluation.datasets.opening import open_dataset
from evaluation.tasks import TASKS
from evaluation.types import Settings
from tests.helpers import fakes, replicas

SEEDS = 20
# At least this many of the 20 intervals must contain chance. Correct 95% intervals fail this once in 3,000 tests.
INSIDE = 15


def imagenet_a(folder: Path) -> None:
    ids: Any = ImageNetInfo("imagenet-1k")
    replicas.class_folders(folder / "imagenet-a", ids.label_names()[::5], images=3)


# In the images of CLEVR, in train and in val. Fewer in train could be separated, and the fits would take minutes.
OBJECTS = [3 + i % 8 for i in range(160)]
# layout or name of a set -> a task that scores it, and what writes it
SETS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "clevr_count": ("zeroshot", lambda root: replicas.clevr(root, {"train": OBJECTS, "val": OBJECTS})),
    "captions": ("mixed_search", lambda root: fakes.captioned(root, (5, 6, 1, 5) * 20)),
    "pairs": ("pairs", lambda root: fakes.pairs(root, ("colour", "count", "size") * 60)),
    "sugar_crepe": ("choices", lambda root: replicas.sugar_crepe(root, dict.fromkeys(CHANGES, 30))),
    "winoground": ("pairs", lambda root: replicas.winoground(root, ["Object", "Relation", "Both"] * 30)),
    "sugar_crepe_pp": ("choices", lambda root: replicas.sugar_crepe(root, dict.fromkeys(CHANGES[2:], 30), plus=True)),
    "valse": ("choices", lambda root: replicas.valse(root, PIECES, [3, 2] * 15)),
    "whatsup_a": ("choices", lambda root: replicas.whatsup(root, [f"cap{i}" for i in range(50)], "a")),
    "colorswap": ("pairs", lambda root: replicas.colorswap(root, 60)),
    "countbench": ("choices", lambda root: replicas.countbench(root, [2, 3, 5, 7, 9, 10] * 20)),
    "aro_relation": ("choices", lambda root: replicas.aro(root, ["riding", "above", "near"] * 60, [])),
    "aro_coco_order": ("choices", lambda root: replicas.aro_order(root, 120)),
    "winogavil": ("associations", lambda root: replicas.winogavil(root, [(5, 2), (6, 3), (10, 2), (12, 4)] * 15)),
    "imagenet_a": ("zeroshot", imagenet_a),
}


@pytest.mark.parametrize(
    ("task", "name", "settings"),
    [
        *((task, name, Settings()) for name, (task, _) in SETS.items() if name != "imagenet_a"),
        ("zeroshot", "imagenet_a", Settings(prompts="simple")),
        ("linear_probe", "clevr_count", Settings()),
        ("retrieval", "captions", Settings(pools=(20, 40))),
        ("retrieval", "captions", Settings(pools=(40,), protocol="paper")),
    ],
)
def test_random_embeddings_are_at_chance(task: str, name: str, settings: Settings, tmp_path: Path) -> None:
    SETS[name][1](tmp_path)
    data: AnyDataset = open_dataset(f"{name}:{tmp_path}", settings)
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
