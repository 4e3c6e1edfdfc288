"""open_clip's published results: the table, the model chosen for a run, the rows that can be compared with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.claims.measures import canonical_name
from evaluation.datasets import prompts
from evaluation.datasets.named import NAMED, Classes
from evaluation.published import BY_ROW, COLUMNS, counterpart, models, nearest, published_value, source
from evaluation.runs.reader import Run
from evaluation.runs.suites import SUITES
from evaluation.types import Result
from tests.helpers.published_rows import COCO, IMAGENET, row, templates
from tests.helpers.synthetic import config_of

RN50 = models()["RN50/cc12m"]


def run(data: str, tower: str, samples: float | None = None, model: str = "m") -> Run:
    towers, train = {"image": {"name": tower}}, {"samples": samples and int(samples)}
    config = config_of({"data": {"name": data}, "model": towers, "train": train})
    return Run(Path("r"), "r", 0, config, [], [replace(IMAGENET, model=model)], {}, {})


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (run("cc12m", "open_clip:ViT-B-16"), "RN50/cc12m"),  # the only model with the same data
        (run("datacomp_small", "open_clip:ViT-B-32", 12.8e6), "ViT-B-32/commonpool_s_s13m_b4k"),
        (run("cc3m", "timm:resnet50.a1_in1k", 80e6), "RN50/cc12m"),  # the same tower; 384e6 samples are nearest to 80e6
        (run("mine", "timm:vit_base_patch16_224", 1e9), "ViT-B-16/datacomp_l_s1b_b8k"),
        (run("mine", "open_clip:RN101", 20e9), "RN101/openai"),
        (run("mine", "small:conv", 1e6), "ViT-B-32/datacomp_s_s13m_b4k"),  # only the samples are known
        # the logged samples count instead of the planned ones
        (replace(run("mine", "small:conv", 13e9), log=[{"step": 1, "samples": 1e6}]), "ViT-B-32/datacomp_s_s13m_b4k"),
        (run("", "", model="open_clip:ViT-L-14/openai"), "ViT-L-14/openai"),  # published weights: their own model
        (run("cc12m", "open_clip:RN50", model="open_clip:RN50/random"), "RN50/cc12m"),
    ],
)
def test_the_nearest_has_the_data_then_the_tower_then_the_samples(one: Run, expected: str) -> None:
    assert nearest(one).name == expected


def test_the_same_protocol_gives_a_difference() -> None:
    for one, value in ((IMAGENET, 0.3591), (COCO, 0.2367)):
        found = published_value(one, RN50)
        assert found is not None and found.obstacle == ""
        assert found.published == value and found.difference == pytest.approx(0.4 - value)
    copy = row("zeroshot", "wds_vtab-caltech101", "mean_per_class", 6084, **templates("caltech101"))
    found = published_value(copy, RN50)
    assert found is not None and (found.published, found.obstacle) == (0.6432, "")


@pytest.mark.parametrize(
    ("one", "obstacle"),
    [
        (replace(IMAGENET, hashes={"templates/test": "x"}), "other prompts; published: CLIP-benchmark's"),
        (replace(IMAGENET, n=10_000), "10,000 items; published: 50,000"),
        (replace(IMAGENET, hashes=IMAGENET.hashes | {"limit": "49900"}, n=49_900), "49,900 items; published: 50,000"),
        (replace(COCO, split="test, paper protocol"), "protocol=paper; published: exact recall"),
        (replace(COCO, split="test, paper protocol, limit 9"), "protocol=paper; published: exact recall"),
        (
            replace(COCO, split="test, centred protocol, limit 9"),
            "protocol=centred; published: the embeddings as they are",
        ),
        (replace(COCO, split="test, training pairs", hashes={"training pairs": "yes"}), "the run's training pairs"),
        (row("zeroshot", "caltech101", "mean_per_class", 6084, **templates("caltech101")), "our own test split"),
        (replace(COCO, dataset="mscoco/val", split="val"), "the split val; published: test"),
        (row("zeroshot", "camelyon17", "top1", 85_054), ""),
        (
            row("zeroshot", "camelyon17", "top1", 85_054, "test, prompts simple"),
            "other prompts; published: the set's own",
        ),
        (row("zeroshot", "geode", "worst_group_top1", 20, limit="100"), "only 20 items"),
        (row("associations", "winogavil", "jaccard/10-12", 1_000), ""),
    ],
)
def test_an_obstacle_names_the_difference_of_protocol(one: Result, obstacle: str) -> None:
    found = published_value(one, RN50)
    assert found is not None and found.obstacle == obstacle


def test_other_tasks_metrics_and_sets_have_no_counterpart() -> None:
    assert counterpart(row("linear_probe", "imagenet", "top1", 50_000)) is None
    assert counterpart(row("zeroshot", "pets", "top1", 3669)) is None
    assert counterpart(row("zeroshot", "scenes_shape", "top1", 1000)) is None
    assert counterpart(row("retrieval", "flickr8k", "text_to_image_recall@1", 5000)) is None


def test_the_ensemble_prompts_of_each_named_set_are_the_published_ones() -> None:
    checked = 0
    for name, entry in NAMED.items():
        metric = next((m for m in ("top1", "mean_per_class") if ("zeroshot", name.replace("_", ""), m) in BY_ROW), None)
        if isinstance(entry, Classes) and metric:
            key = BY_ROW["zeroshot", name.replace("_", ""), metric].templates
            assert prompts.templates_of(entry.prompts).ensemble == prompts.published_templates(key), name
            checked += 1
    assert checked >= 14


def test_each_set_of_datacomp_has_a_published_column() -> None:
    names = {name for column in COLUMNS for name in column.names}
    assert [name for name in SUITES["datacomp38"] if canonical_name(name) not in names] == []


def test_the_table_holds_what_open_clip_publishes_and_nothing_else() -> None:
    assert len(models()) == 121
    assert "mlfoundations/open_clip" in source() and "MIT" in source()
    assert (RN50.values["ImageNet 1k"], RN50.values["MSCOCO image retr. R@1"]) == (0.3591, 0.2367)
    titles = {column.title for column in COLUMNS}
    assert all(set(model.values) == titles for model in models().values())
    assert all(0 <= value <= 1 for model in models().values() for value in model.values.values())
    assert len(BY_ROW) == sum(len(column.names) for column in COLUMNS), "no two columns share a result row"


@pytest.mark.parametrize(
    ("name", "data", "samples"),
    [
        ("ViT-B-16/commonpool_l_clip_s1b_b8k", "commonpool_l_clip", 1e9),
        ("ViT-B-32/laion400m_e31", "laion400m", 31 * 407e6),
        ("RN50/openai", "openai", 12.8e9),
        ("ViT-B-32/laion2b_e16", "laion2b", None),
    ],
)
def test_data_and_samples_come_from_the_tag(name: str, data: str, samples: float | None) -> None:
    assert (models()[name].data, models()[name].samples) == (data, samples)
