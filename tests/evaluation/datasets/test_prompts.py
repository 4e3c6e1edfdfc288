"""Prompts: whose they are, how many, and that the choice shows in rows and hashes."""

from pathlib import Path

import pytest
import torch

from evaluation.datasets import prompts
from evaluation.datasets.kinds import Labelled
from evaluation.datasets.named import NAMED, Classes
from evaluation.datasets.opening import open_dataset
from evaluation.runner import evaluate
from evaluation.tasks.retrieval import Retrieval, pool
from evaluation.types import Settings
from tests.helpers import fakes, replicas


def test_imagenet_has_eighty_prompts_or_the_seven_simple_ones() -> None:
    known = prompts.templates_of("imagenet1k")
    assert len(known.ensemble) == 80 and len(known.simple) == 7
    assert "itap of a {c}." in known.simple and set(known.simple) <= set(known.ensemble)


@pytest.mark.parametrize(
    ("choice", "first"), [("ensemble", "a picture of {c} objects"), ("simple", "a photo of {c} objects.")]
)
def test_both_counting_prompts_of_the_field(choice: str, first: str) -> None:
    assert prompts.select_templates(prompts.templates_of("clevr_count_all"), choice) == [first]


def test_every_named_set_has_prompts_with_a_place_for_the_name() -> None:
    for known in NAMED.values():
        if type(known) is Classes:
            templates = prompts.templates_of(known.prompts)
            assert all("{c}" in template for template in templates.ensemble + templates.simple)


def test_the_choice_of_prompts_is_in_split_and_hashes(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    found = {}
    for choice in ("ensemble", "simple", "one {c}"):
        given = Settings(prompts=choice)
        rows = evaluate(fakes.encoder(), [spec], ["zeroshot"], tmp_path, tmp_path / "f", 8, 0, "cpu", settings=given)
        found[rows[0].split] = rows[0].hashes["templates/test"]
    assert list(found) == ["test", "test, prompts simple", "test, prompts one {c}"]
    assert len(set(found.values())) == 3


def test_a_prompt_of_ones_own_replaces_the_sets(tmp_path: Path) -> None:
    data = open_dataset(fakes.labelled(tmp_path), Settings(prompts="see: {c}"))
    assert isinstance(data, Labelled)
    assert data.texts("test", "prompts") == ["see: thing 0", "see: thing 1", "see: thing 2"]


def test_a_pool_holds_whole_images_and_is_the_same_every_time() -> None:
    owner = torch.arange(50).repeat_interleave(torch.tensor([5, 6] * 25))
    images, texts, place = pool(owner, 50, 20)
    assert len(images) == 20 and torch.equal(images, pool(owner, 50, 20)[0])
    assert torch.equal(images[place], owner[texts])
    assert torch.equal(place.bincount(), owner.bincount()[images])


def test_smaller_pools_have_rows_of_their_own(tmp_path: Path) -> None:
    replicas.karpathy(tmp_path, "mscoco", "", [5] * 12, "val2014")
    data = open_dataset(f"mscoco:{tmp_path}", Settings(pools=(4, 12)))
    embeddings = (fakes.embeddings(12, 0), fakes.embeddings(60, 1))
    features = dict(zip(Retrieval().requests(data), embeddings, strict=True))
    rows = Retrieval().score(data, features).results  # type: ignore[arg-type]
    assert [row.split for row in rows] == ["test"] * 6 + ["test, 4 of 12 images (seed 0)"] * 6
    assert [row.n for row in rows if row.metric.startswith("text")] == [60] * 3 + [20] * 3
    assert rows[7].metric == "text_to_image_recall@1" and rows[7].chance == 1 / 4
