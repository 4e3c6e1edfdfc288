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
    replicas.imagenet_variant(folder, "imagenet-a", ids.label_names()[::5], images=3)


# In the images of CLEVR, in train and in val. Fewer in train could be separated, and the fits would take minutes.
OBJECTS = [3 + i % 8 for i in range(160)]
# specification, with ROOT for the folder -> writes the set
SETS: dict[str, Callable[[Path], object]] = {
    "clevr_count:ROOT": lambda folder: replicas.clevr(folder, {"train": OBJECTS, "val": OBJECTS}),
    "captions:ROOT": lambda folder: fakes.captioned(folder, (5, 6, 1, 5) * 20),
    "pairs:ROOT": lambda folder: fakes.pairs(folder, ("colour", "count", "size") * 60),
    "sugar_crepe:ROOT": lambda folder: replicas.sugar_crepe(folder, dict.fromkeys(CHANGES, 30)),
    "winoground:ROOT": lambda folder: replicas.winoground(folder, ["Object", "Relation", "Both"] * 30),
    "sugar_crepe_pp:ROOT": lambda folder: replicas.sugar_crepe(folder, dict.fromkeys(CHANGES[2:], 30), plus=True),
    "valse:ROOT": lambda folder: replicas.valse(folder, PIECES, [3, 2] * 15),
    "whatsup_a:ROOT": lambda folder: replicas.whatsup(folder, [f"cap{i}" for i in range(50)], "a"),
    "colorswap:ROOT": lambda folder: replicas.colorswap(folder, 60),
    "countbench:ROOT": lambda folder: replicas.countbench(folder, [2, 3, 5, 7, 9, 10] * 20),
    "aro_relation:ROOT": lambda folder: replicas.aro(folder, ["riding", "above", "near"] * 60, []),
    "aro_coco_order:ROOT": lambda folder: replicas.aro_order(folder, 120),
    "winogavil:ROOT": lambda folder: replicas.winogavil(folder, [(5, 2), (6, 3), (10, 2), (12, 4)] * 15),
    "imagenet_a:ROOT": imagenet_a,
}


@pytest.mark.parametrize(
    ("task", "spec", "settings"),
    [
        ("choices", "sugar_crepe:ROOT", Settings()),
        ("choices", "sugar_crepe_pp:ROOT", Settings()),
        ("choices", "valse:ROOT", Settings()),
        ("choices", "whatsup_a:ROOT", Settings()),
        ("choices", "countbench:ROOT", Settings()),
        ("choices", "aro_relation:ROOT", Settings()),
        ("choices", "aro_coco_order:ROOT", Settings()),
        ("associations", "winogavil:ROOT", Settings()),
        ("pairs", "winoground:ROOT", Settings()),
        ("pairs", "colorswap:ROOT", Settings()),
        ("zeroshot", "imagenet_a:ROOT", Settings(prompts="simple")),
        ("zeroshot", "clevr_count:ROOT", Settings()),
        ("linear_probe", "clevr_count:ROOT", Settings()),
        ("retrieval", "captions:ROOT", Settings(pools=(20, 40))),
        ("retrieval", "captions:ROOT", Settings(pools=(40,), protocol="paper")),
        ("mixed_search", "captions:ROOT", Settings()),
        ("pairs", "pairs:ROOT", Settings()),
    ],
)
def test_random_embeddings_are_at_chance(task: str, spec: str, settings: Settings, tmp_path: Path) -> None:
    SETS[spec](tmp_path)
    data: AnyDataset = open_dataset(spec.replace("ROOT", str(tmp_path)), settings)
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
