"""Prompts: the published templates are used, and rows and hashes record the choice."""

from pathlib import Path

import pytest

from evaluation.datasets import prompts
from evaluation.datasets.named import NAMED, Classes
from evaluation.runner import evaluate
from evaluation.types import Settings
from tests.helpers import fakes


@pytest.mark.parametrize(
    ("choice", "first"), [("ensemble", "a picture of {c} objects"), ("simple", "a photo of {c} objects.")]
)
def test_counting_has_clip_benchmarks_prompt_and_a_simple_one(choice: str, first: str) -> None:
    assert prompts.select_templates(prompts.templates_of("clevr_count_all"), choice) == [first]


def test_all_templates_of_named_sets_contain_c() -> None:
    for known in NAMED.values():
        if type(known) is Classes:
            templates = prompts.templates_of(known.prompts)
            assert all("{c}" in template for template in templates.ensemble + templates.simple)


def test_rows_name_the_choice_of_prompts_in_split_and_hashes(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    found = {}
    for choice in ("ensemble", "simple", "one {c}"):
        chosen = Settings(prompts=choice)
        rows = evaluate(fakes.encoder(), [spec], ["zeroshot"], tmp_path, tmp_path / "f", 8, 0, "cpu", settings=chosen)
        found[rows[0].split] = rows[0].hashes["templates/test"]
    assert list(found) == ["test", "test, prompts simple", "test, prompts one {c}"]
    assert len(set(found.values())) == 3
