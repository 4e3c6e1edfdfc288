"""Measured conditions: each row measures what its label says; rows without data in the run folder are empty."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from cli.settings.compose import compose_run
from cli.settings.recipes import recipes
from clipx.config.schema import RunConfig
from clipx.data.preprocess.captions import Keywords
from clipx.data.sampler import Sampler
from clipx.data.scenes import folder as scenes_folder
from clipx.data.sources.opening import open_pair_source
from clipx.run.folder import RunFolder
from evaluation.claims.conditions import ROWS, Conditions, Stated, measured_conditions, read_papers
from evaluation.report.blocks import Text
from evaluation.report.sections.settings import conditions
from evaluation.runs import reader
from tests.helpers.report_runs import write_lines

ATTRIBUTES = ("count", "colour", "shape")
TOWERS = ["model.image.name='open_clip:mini-48'", "model.text.name='open_clip:mini-48'", "model.embed_dim=null"]
LENGTH = ["train.epochs=null", "train.samples=1280", "train.batch_size=64", "schedule.warmup_steps=0"]
DATA = ["data.held_out=0", "data.scenes.num_train=60000", *(f"data.scenes.{name}_share=null" for name in ATTRIBUTES)]
MINI = [*TOWERS, *LENGTH, *DATA]
# captions without faults
CLEAN = [f"data.scenes.{fault}=0" for fault in ("omit", "mislabelled", "irrelevant_numbers", "noise")]


def lines(losses: list[float], tau: float = 0.05) -> list[dict[str, Any]]:
    """Return a log with a line every ten steps. `losses` are those of the term clip."""
    return [
        {"step": 10 * k, "loss": 5 * loss, "terms": {"clip": loss, "keyword": 4 * loss}, "tau": tau}
        for k, loss in enumerate(losses, 1)
    ]


def finished(
    root: Path,
    *overrides: str,
    recipe: str = "recipe=counting_mini arm=clip",
    seed: int = 0,
    log: list[dict[str, Any]] | None = None,
) -> RunConfig:
    """Write config and log of a run of 20 steps, and return its config."""
    settings = {o.partition("=")[0]: o for o in [*MINI, *recipe.split(), *overrides]}  # the last value of a key wins
    name = f"run{sum(1 for _ in root.glob('runs/*'))}"
    config = compose_run([*settings.values(), f"name={name}", f"seed={seed}", f"runs={root / 'runs'}"])
    write_lines(RunFolder.create(config).path / "log.jsonl", lines([2.0, 1.0]) if log is None else log)
    return config


def only(root: Path) -> Conditions:
    (found,) = measured_conditions(reader.find([root]))
    return found


def value(root: Path, row: str) -> float:
    (measured,) = set(only(root).measured(row))
    return measured


def test_length_loss_and_temperature_of_a_run(tmp_path: Path) -> None:
    finished(tmp_path, "data.scenes.num_train=320", "data.held_out=0.2", log=lines([9.0] * 18 + [1.0, 2.0]))
    assert only(tmp_path).recipe == "counting_mini"
    (values,) = only(tmp_path).runs
    expected = {"steps": 200, "batch_share": 64 / 256, "epochs": 200 * 64 / 256, "tau": 0.05, "loss": 1.5}
    assert values | expected == values


def test_a_skipped_step_has_no_loss(tmp_path: Path) -> None:
    """Every step that is skipped, because its loss or gradient is not finite, is logged."""
    skipped = {"step": 15, "loss": math.nan, "terms": {"clip": math.nan}, "skipped": 1}
    finished(tmp_path, log=[*lines([2.0]), skipped])
    assert value(tmp_path, "loss") == 2.0


def test_the_final_loss_is_the_whole_loss_without_a_contrastive_term(tmp_path: Path) -> None:
    finished(tmp_path, log=[{"step": 10, "loss": 3.5, "terms": {"siglip": 3.5}}])
    assert value(tmp_path, "loss") == 3.5


def test_all_seeds_and_arms_of_a_recipe_are_one_row_of_medians_and_ranges(tmp_path: Path) -> None:
    for seed, tau in enumerate((0.02, 0.07)):
        finished(tmp_path, *CLEAN, "data.scenes.contents=1", seed=seed, log=lines([1.0], tau))
    finished(tmp_path, "arm=own_log1p_1000", *CLEAN, "data.scenes.contents=1", log=lines([1.0], 0.03))
    finished(tmp_path, recipe="recipe=gap_mini arm=base")
    finished(tmp_path, recipe="recipe=demo")
    finished(tmp_path, "train.samples=0", recipe="recipe=wpse_mini", log=[])
    counting, gap = measured_conditions(reader.find([tmp_path]))
    assert (counting.recipe, len(counting.runs), gap.recipe) == ("counting_mini", 3, "gap_mini")
    table = {label: cells for label, *cells in counting.table()}
    assert table["tau at the end"][:2] == ["not given", "0.03 [0.02, 0.07]"]
    assert table["steps"] == ["3,125", "10", "12.8M / 4,096; 12.8M are DataComp-small's, which section 6 follows"]
    assert table["false negatives in a batch"] == ["not given", "4,032", ""]
    shown = conditions(reader.find([tmp_path]))[1]
    assert isinstance(shown, Text) and shown.text == "counting_mini, beside paper 2: tables 1 and 2, DataComp-small"


def test_data_other_than_scenes_have_their_size_from_the_environment_and_no_batch_statistics(tmp_path: Path) -> None:
    config = finished(tmp_path, "data=shards", "data.name=mine", f"data.root={tmp_path}")
    assert {*only(tmp_path).runs[0]} == {"steps", "loss", "tau"}
    environment = RunFolder.of(config).path / "environment.json"
    environment.write_text(json.dumps({"data": "640:abc/image+txt"}))
    assert value(tmp_path, "batch_share") == 0.1
    assert value(tmp_path, "epochs") == 2
    environment.write_text(json.dumps({"data": "stream:abc"}))
    assert only(tmp_path).measured("epochs") == []


def test_every_pair_is_a_false_negative_if_all_scenes_have_one_content_and_no_caption_is_wrong(tmp_path: Path) -> None:
    one_content = [*CLEAN, "data.scenes.contents=1"]
    finished(tmp_path / "a", *one_content)
    finished(tmp_path / "b", *one_content, "data.scenes.mislabelled=1")
    assert [value(tmp_path / name, "false_negatives") for name in "ab"] == [64 * 63, 0]


@pytest.mark.slow
def test_labels_are_those_of_the_batches_that_training_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scenes_folder, "PROBE_IMAGES", 8)
    overrides = ["data.scenes.num_train=300", "data.held_out=0.1", "data.scenes.test_images=8", "data.block=16"]
    config = finished(tmp_path, *overrides, "data.scenes.test_pairs=1", f"data.root={tmp_path / 'data'}", seed=3)
    pairs, label = open_pair_source(config.data), Keywords(["numbers"], False)
    sampler = Sampler(300, config.train, 3, 0, 1, 0.1, 16)
    assert sampler.total_steps == 20, "all batches of the run must be among the sampled ones"
    captions = [pairs.pair(i, random.Random(0))[1] for batch in sampler.batches(0) for _, i in batch]
    assert value(tmp_path, "labelled") == pytest.approx(sum(label(c) > 0 for c in captions) / 20)


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
