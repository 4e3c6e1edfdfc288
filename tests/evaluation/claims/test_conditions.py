"""The regime table: each row measures what its label says, and rows without data in the run folder are empty."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cli.settings.recipes import recipes
from clipx.data.preprocess.captions import Keywords
from clipx.data.sampler import Sampler
from clipx.data.scenes import folder as scenes_folder
from clipx.data.sources.opening import open_pair_source
from clipx.run.folder import RunFolder
from evaluation.claims.conditions import FAR, ROWS, Given, Measured, PaperRegime, Regime, is_far, read_papers, regimes
from evaluation.runs import reader
from tests.helpers.regime_runs import ATTRIBUTES, CLEAN, finished, lines
from tests.helpers.report_runs import write_run


def only(root: Path) -> Regime:
    (found,) = regimes(reader.find([root]))
    return found


def value(regime: Regime, row: str) -> float:
    measured = regime.measured[row]
    assert measured.low == measured.median == measured.high
    return measured.median


def test_length_and_sizes_of_a_run(tmp_path: Path) -> None:
    finished(tmp_path, "data.scenes.num_train=320", "data.held_out=0.2", "model.image.name='open_clip:mini-vit-48'")
    found = only(tmp_path)
    assert (found.recipe, found.runs) == ("counting_mini", 1)
    assert value(found, "steps") == 20
    assert value(found, "batch_share") == 64 / 256
    assert value(found, "epochs") == 20 * 64 / 256
    assert value(found, "tau") == 0.05
    assert (value(found, "image_tokens"), value(found, "text_tokens"), value(found, "embed_dim")) == (37, 32, 128)


def test_a_convolutional_tower_has_no_image_tokens(tmp_path: Path) -> None:
    finished(tmp_path)
    assert "image_tokens" not in only(tmp_path).measured


def test_the_final_loss_is_the_contrastive_term_over_the_last_tenth(tmp_path: Path) -> None:
    finished(tmp_path, log=lines([9.0] * 18 + [1.0, 2.0]))
    assert value(only(tmp_path), "loss") == 1.5
    finished(tmp_path, seed=1, log=[{"step": 10, "loss": 3.5, "terms": {"siglip": 3.5}}])
    assert only(tmp_path).measured["loss"] == Measured(2.5, 1.5, 3.5)


def test_all_seeds_and_arms_of_a_recipe_share_a_regime(tmp_path: Path) -> None:
    for seed, tau in enumerate((0.02, 0.03, 0.07)):
        finished(tmp_path, seed=seed, log=lines([1.0], tau))
    finished(tmp_path, "arm=own_log1p_1000", log=lines([1.0], 0.03))
    finished(tmp_path, recipe="recipe=gap_mini arm=base")
    counting, gap = regimes(reader.find([tmp_path]))
    assert (counting.recipe, counting.runs, gap.recipe) == ("counting_mini", 4, "gap_mini")
    assert counting.measured["tau"] == Measured(0.03, 0.02, 0.07)


def test_untrained_runs_do_not_count(tmp_path: Path) -> None:
    finished(tmp_path, "train.samples=0", log=[])
    assert regimes(reader.find([tmp_path])) == []


def test_without_a_readable_config_only_the_rows_from_the_log_are_filled(tmp_path: Path) -> None:
    write_run(tmp_path)  # its config lacks most settings
    found = only(tmp_path)
    assert found.recipe == "demo" and found.paper is None
    assert set(found.measured) == {"steps", "loss", "tau"}


def test_data_other_than_scenes_have_their_size_from_the_environment_and_no_batch_statistics(tmp_path: Path) -> None:
    config = finished(tmp_path, "data=shards", "data.name=mine", f"data.root={tmp_path}")
    assert not {"batch_share", "epochs", "labelled", "false_negatives", "spread"} & only(tmp_path).measured.keys()
    environment = RunFolder.of(config).path / "environment.json"
    environment.write_text(json.dumps({"data": "640:abc/image+txt"}))
    found = only(tmp_path)
    assert value(found, "batch_share") == 0.1
    assert value(found, "epochs") == 2
    environment.write_text(json.dumps({"data": "stream:abc"}))
    assert "epochs" not in only(tmp_path).measured


def test_every_pair_is_a_false_negative_if_all_scenes_have_one_content(tmp_path: Path) -> None:
    finished(tmp_path, *CLEAN, "data.scenes.contents=1")
    found = only(tmp_path)
    assert value(found, "false_negatives") == 64 * 63
    assert value(found, "false_negatives_each") == 63


def test_no_pair_is_a_false_negative_if_all_captions_have_wrong_counts(tmp_path: Path) -> None:
    finished(tmp_path, *CLEAN, "data.scenes.contents=1", "data.scenes.mislabelled=1")
    assert value(only(tmp_path), "false_negatives") == 0


def test_captions_with_fewer_attributes_fit_more_images(tmp_path: Path) -> None:
    shares = (1, 0.5, 0)
    for share in shares:
        finished(tmp_path / str(share), *CLEAN, *(f"data.scenes.{name}_share={share}" for name in ATTRIBUTES))
    each = [value(only(tmp_path / str(share)), "false_negatives_each") for share in shares]
    assert each[0] < 1 and 2 < each[1] < each[2] / 2


def test_labels_are_counted_only_with_keywords(tmp_path: Path) -> None:
    finished(tmp_path / "a", *CLEAN, "data.scenes.count_share=0")
    finished(tmp_path / "b", "data.keywords=[]")
    assert value(only(tmp_path / "a"), "labelled") == 0
    assert "labelled" not in only(tmp_path / "b").measured


def test_the_spread_of_popularity_follows_the_skew_and_the_recurring_contents(tmp_path: Path) -> None:
    finished(tmp_path / "a", "data.scenes.popularity_skew=1.0")
    finished(tmp_path / "b", "data.scenes.popularity_skew=1.0", "data.scenes.contents=640")
    finished(tmp_path / "c", "data.scenes.false_negatives=0.5")
    spread = [value(only(tmp_path / name), "spread") for name in "abc"]
    assert spread[:2] == pytest.approx([64, 64])
    assert spread[2] > 2


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
    assert value(only(tmp_path), "labelled") == pytest.approx(sum(label(c) > 0 for c in captions) / 20)


def regime(given: float | list[float] | None, ours: float) -> Regime:
    paper = PaperRegime(1, "", [], {"steps": Given("", given)})
    return Regime("mine", 1, {"steps": Measured(ours, ours, ours)}, paper)


@pytest.mark.parametrize(
    ("given", "ours", "factor"),
    [
        (100.0, 50.0, 0.5),
        (100.0, 400.0, 4.0),
        ([10.0, 20.0], 15.0, 1.0),
        ([10.0, 20.0], 5.0, 0.5),
        ([10.0, 20.0], 80.0, 4.0),
        (None, 5.0, None),
        (100.0, -1.0, None),
    ],
)
def test_the_factor_uses_the_nearer_end_of_the_papers_range(given: Any, ours: float, factor: float | None) -> None:
    assert regime(given, ours).factor("steps") == factor
    assert regime(given, ours).factor("tau") is None


def test_a_factor_is_far_in_both_directions() -> None:
    assert [is_far(factor) for factor in (FAR, 1 / FAR, 1.0)] == [False] * 3
    assert is_far(3.1) and is_far(1 / 3.1)


def test_every_recipe_of_a_paper_has_a_regime_and_every_number_a_source() -> None:
    papers = read_papers()
    listed = [name for paper in papers for name in paper.recipes]
    of_no_paper = ("demo", "objectives", "finetune", "scaling")
    assert sorted(listed) == sorted(name for name in recipes() if not name.startswith(of_no_paper))
    for paper in papers:
        assert paper.rows and paper.rows.keys() <= ROWS.keys()
        assert all(given.source for given in paper.rows.values()), paper.name


def test_the_papers_steps_epochs_and_batches_agree() -> None:
    """steps = epochs / (batch / n), with n the number of training samples."""
    for paper in read_papers():
        steps, epochs, share = (paper.rows.get(row, Given()).value for row in ("steps", "epochs", "batch_share"))
        if isinstance(steps, int) and isinstance(share, float):
            assert isinstance(epochs, int)
            assert steps == pytest.approx(epochs / share, rel=2e-3), paper.name
        elif isinstance(steps, list) and isinstance(share, list):
            assert isinstance(epochs, int)
            assert steps == pytest.approx([epochs / s for s in reversed(share)], rel=2e-3)
