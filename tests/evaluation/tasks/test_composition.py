"""Choices between captions, and pairs: scores equal CLIP-benchmark's on the same embeddings; ties are wrong."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clip_benchmark.metrics import image_caption_selection
from torch import Tensor

from evaluation.datasets.composition import CHANGES, PIECES
from evaluation.datasets.kinds import Associations
from evaluation.datasets.opening import open_dataset
from evaluation.tasks.composition import CaptionChoice, CueAssociations, PairAccuracy, chance_jaccard
from evaluation.types import Result
from tests.helpers import fakes, replicas


def clip_benchmark(images: Tensor, texts: Tensor) -> dict[str, float]:
    """Return CLIP-benchmark's metrics for embeddings of n items: [n, images per item, E], [n, texts per item, E]."""
    flat = texts.flatten(0, 1)
    model = SimpleNamespace(encode_image=lambda batch: batch.flatten(1), encode_text=lambda numbers: flat[numbers])
    batches = [
        (one[None, ..., None, None], [[str(i * texts.shape[1] + c) for c in range(texts.shape[1])]])
        for i, one in enumerate(images)
    ]

    def tokenize(numbers: list[str]) -> Tensor:
        return torch.tensor([int(number) for number in numbers])

    found: dict[str, float] = image_caption_selection.evaluate(model, batches, tokenize, "cpu", amp=False)
    return found


def score(data: Any, task: Any, images: Tensor, texts: Tensor) -> dict[str, Result]:
    scored = fakes.scored(task, data, images.flatten(0, 1), texts.flatten(0, 1))
    return {row.metric: row for row in scored.results}


def near(images: Tensor, noise: float, seed: int) -> Tensor:
    """Return unit vectors in the direction of `images` plus `noise` times random unit vectors."""
    other = fakes.embeddings(images[..., 0].numel(), seed).view_as(images)
    return torch.nn.functional.normalize(images + noise * other, dim=-1)


def test_choices_are_scored_as_clip_benchmark_scores_them(tmp_path: Path) -> None:
    replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES, 20))
    data = open_dataset(f"sugar_crepe:{tmp_path}")
    image = fakes.embeddings(140, 0).view(140, 1, -1)
    text = torch.cat([near(image, 3.0, 1), near(image, 4.0, 2)], dim=1)
    rows = score(data, CaptionChoice(), image, text)
    assert 0.5 < rows["accuracy"].value < 1
    assert rows["accuracy"].value == pytest.approx(clip_benchmark(image, text)["text_acc"])
    for number, kind in enumerate(CHANGES):
        part = slice(20 * number, 20 * number + 20)
        assert rows[f"accuracy/{kind}"].value == pytest.approx(clip_benchmark(image[part], text[part])["text_acc"])
        assert (rows[f"accuracy/{kind}"].n, rows[f"accuracy/{kind}"].chance) == (20, 0.5)


def test_sugar_crepe_pp_is_scored_as_in_plain_loops(tmp_path: Path) -> None:
    replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES[2:], 20), plus=True)
    image = fakes.embeddings(100, 0).view(100, 1, -1)
    text = torch.cat([near(image, 2.0, 1), near(image, 2.0, 2), near(image, 3.0, 3)], dim=1)
    rows = score(open_dataset(f"sugar_crepe_pp:{tmp_path}"), CaptionChoice(), image, text)
    with_image, text_only = [], []
    for (one,), (first, second, wrong) in zip(image, text, strict=True):
        with_image.append(one @ first > one @ wrong and one @ second > one @ wrong)
        text_only.append(first @ second > first @ wrong and first @ second > second @ wrong)
    for metric, right in (("accuracy", with_image), ("text_only_accuracy", text_only)):
        assert 0.3 < rows[metric].value < 1 and rows[metric].chance == pytest.approx(1 / 3)
        assert rows[metric].value == pytest.approx(sum(map(bool, right)) / 100)
        assert rows[f"{metric}/swap_obj"].value == pytest.approx(sum(map(bool, right[80:])) / 20)


def test_pairs_and_sets_of_whatsup_are_scored_as_in_plain_loops(tmp_path: Path) -> None:
    replicas.whatsup(tmp_path, [f"cap{i}" for i in range(50)], "a")
    image = fakes.embeddings(200, 0).view(200, 1, -1)
    text = torch.cat([near(image, 1.0, 1), *(near(image, 3.0, seed) for seed in (2, 3, 4))], dim=1)
    rows = score(open_dataset(f"whatsup_a:{tmp_path}"), CaptionChoice(), image, text)
    right = [int((one @ captions.T).argmax()) == 0 for (one,), captions in zip(image, text, strict=True)]
    for metric, size in (("accuracy", 1), ("pair_accuracy", 2), ("set_accuracy", 4)):
        groups = [all(right[at : at + size]) for at in range(0, 200, size)]
        assert 0 < sum(groups) < len(groups) == rows[metric].n and rows[metric].chance == 0.25**size
        assert rows[metric].value == pytest.approx(sum(groups) / len(groups))
    assert rows["accuracy/under"].value == pytest.approx(sum(right[3::4]) / 50)


def test_the_mean_of_valse_is_over_its_pieces(tmp_path: Path) -> None:
    folder = replicas.valse(tmp_path, PIECES, [3] * 6)
    entries = json.loads((folder / "data" / "relations.json").read_text())
    (folder / "data" / "relations.json").write_text(json.dumps({"relations_0": entries["relations_0"]}))
    image = fakes.embeddings(61, 0).view(61, 1, -1)
    text = torch.cat([near(image, 3.0, 1), near(image, 4.0, 2)], dim=1)
    rows = score(open_dataset(f"valse:{tmp_path}"), CaptionChoice(), image, text)
    pieces = [rows[f"accuracy/{piece}"].value for piece in PIECES]
    assert rows["mean_per_category"].value == pytest.approx(sum(pieces) / 11) != pytest.approx(rows["accuracy"].value)


def test_winoground_is_scored_as_clip_benchmark_scores_it(tmp_path: Path) -> None:
    replicas.winoground(tmp_path, ["Object", "Relation"] * 60)
    data = open_dataset(f"winoground:{tmp_path}")
    image = fakes.embeddings(240, 0).view(120, 2, -1)
    text = near(image, 3.0, 1)
    scored = fakes.scored(PairAccuracy(), data, image.flatten(0, 1), text.flatten(0, 1))
    expected = clip_benchmark(image, text)
    rows = {row.metric: row for row in scored.results}
    for ours, name in (("pair_accuracy", "image_acc"), ("text_score", "text_acc"), ("group_score", "acc")):
        assert rows[ours].value == pytest.approx(expected[name]) and 0 < expected[name] < 1
    part = clip_benchmark(image[::2], text[::2])
    assert rows["group_score/Object"].value == pytest.approx(part["acc"])
    assert rows["group_score"].value < min(rows["pair_accuracy"].value, rows["text_score"].value)
    shares = {items.metric: float(items.right.double().mean()) for items in scored.items}
    assert shares == pytest.approx({name: rows[name].value for name in ("pair_accuracy", "text_score", "group_score")})


def test_ties_and_nan_count_as_wrong(tmp_path: Path) -> None:
    replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES, 1))
    replicas.winoground(tmp_path, ["Object"] * 4)
    replicas.sugar_crepe(tmp_path, dict.fromkeys(CHANGES[2:], 1), plus=True)
    replicas.whatsup(tmp_path, ["cap"], "a")
    choice = CaptionChoice()
    for name, task, n, captions in (
        ("sugar_crepe", choice, 7, 2),
        ("sugar_crepe_pp", choice, 5, 3),
        ("whatsup_a", choice, 4, 4),
        ("winoground", PairAccuracy(), 4, 2),
    ):
        same = torch.ones(n, captions, 8) / 8**0.5
        images = same if name == "winoground" else same[:, :1]
        for value in (1.0, float("nan")):
            rows = score(open_dataset(f"{name}:{tmp_path}"), task, images, value * same)
            assert {row.value for row in rows.values()} == {0.0}


def test_the_jaccard_index_is_that_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.metrics import jaccard_score

    replicas.winogavil(tmp_path, [(5, 2), (6, 3), (10, 2), (12, 5)] * 8)
    data = fakes.opened(f"winogavil:{tmp_path}", Associations)
    image, cue = fakes.embeddings(12, 0, 6), fakes.embeddings(32, 1, 6)
    rows = score(data, CueAssociations(), image[None], cue[None])
    expected = []
    for query, candidates, right in zip(cue, data.candidates, data.right, strict=True):
        chosen = (image[candidates] @ query).argsort(descending=True)[: len(right)].tolist()
        truth, answer = ([i in of for i in range(len(candidates))] for of in (right, chosen))
        expected.append(jaccard_score(truth, answer))
    small = [value for i, value in enumerate(expected) if i % 4 < 2]
    large = [value for i, value in enumerate(expected) if i % 4 >= 2]
    for name, values in (("jaccard", expected), ("jaccard/5-6", small), ("jaccard/10-12", large)):
        assert rows[name].value == pytest.approx(sum(values) / len(values)) and rows[name].n == len(values)
    for value in (1.0, float("nan")):  # ties and NaN count against the model
        same = score(data, CueAssociations(), torch.full((1, 12, 6), value), torch.ones(1, 32, 6))
        assert {row.value for row in same.values()} == {0.0}


def test_the_chance_of_the_jaccard_index_counts_all_choices() -> None:
    # of the 10 choices of 2 among 5: 1 with both right, 6 with one, 3 with none
    assert chance_jaccard(5, 2) == pytest.approx((1 + 6 / 3) / 10)
