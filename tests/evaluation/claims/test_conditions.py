"""Measured conditions: each row measures what its label says; rows without data in the run folder are empty."""

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.settings.recipes import recipes
from clipx.data.preprocess.captions import Keywords
from clipx.data.sampler import Sampler
from clipx.data.scenes import folder as scenes_folder
from clipx.data.sources.opening import open_pair_source
from evaluation import claims
from evaluation.claims.conditions import ROWS, Conditions, Stated, measured_conditions, read_papers
from evaluation.report.blocks import Text
from evaluation.report.sections.settings import conditions
from evaluation.runs.reader import Run
from tests.helpers.synthetic import changed, run

# every scene has one content, and no caption is wrong
ALIKE = {"num_train": 60_000, "contents": 1, "omit": 0, "mislabelled": 0, "irrelevant_numbers": 0, "noise": 0}


def lines(losses: list[float], tau: float = 0.05) -> list[dict[str, Any]]:
    """Return a log with a line every ten steps. `losses` are those of the term clip."""
    return [
        {"step": 10 * k, "loss": 5 * loss, "terms": {"clip": loss, "keyword": 4 * loss}, "tau": tau}
        for k, loss in enumerate(losses, 1)
    ]


@pytest.fixture
def few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims.conditions, "MAX_BATCHES", 2)


def finished(log: list[dict[str, Any]], recipe: str = "counting_mini", seed: int = 0, **data: Any) -> Run:
    """Return a run of 20 steps on scenes; `data` changes settings of its data."""
    settings = {"data": {"name": "scenes", "source": "scenes", "keywords": ["numbers"], "scenes": ALIKE}}
    one = run(recipe, "clip", seed, {}, log, settings)
    return changed(one, data=data, train={"samples": 1280, "epochs": None})


def only(one: Run) -> Conditions:
    (found,) = measured_conditions([one])
    return found


def value(one: Run, row: str) -> float:
    (measured,) = set(only(one).measured(row))
    return measured


def test_length_loss_and_temperature_of_a_run(few_batches: None) -> None:
    one = finished(lines([9.0] * 18 + [1.0, 2.0]), held_out=0.2, scenes={"num_train": 320})
    assert only(one).recipe == "counting_mini"
    (values,) = only(one).runs
    expected = {"steps": 200, "batch_share": 64 / 256, "epochs": 200 * 64 / 256, "tau": 0.05, "loss": 1.5}
    assert values | expected == values


def test_the_final_loss_leaves_out_skipped_steps_and_is_the_whole_loss_without_a_contrastive_term() -> None:
    """Every step that is skipped, because its loss or gradient is not finite, is logged."""
    skipped = {"step": 15, "loss": math.nan, "terms": {"clip": math.nan}, "skipped": 1}
    assert value(finished([*lines([2.0]), skipped], source="shards"), "loss") == 2.0
    assert value(finished([{"step": 10, "loss": 3.5, "terms": {"siglip": 3.5}}], source="shards"), "loss") == 3.5


def test_all_seeds_and_arms_of_a_recipe_are_one_row_of_medians_and_ranges(few_batches: None) -> None:
    runs = [finished(lines([1.0], tau), seed=seed) for seed, tau in enumerate((0.02, 0.07, 0.03))]
    runs[2] = changed(runs[2], arm="own_log1p_1000")
    others = [finished(lines([1.0]), "gap_mini"), finished(lines([1.0]), "demo"), finished([], "wpse_mini")]
    counting, gap = measured_conditions([*runs, *others])
    assert (counting.recipe, len(counting.runs), gap.recipe) == ("counting_mini", 3, "gap_mini")
    table = {label: cells for label, *cells in counting.table()}
    assert table["tau at the end"][:2] == ["not given", "0.03 [0.02, 0.07]"]
    assert table["steps"] == ["3,125", "10", "12.8M / 4,096; 12.8M are DataComp-small's, which section 6 follows"]
    assert table["false negatives in a batch"] == ["not given", "4,032", ""]  # 64 * 63: all pairs
    shown = conditions(runs)[1]
    assert isinstance(shown, Text) and shown.text == "counting_mini, beside paper 2: tables 1 and 2, DataComp-small"
    wrong = finished(lines([1.0]), scenes={"mislabelled": 1})
    assert value(wrong, "false_negatives") == 0


def test_data_other_than_scenes_have_their_size_from_the_environment_and_no_batch_statistics() -> None:
    one = finished(lines([2.0, 1.0]), source="shards")
    assert {*only(one).runs[0]} == {"steps", "loss", "tau"}
    known = replace(one, environment={"data": "640:abc/image+txt"})
    assert (value(known, "batch_share"), value(known, "epochs")) == (0.1, 2)
    assert only(replace(one, environment={"data": "stream:abc"})).measured("epochs") == []


def test_labels_are_those_of_the_batches_that_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scenes_folder, "PROBE_IMAGES", 8)
    monkeypatch.setattr(scenes_folder, "ProcessPoolExecutor", lambda workers, *of: ThreadPoolExecutor(workers))
    scenes = {"num_train": 300, "image_size": 32, "contents": None, "test_images": 8, "test_pairs": 1}
    one = finished(lines([1.0]), seed=3, held_out=0.1, block=16, root=str(tmp_path / "data"), scenes=scenes)
    config = one.config
    pairs, label = open_pair_source(config.data), Keywords(["numbers"], False)
    sampler = Sampler(300, config.train, 3, 0, 1, 0.1, 16)
    assert sampler.total_steps == 20, "all batches of the run must be among the sampled ones"
    captions = [pairs.pair(i, random.Random(0))[1] for batch in sampler.batches(0) for _, i in batch]
    assert value(one, "labelled") == pytest.approx(sum(label(c) > 0 for c in captions) / 20)


def test_numbers_that_round_to_a_thousand_are_whole() -> None:
    assert [Stated(value=number).text for number in (999.7, 999.4, 0.001)] == ["1,000", "999", "0.001"]


def test_every_recipe_of_a_paper_has_conditions_and_every_number_a_source() -> None:
    papers = read_papers()
    listed = [name for paper in papers for name in paper.recipes]
    of_no_paper = ("demo", "objectives", "finetune", "frozen", "scaling", "embeddings")
    assert sorted(listed) == sorted(name for name in recipes() if not name.startswith(of_no_paper))
    for paper in papers:
        assert paper.rows and paper.rows.keys() <= ROWS.keys()
        assert all(given.source for given in paper.rows.values()), paper.name


def test_the_papers_steps_epochs_and_batches_agree() -> None:
    """steps = epochs / (batch / n), with n the number of training samples."""
    for paper in read_papers():
        steps, epochs, share = (paper.rows.get(row, Stated()).value for row in ("steps", "epochs", "batch_share"))
        if isinstance(steps, int) and isinstance(share, float):
            assert isinstance(epochs, int)
            assert steps == pytest.approx(epochs / share, rel=2e-3), paper.name
        elif isinstance(steps, list) and isinstance(share, list):
            assert isinstance(epochs, int)
            assert steps == pytest.approx([epochs / s for s in reversed(share)], rel=2e-3)
