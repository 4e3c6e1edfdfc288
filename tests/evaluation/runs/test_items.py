"""results/items.parquet: right or wrong for each item that `clipx eval` scores."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from clipx.errors import UserError
from evaluation.datasets.opening import open_dataset
from evaluation.metrics import MISS
from evaluation.runs import items, results
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
        list(pool.map(_add, [tmp_path] * 12, [spec] * 12, range(12)))
    assert len(_distinct(rows_of(tmp_path), "hashes")) == 12


def _add(out: Path, spec: str, number: int) -> None:
    one = Items("test", "top1", torch.arange(5), torch.ones(5, dtype=torch.bool), hashes={"checkpoint": f"c{number}"})
    items.add(out, [one], "zeroshot", open_dataset(spec), fakes.encoder())


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
