"""results/items.parquet: right or wrong for each item that `clipx eval` scores."""

import math
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

from clipx.errors import UserError
from evaluation.datasets.opening import open_dataset
from evaluation.metrics import MISS
from evaluation.runs import items, results
from evaluation.runs.items import crossed_interval, over_seeds_and_items
from evaluation.types import DEFAULTS, Encoder, Items, Result, Settings
from tests.helpers import fakes
from tests.helpers.fakes import run


def rows_of(out: Path, **chosen: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = items.read(out).to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in chosen.items())]


def test_the_share_of_right_items_is_the_value_of_the_row(tmp_path: Path) -> None:
    things, shots = fakes.labelled(tmp_path / "things", train=30), fakes.captioned(tmp_path / "shots")
    pairs = fakes.pairs(tmp_path / "minimal")
    of_metric = {(r.task, r.metric): r for r in run(tmp_path, [things, shots, pairs], [])}
    names = ["image_to_text_recall@1", "text_to_image_recall@1"]
    compared = [("zeroshot", "top1"), ("linear_probe", "top1"), ("pairs", "pair_accuracy")]
    for task, metric in [*compared, *(("retrieval", name) for name in names)]:
        stored, row = rows_of(tmp_path / "out", task=task, metric=metric), of_metric[task, metric]
        assert len(stored) == row.n and (stored[0]["split"], stored[0]["model"]) == (row.split, "fake")
        assert sum(one["right"] for one in stored) / len(stored) == pytest.approx(row.value)
        assert [one["right"] for one in stored] == [one["rank"] == 1 for one in stored] or task == "pairs"
    by_rank = rows_of(tmp_path / "out", metric="text_to_image_recall@1")
    within_5 = sum(one["rank"] <= 5 for one in by_rank) / len(by_rank)
    assert within_5 == pytest.approx(of_metric["retrieval", "text_to_image_recall@5"].value)


def test_the_unit_of_a_caption_is_its_image_and_images_without_captions_are_no_items(tmp_path: Path) -> None:
    run(tmp_path, [fakes.captioned(tmp_path / "shots", (2, 0, 3))], ["retrieval"])
    captions = rows_of(tmp_path / "out", metric="text_to_image_recall@1")
    assert [(row["item"], row["unit"]) for row in captions] == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2)]
    images = rows_of(tmp_path / "out", metric="image_to_text_recall@1")
    assert [(row["item"], row["unit"]) for row in images] == [(0, 0), (2, 2)]


def test_rows_of_other_checkpoints_protocols_and_limits_are_kept(tmp_path: Path) -> None:
    spec = fakes.captioned(tmp_path / "shots")
    changes: list[tuple[Encoder, Settings]] = [
        (fakes.encoder(), DEFAULTS),
        (fakes.encoder(checkpoint="c1"), DEFAULTS),
        (fakes.encoder(), Settings(protocol="paper")),
        (fakes.encoder(), Settings(limit=3)),
    ]
    for encoder, settings in changes:
        run(tmp_path, [spec], ["retrieval"], encoder, settings=settings)
    stored = rows_of(tmp_path / "out", metric="text_to_image_recall@1")
    captions = [sum(row["hashes"] == hashes for row in stored) for hashes in _distinct(stored, "hashes")]
    assert captions[:3] == [11, 11, 11] and len(captions) == 4 and captions[3] < 11  # 11 captions without a limit
    assert len(_distinct(stored, "questions")) == 3  # the two checkpoints have the same questions
    assert [split.partition(", ")[2] for split in _distinct(stored, "split")] == ["", "paper protocol", "limit 3"]


def _distinct(rows: list[dict[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def test_a_repeated_evaluation_replaces_its_rows(tmp_path: Path) -> None:
    specs = [fakes.labelled(tmp_path / "things"), fakes.labelled(tmp_path / "others", classes=4)]
    run(tmp_path, specs, ["zeroshot"])
    before = items.read(tmp_path / "out")
    run(tmp_path, specs[:1], ["zeroshot"], force=True)
    after = items.read(tmp_path / "out")
    assert len(after) == len(before) == 24
    assert _distinct(after.to_pylist(), "dataset") == ["others", "things"]  # rows of the last evaluation come last


def test_a_rank_of_nan_is_null_and_wrong(tmp_path: Path) -> None:
    dataset = open_dataset(fakes.labelled(tmp_path / "things"))
    ranks = torch.tensor([1, MISS, 2])
    one = Items("test", "top1", torch.arange(3), ranks == 1, ranks, hashes={"checkpoint": "c0"})
    items.add(tmp_path, [one], "zeroshot", dataset, replace(fakes.encoder(), seed=2**32))
    assert rows_of(tmp_path)[0]["seed"] == 2**32
    assert [(row["right"], row["rank"]) for row in rows_of(tmp_path)] == [(True, 1), (False, None), (False, 2)]


def test_evaluations_at_the_same_time_keep_all_rows(tmp_path: Path) -> None:
    spec = fakes.labelled(tmp_path / "things")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, [tmp_path] * 12, [spec] * 12, [[1, 0, 1]] * 12, map(str, range(12))))
    assert len(_distinct(rows_of(tmp_path), "hashes")) == 12


def test_the_error_names_a_corrupt_file(tmp_path: Path) -> None:
    path = tmp_path / items.FILE
    path.parent.mkdir()
    path.write_bytes(b"PAR1 is only the beginning")
    with pytest.raises(UserError, match=r"items\.parquet is not a table of items: remove it"):
        items.read(tmp_path)


def test_items_are_written_before_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill between the two writes, the next evaluation scores again: no rows lack their items."""

    def killed(path: Path, rows: list[Result]) -> None:
        assert len(items.read(path.parent)) == 12
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, [fakes.labelled(tmp_path / "things")], ["zeroshot"])


def store(
    out: Path, spec: str, right: list[int], checkpoint: str = "c0", unit: list[int] | None = None, **hashes: str
) -> None:
    """Add the answers of an evaluation: `right` by item, the units of the items, and further hashes."""
    answers, units = torch.tensor(right) > 0, torch.tensor(unit) if unit else None
    hashes = {"checkpoint": checkpoint, **hashes}
    one = Items("test", "top1", torch.arange(len(right)), answers, unit=units, hashes=hashes)
    items.add(out, [one], "zeroshot", open_dataset(spec), fakes.encoder(checkpoint))


def test_more_rows_than_a_run_can_have_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, fakes.labelled(tmp_path / "things"), [1, 1, 0])
    monkeypatch.setattr(items, "MOST_ROWS", 3)
    assert len(items.read(tmp_path)) == 3
    monkeypatch.setattr(items, "MOST_ROWS", 2)
    monkeypatch.setattr(parquet.ParquetFile, "read", None)  # a small file may expand to gigabytes
    with pytest.raises(UserError, match=r"items\.parquet has 3 rows; at most 2 are read"):
        items.read(tmp_path)


def test_the_interval_over_seeds_and_items_has_the_spread_of_both() -> None:
    """Simulated: effects of seeds and of items have standard deviations 1 and 2, over 8 seeds and 100 items."""
    draw = np.random.default_rng(0)
    misses, widths = 0, []
    for _ in range(50):
        seeds, items_ = draw.normal(0, 1, (8, 1)), draw.normal(0, 2, (1, 100))
        low, high = crossed_interval([seeds + items_ + draw.normal(0, 1, (8, 100))])
        misses += not low <= 0 <= high
        widths.append(high - low)
    assert misses <= 6  # of 50, at 95%; few seeds make the bootstrap a little narrow
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
        store(tmp_path / "a" / f"s{seed}", spec, [0, 0, 0, 1], "an earlier evaluation")
        store(tmp_path / "a" / f"s{seed}", spec, [1, 1, 1, 0])
        store(tmp_path / "b" / f"s{seed}", spec, [1, 0, 0, 0])
    a, b = ({seed: tmp_path / name / f"s{seed}" for seed in range(3)} for name in "ab")
    things = {("things", "test")}
    found = over_seeds_and_items(a, b, "zeroshot", ("top1",), things)
    assert found is not None and found[0] == pytest.approx(0.0, abs=0.26) and found[1] == pytest.approx(1.0, abs=0.26)
    other = fakes.labelled(tmp_path / "others")
    for seed, folder in [*a.items(), *b.items()]:
        store(folder, other, [folder.parent.name == "b"] * 4, unit=[0, 5, 9, seed + 20])
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), things) == found, "another set does not count"
    for folder in [*a.values(), *b.values()]:
        store(folder, spec, [folder.parent.name == "b"] * 2, limit="2")
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), things) == found, "limit= does not count"
    of_both = over_seeds_and_items(b, a, "zeroshot", ("top1",), {("others", "test")})
    assert of_both == (1.0, 1.0), "images without items are no units"
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), {*things, ("missing", "test")}) is None
    (tmp_path / "b" / "s2" / items.FILE).unlink()
    assert over_seeds_and_items(a, b, "zeroshot", ("top1",), things) is None
    assert over_seeds_and_items({0: a[0]}, {0: b[0]}, "zeroshot", ("top1",), things) is None
