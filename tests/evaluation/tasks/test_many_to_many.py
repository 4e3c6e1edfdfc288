"""mAP@R, R-precision, corrected R@1 and Jaccard index: equal to plain loops and to the publishers' own code."""

import json
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor

from clipx.errors import UserError
from evaluation.datasets.kinds import Associations, ManyToMany
from evaluation.datasets.opening import open_dataset
from evaluation.runs import items
from evaluation.tasks.composition import CueAssociations, chance_jaccard
from evaluation.tasks.retrieval import ManyToManyRetrieval
from evaluation.types import Result
from tests.helpers import fakes, replicas


def score(data: Any, task: Any, images: Tensor, texts: Tensor) -> dict[str, Result]:
    features = dict(zip(task.requests(data), (images, texts), strict=True))
    return {row.metric: row for row in task.score(data, features).results}


def by_loops(similarity: Tensor, positives: dict[int, list[int]]) -> dict[str, float]:
    """Return the metrics of section 4.2 of Chun et al. 2022, from the sorted answers of each query."""
    found: dict[str, list[float]] = {"map@r": [], "r_precision": [], "recall@1": []}
    for query, right in positives.items():
        order = sorted(range(similarity.shape[1]), key=lambda a: -float(similarity[query, a]))
        precisions = []
        for r in range(1, len(right) + 1):
            top = order[:r]
            share = sum(a in right for a in top) / r
            precisions.append(share if order[r - 1] in right else 0.0)
        found["map@r"].append(sum(precisions) / len(right))
        found["r_precision"].append(sum(a in right for a in order[: len(right)]) / len(right))
        found["recall@1"].append(float(order[0] in right))
    return {name: sum(values) / len(values) for name, values in found.items()}


@pytest.fixture
def data(tmp_path: Path) -> ManyToMany:
    replicas.eccv_caption(tmp_path, images=12)
    opened = open_dataset(f"eccv_caption:{tmp_path}")
    assert isinstance(opened, ManyToMany)
    return opened


def test_metrics_equal_those_of_sorted_answers(data: ManyToMany) -> None:
    image = fakes.embeddings(12, 0, 6)
    text = image[data.image_of_caption("test")] + 0.8 * fakes.embeddings(60, 1, 6)
    rows = score(data, ManyToManyRetrieval(), image, text)
    assert len(rows) == 8
    for source, directions in data.positives("test").items():
        for direction, positives in directions.items():
            scores = image @ text.T if direction == "image_to_text" else text @ image.T
            for metric, value in by_loops(scores, positives).items():
                if source == "eccv" or metric == "recall@1":
                    one = rows[f"{source}_{direction}_{metric}"]
                    assert one.value == pytest.approx(value) and one.n == len(positives)
                    assert one.low <= one.value <= one.high
    assert 0.1 < rows["eccv_image_to_text_map@r"].value < rows["eccv_image_to_text_r_precision"].value < 1.0


def test_a_limit_may_leave_no_query(data: ManyToMany, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"eccv": {"image_to_text": {}, "text_to_image": data.positives("test")["eccv"]["text_to_image"]}}
    monkeypatch.setattr(data, "positives", lambda split: kept)
    rows = score(data, ManyToManyRetrieval(), fakes.embeddings(12, 0), fakes.embeddings(60, 1))
    assert rows and not [name for name in rows if "image_to_text" in name]
    kept["eccv"]["text_to_image"] = {}
    with pytest.raises(UserError, match="limit= leaves no query of eccv_caption"):
        score(data, ManyToManyRetrieval(), fakes.embeddings(12, 0), fakes.embeddings(60, 1))


def test_ties_and_nan_count_against_the_model_and_perfect_embeddings_score_one(data: ManyToMany) -> None:
    for value in (1.0, float("nan")):
        rows = score(data, ManyToManyRetrieval(), torch.full((12, 4), value), torch.full((60, 4), value))
        assert {row.value for row in rows.values()} == {0.0}
    image, text = torch.eye(12), torch.zeros(60, 12)
    for query, right in data.positives("test")["cxc"]["image_to_text"].items():
        text[right, query] = 1.0
    rows = score(data, ManyToManyRetrieval(), image, text)
    assert rows["cxc_image_to_text_recall@1"].value == rows["cxc_text_to_image_recall@1"].value == 1.0


@pytest.mark.long
def test_all_of_cocos_test_split_scores_as_in_eccv_caption(tmp_path: Path) -> None:
    """The replica has the package's ids and positives, so that the package's `Metrics` can score our embeddings."""
    package: Any = import_module("eccv_caption")
    data_folder = Path(package.__file__).parent / "data"
    own = json.loads((data_folder / "original_image_to_caption.json").read_text())
    listed = []
    for image, captions in own.items():
        sentences = [{"raw": f"caption {one}", "sentid": one} for one in captions]
        listed.append({"filename": image, "split": "test", "cocoid": int(image), "sentences": sentences})
        replicas.write(tmp_path / "mscoco" / image, b"")
    replicas.write(tmp_path / "mscoco" / "dataset_coco.json", json.dumps({"images": listed}))
    (tmp_path / "eccv_caption").symlink_to(data_folder)
    data = open_dataset(f"eccv_caption:{tmp_path}")
    assert isinstance(data, ManyToMany) and len(data.texts("test", "captions")) == 25_000
    owner = data.image_of_caption("test")
    image = fakes.embeddings(5000, 0, 24)
    text = torch.nn.functional.normalize(image[owner] + 1.4 * fakes.embeddings(25_000, 1, 24), dim=1)
    rows = score(data, ManyToManyRetrieval(), image, text)

    images, captions = torch.tensor([int(one) for one in own]), torch.tensor([c for of in own.values() for c in of])
    similarity = image @ text.T
    texts_of = dict(zip(own, captions[similarity.topk(50, dim=1).indices].tolist(), strict=True))
    images_of = dict(zip(captions.tolist(), images[similarity.T.topk(50, dim=1).indices].tolist(), strict=True))
    wanted = ("eccv_r1", "eccv_map_at_r", "eccv_rprecision", "cxc_r1")
    theirs = package.Metrics().compute_all_metrics(
        {int(query): found for query, found in texts_of.items()}, images_of, target_metrics=wanted
    )
    names = {"eccv_r1": "recall@1", "eccv_map_at_r": "map@r", "eccv_rprecision": "r_precision", "cxc_r1": "recall@1"}
    for name, ways in theirs.items():
        for way, direction in (("i2t", "image_to_text"), ("t2i", "text_to_image")):
            ours = rows[f"{name.partition('_')[0]}_{direction}_{names[name]}"]
            assert ours.value == pytest.approx(ways[way], abs=1e-9) and 0.01 < ours.value < 0.95
    assert rows["eccv_image_to_text_map@r"].n == 1261 and rows["cxc_text_to_image_recall@1"].n == 24_972


def test_rows_and_items_of_the_new_sets_are_stored_and_reused(tmp_path: Path) -> None:
    replicas.eccv_caption(tmp_path, images=5)
    replicas.winogavil(tmp_path, [(5, 2), (12, 3)])
    specs = [f"{name}:{tmp_path}" for name in ("eccv_caption", "winogavil")]
    first = fakes.run(tmp_path, specs, [])
    assert {row.task for row in first} == {"many_to_many", "associations"}
    stored = items.read(tmp_path / "out").to_pylist()
    recalls = {row.metric: row.value for row in first if row.metric.endswith("recall@1")}
    assert len(recalls) == 4
    for metric, value in recalls.items():
        assert fmean(row["right"] for row in stored if row["metric"] == metric) == pytest.approx(value)
    assert fakes.run(tmp_path, specs, []) == first
    assert all("positives/test" in row.hashes for row in first if row.dataset == "eccv_caption")


def test_the_jaccard_index_is_that_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.metrics import jaccard_score

    replicas.winogavil(tmp_path, [(5, 2), (6, 3), (10, 2), (12, 5)] * 8)
    data = open_dataset(f"winogavil:{tmp_path}")
    assert isinstance(data, Associations)
    image, cue = fakes.embeddings(12, 0, 6), fakes.embeddings(32, 1, 6)
    rows = score(data, CueAssociations(), image, cue)
    expected = []
    for query, candidates, right in zip(cue, data.candidates, data.right, strict=True):
        chosen = (image[candidates] @ query).argsort(descending=True)[: len(right)].tolist()
        truth, answer = ([i in of for i in range(len(candidates))] for of in (right, chosen))
        expected.append(jaccard_score(truth, answer))
    small = [value for i, value in enumerate(expected) if i % 4 < 2]
    large = [value for i, value in enumerate(expected) if i % 4 >= 2]
    for name, values in (("jaccard", expected), ("jaccard/5-6", small), ("jaccard/10-12", large)):
        assert rows[name].value == pytest.approx(sum(values) / len(values)) and rows[name].n == len(values)
    same = score(data, CueAssociations(), torch.ones(12, 6), torch.ones(32, 6))
    assert {row.value for row in same.values()} == {0.0}


def test_the_chance_of_the_jaccard_index_counts_all_choices() -> None:
    # of the 10 choices of 2 among 5: 1 with both right, 6 with one, 3 with none
    assert chance_jaccard(5, 2) == pytest.approx((1 + 6 / 3) / 10)
