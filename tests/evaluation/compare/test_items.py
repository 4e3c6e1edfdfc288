"""Two models item by item: McNemar's test, paired intervals, and which evaluations are compared."""

import itertools
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from clipx.errors import UserError
from evaluation.compare.items import Answers, Pair, crossed_interval, over_seeds_and_items, pair_up
from evaluation.datasets.opening import open_dataset
from evaluation.runs import items, results
from evaluation.statistics import mcnemar
from evaluation.types import Items
from tests.helpers import fakes
from tests.helpers.synthetic import result

ROW = result("zeroshot", "set", "top1", 0.5)  # a folder is a run only with results; here their values do not matter


def answers(right: list[int], unit: list[int] | None = None) -> Answers:
    item = np.arange(len(right))
    units = item if unit is None else np.array(unit)
    ranks: list[int | None] = [1 if r else 2 for r in right]
    return Answers("zeroshot", "set", "test", "top1", "m", {}, "wds:x", item, units, np.array(right, bool), ranks)


def test_mcnemar_is_the_two_sided_binomial_test() -> None:
    differences = [1] * 10 + [-1] * 3 + [0] * 20
    assert mcnemar(differences) == pytest.approx(2 * sum(math.comb(13, i) for i in range(4)) / 2**13)
    assert mcnemar([0] * 5) == 1.0 and mcnemar([1, -1]) == 1.0


def test_mcnemar_over_images_counts_all_sign_flips() -> None:
    differences = [3, -1, 2, 2, 1, -2, 0, 3, 1, -1, 2, 1]
    flips = itertools.product((1, -1), repeat=len(differences))
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in flips]
    assert mcnemar(differences) == pytest.approx(sum(abs(s) >= abs(sum(differences)) for s in sums) / len(sums))


def test_captions_of_one_image_do_not_count_as_independent() -> None:
    a, b = [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1]
    one_caption = Pair(answers(a), answers(b))
    unit = [i for i in range(6) for _ in range(5)]
    five_a, five_b = ([r for r in one for _ in range(5)] for one in (a, b))
    five_captions = Pair(answers(five_a, unit), answers(five_b, unit))
    assert five_captions.p_value == pytest.approx(one_caption.p_value) == pytest.approx(2 * 7 / 64)
    assert five_captions.difference == pytest.approx(one_caption.difference)
    assert Pair(answers(five_a), answers(five_b)).p_value < 0.001


def test_items_that_only_one_model_has_right_are_counted() -> None:
    pair = Pair(answers([1, 1, 1, 0, 0]), answers([1, 0, 0, 1, 0]))
    assert [pair.count(*both) for both in ((True, True), (True, False), (False, True), (False, False))] == [1, 2, 1, 1]
    assert pair.difference[0] == pytest.approx(0.2)
    assert pair.only(first=True).tolist() == [1, 2] and pair.only(first=False).tolist() == [3]


def test_the_interval_covers_the_true_difference() -> None:
    """Both models are right on the same easy items: the paired interval must be narrow and still cover the truth."""
    generator, covered, widths = np.random.default_rng(0), 0, []
    for _ in range(200):
        easy = generator.random(300) < 0.6
        a, b = (easy | (generator.random(300) < chance) for chance in (0.2, 0.1))
        _, low, high = Pair(answers(a.astype(int).tolist()), answers(b.astype(int).tolist())).difference
        covered += low <= 0.4 * 0.1 <= high
        widths.append(high - low)
    assert 0.90 <= covered / 200 <= 0.99
    unpaired = 2 * 1.96 * math.sqrt((0.68 * 0.32 + 0.64 * 0.36) / 300)
    assert np.mean(widths) < 0.7 * unpaired


def test_equal_answers_give_a_symmetric_interval_with_a_width() -> None:
    same = answers([1, 0, 1, 1])
    value, low, high = Pair(same, same).difference
    assert value == 0 and low == -high < 0


def store(
    out: Path, spec: str, right: list[int], checkpoint: str = "c0", limit: str = "", unit: list[int] | None = None
) -> None:
    hashes = {"checkpoint": checkpoint, "images/test": "i"} | ({"limit": limit} if limit else {})
    split, units = "test" + (f", limit {limit}" if limit else ""), torch.tensor(unit) if unit else None
    one = Items(split, "top1", torch.arange(len(right)), torch.tensor(right) > 0, unit=units, hashes=hashes)
    items.add(out, [one], "zeroshot", open_dataset(spec), fakes.encoder(checkpoint))
    results.write(out / "results.jsonl", [ROW])


def test_only_equal_questions_are_compared_and_the_last_evaluation_counts(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    store(tmp_path / "a", spec, [1, 1, 0], "early")
    store(tmp_path / "a", spec, [0, 0, 1], "late")
    store(tmp_path / "b", spec, [0, 1, 1])
    store(tmp_path / "b", spec, [1, 1], limit="2")
    (pair,) = pair_up(tmp_path / "a", tmp_path / "b")
    assert pair.a.right.tolist() == [False, False, True] and pair.b.right.tolist() == [False, True, True]


def test_items_that_are_stored_twice_or_on_one_side_only_are_refused(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    store(tmp_path / "a", spec, [1, 1, 0])
    store(tmp_path / "b", spec, [0, 1])
    with pytest.raises(UserError, match="different items of one data set"):
        pair_up(tmp_path / "a", tmp_path / "b")
    table = items.read(tmp_path / "a")
    parquet.write_table(pa.concat_tables([table, table]), tmp_path / "a" / items.FILE)
    with pytest.raises(UserError, match=r"a/results/items.parquet is corrupt \(items stored twice\): delete it"):
        pair_up(tmp_path / "a", tmp_path / "b")


def test_more_rows_than_a_run_can_have_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path / "a", fakes.labelled(tmp_path / "things"), [1, 1, 0])
    monkeypatch.setattr(items, "MOST_ROWS", 3)
    assert len(items.read(tmp_path / "a")) == 3
    monkeypatch.setattr(items, "MOST_ROWS", 2)
    monkeypatch.setattr(parquet.ParquetFile, "read", None)  # a small file may expand to gigabytes
    with pytest.raises(UserError, match=r"items\.parquet has 3 rows; at most 2 are read"):
        items.read(tmp_path / "a")


def write_manifest(folder: Path, digest: str) -> None:
    """Write the manifest of a checkpoint whose weights have this SHA-256."""
    manifest = {"step": 1, "data": {}, "sha256": {"model.safetensors": digest, "training.pt": "dddd" * 16}}
    (folder / "checkpoint.json").write_text(json.dumps(manifest))


def test_a_checkpoint_folder_selects_the_rows_of_this_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = fakes.labelled(tmp_path / "things")
    for checkpoint, right in (("aaaa", [1, 1, 0]), ("bbbb", [0, 0, 1])):
        store(tmp_path / "run", spec, right, checkpoint * 4)
        folder = tmp_path / "run" / "checkpoints" / checkpoint
        folder.mkdir(parents=True)
        write_manifest(folder, checkpoint * 16)
    first, second = (tmp_path / "run" / "checkpoints" / name for name in ("aaaa", "bbbb"))
    (pair,) = pair_up(first, second)
    assert pair.a.right.tolist() == [True, True, False] and pair.b.right.tolist() == [False, False, True]
    monkeypatch.chdir(first.parent)
    assert pair_up(Path(first.name), second)[0].a.right.tolist() == [True, True, False], "the run lies above the folder"
    with pytest.raises(UserError, match="no run"):
        pair_up(first.parent / "cccc", second)
    write_manifest(first, "cccc" * 16)
    with pytest.raises(UserError, match=r"aaaa has no items in .*: run clipx eval .*aaaa force=true"):
        pair_up(first, second)


def test_runs_that_cannot_be_compared_are_refused_with_the_reason(tmp_path: Path) -> None:
    spec, other = fakes.labelled(tmp_path / "things"), fakes.labelled(tmp_path / "others")
    store(tmp_path / "runs" / "a", spec, [1, 0])
    store(tmp_path / "runs" / "b", other, [1, 0])
    (tmp_path / "runs" / "c").mkdir()
    results.write(tmp_path / "runs" / "c" / "results.jsonl", [ROW])
    a = tmp_path / "runs" / "a"
    for b, message in (
        ("b", r"no common items \(.*zeroshot on things \(test\); .*zeroshot on others \(test\)\): evaluate both"),
        ("c", "c has no items in .*items.parquet: run clipx eval .*c force=true"),
        ("d", "no run at or below .*d; run"),
        ("", "holds 3 runs, but diff needs one on each side: give one of .*a, .*b, .*c"),
    ):
        with pytest.raises(UserError, match=message):
            pair_up(a, tmp_path / "runs" / b)


def test_the_interval_over_seeds_and_items_has_the_spread_of_both() -> None:
    """Simulated: effects of seeds and of items have standard deviations 1 and 2, over 8 seeds and 100 items."""
    draw = np.random.default_rng(0)
    misses, widths = 0, []
    for _ in range(100):
        seeds, items_ = draw.normal(0, 1, (8, 1)), draw.normal(0, 2, (1, 100))
        low, high = crossed_interval([seeds + items_ + draw.normal(0, 1, (8, 100))])
        misses += not low <= 0 <= high
        widths.append(high - low)
    assert misses <= 12  # of 100, at 95%; few seeds make the bootstrap a little narrow
    expected = 2 * 1.96 * math.sqrt(1 / 8 + 4 / 100 + 1 / 800)
    assert expected * 0.8 < np.mean(widths) < expected * 1.1


def test_a_large_set_is_resampled_in_little_memory() -> None:
    differences = np.random.default_rng(0).normal(0, 1, (3, 10_000))
    tracemalloc.start()
    interval = crossed_interval([differences])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert interval == pytest.approx((-0.012024055190336665, 0.01840090061279017)) and peak < 100e6


def test_runs_are_compared_over_seeds_and_items_if_all_have_items(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    for seed in range(3):
        store(tmp_path / "a" / f"s{seed}", spec, [1, 1, 1, 0])
        store(tmp_path / "b" / f"s{seed}", spec, [1, 0, 0, 0])
    a, b = ({seed: tmp_path / name / f"s{seed}" for seed in range(3)} for name in "ab")
    things = {("things", "test")}
    found = over_seeds_and_items(a, b, "zeroshot", ("top1",), things)
    assert found is not None and found[0] == pytest.approx(0.0, abs=0.26) and found[1] == pytest.approx(1.0, abs=0.26)
    other = fakes.labelled(tmp_path / "others")
    for seed, run in [*a.items(), *b.items()]:
        store(run, other, [run.parent.name == "b"] * 4, unit=[0, 5, 9, seed + 20])
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), things) == found, "another set does not count"
    of_both = over_seeds_and_items(b, a, "zeroshot", ("top1",), {("others", "test")})
    assert of_both == (1.0, 1.0), "images without items are no units"
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), {*things, ("missing", "test")}) is None
    (tmp_path / "b" / "s2" / items.FILE).unlink()
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), things) is None
    assert over_seeds_and_items({0: a[0]}, {0: b[0]}, "zeroshot", ("top1",), things) is None
