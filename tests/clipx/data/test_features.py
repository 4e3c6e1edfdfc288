"""Features of frozen towers on disk: one pass an item, shared by processes, whole after kills, refused without room."""

import errno
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from clipx.config.schema import DataConfig
from clipx.data import features
from clipx.data.features import Items, content_of, open_features
from clipx.data.loading.features import image_features
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.types import Pixels
from clipx.utils.files import cache_home

pytestmark = pytest.mark.usefixtures("empty_cache")
CPU = torch.device("cpu")
fork = multiprocessing.get_context("fork")


class Double:
    """A tower of width 2 that returns (x, 2x) and notes each item that it embeds in a file."""

    name, versions = "model.image.name=double", "1"
    precision: str = "float32"
    inputs: Any = None
    padding: int | None = None

    def __init__(self, notes: Path, digest: str = "double", tokens: int = 0, seconds: float = 0.0) -> None:
        self.digest, self.notes, self.seconds = digest, notes, seconds
        self.shape: tuple[int, ...] = (tokens, 2) if tokens else (2,)

    def __call__(self, batch: Tensor, device: torch.device) -> Tensor:
        with self.notes.open("a") as file:
            file.writelines(f"{int(value)}\n" for value in batch[:, 0].tolist())
        time.sleep(self.seconds)
        pairs = torch.stack([batch[:, 0], 2 * batch[:, 0]], dim=1)
        return pairs if len(self.shape) == 1 else pairs[:, None].repeat(1, self.shape[0], 1)

    def passes(self) -> list[int]:
        return sorted(map(int, self.notes.read_text().split())) if self.notes.exists() else []


def items(values: Sequence[int], bad: Sequence[int] = (), lengths: Callable[[], Any] | None = None) -> Items:
    hashes = np.array([content_of(str(value).encode()) for value in values], np.uint64)

    def inputs(numbers: Sequence[int]) -> list[Tensor | None]:
        return [None if values[n] in bad else torch.tensor([float(values[n])]) for n in numbers]

    return Items("numbers", hashes, inputs, lengths)


@pytest.mark.parametrize(
    ("name", "kept"), [(None, None), *((file, kept) for file in (features.ITEMS, features.ROWS) for kept in (None, 0))]
)
def test_a_set_that_has_grown_embeds_what_is_new_and_all_if_the_first_is_damaged(
    tmp_path: Path, empty_cache: Path, name: str | None, kept: int | None
) -> None:
    tower = Double(tmp_path / "notes")
    open_features(tower, items(range(200)), CPU)
    if name is not None:
        (file,) = empty_cache.rglob(name)
        file.unlink()
        if kept is not None:
            file.touch()
    grown = open_features(tower, items(range(100, 400)), CPU)
    again = [] if name is None else range(100, 200)
    assert tower.passes() == sorted([*range(400), *again])
    assert torch.equal(grown.take(np.arange(300))[:, 0], torch.arange(100.0, 400.0))


@pytest.mark.parametrize("key", ["digest", "versions", "precision"])
def test_another_tower_has_other_files(tmp_path: Path, key: str) -> None:
    tower, other = Double(tmp_path / "notes"), Double(tmp_path / "other")
    setattr(other, key, "float16" if key == "precision" else "new")
    open_features(tower, items(range(3)), CPU)
    found = open_features(other, items(range(3)), CPU)
    assert tower.passes() == other.passes() == [0, 1, 2]
    assert found.rows.dtype == other.precision and found.take(np.array([2])).tolist() == [[2.0, 4.0]]


def test_tokens_are_stored_with_their_lengths(tmp_path: Path) -> None:
    tower = Double(tmp_path / "notes", tokens=4)
    lengths = [1, 4, 2]
    found = open_features(tower, items([5, 6, 7], lengths=lambda: np.array(lengths)), CPU)
    assert found.rows.shape == (7, 2)
    for number, (value, length) in enumerate(zip([5, 6, 7], lengths, strict=True)):
        taken = found.take(np.array([number]))[0]
        assert torch.equal(taken[:length], torch.tensor([[value, 2.0 * value]]).expand(length, 2))
        assert not taken[length:].any()
    mean, _ = found.statistics()
    assert torch.allclose(mean, torch.tensor([(5 + 4 * 6 + 2 * 7) / 7, 2 * (5 + 4 * 6 + 2 * 7) / 7]))
    # the rows of a set of tokens are copied, too
    more = open_features(tower, items([7, 8], lengths=lambda: np.array([2, 3])), CPU)
    assert tower.passes() == [5, 6, 7, 8]
    assert torch.equal(more.take(np.array([0])), found.take(np.array([2])))


def test_statistics_leave_out_unusable_items_and_name_a_vector_that_is_not_finite(tmp_path: Path) -> None:
    found = open_features(Double(tmp_path / "notes"), items([1, 2, 3, 6], bad=[6]), CPU)
    mean, deviation = found.statistics()
    assert found.state.tolist() == [1, 1, 1, 2]
    assert torch.allclose(mean, torch.tensor([2.0, 4.0]))
    assert torch.allclose(deviation, torch.tensor([1.0, 2.0]) * (2 / 3) ** 0.5)
    rows = np.array(found.rows)
    rows[1, 0] = np.nan
    with pytest.raises(UserError, match="vector 1 "):
        replace(found, rows=rows).statistics()


class Means(Double):
    """A tower of width 2: the means of two channels."""

    inputs = Pixels(8, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest")

    def __call__(self, batch: Tensor, device: torch.device) -> Tensor:
        return batch.mean(dim=(2, 3))[:, :2]


def photographs(folder: Path) -> DataConfig:
    """Write two photographs with captions."""
    for number in range(2):
        Image.new("RGB", (8, 8), (100 * number, 0, 0)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text("a caption")
    return DataConfig(name="x", source="folder", root=str(folder), workers=0)


def test_one_of_several_processes_reads_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, tower, notes = photographs(tmp_path), Means(tmp_path / "notes"), tmp_path / "read"
    image_features(config, open_pair_source(config), tower)
    next((cache_home() / "frozen" / "contents").glob("*.npy")).unlink()

    def noted(data: bytes) -> int:
        time.sleep(0.05)
        with notes.open("a") as file:
            file.write("image\n")
        return content_of(data)

    monkeypatch.setattr("clipx.data.loading.features.content_of", noted)
    source = open_pair_source(config)
    processes = [fork.Process(target=image_features, args=(config, source, tower)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert notes.read_text().split() == ["image"] * 2


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EIO])
def test_an_image_that_can_be_read_again_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    config, tower = photographs(tmp_path), Means(tmp_path / "notes")
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "1.png":
            raise OSError(reason, os.strerror(reason), str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert os.strerror(reason) in image_features(config, open_pair_source(config), tower).errors[1]
    assert image_features(config, open_pair_source(config), tower).errors == {}


def killed_after(writes: int, notes: Path) -> None:
    """Embed, and kill this process before write number `writes`."""
    numbers, write = count(), features._write

    def counting(file: int, data: bytes, offset: int) -> None:
        if next(numbers) == writes:
            os.kill(os.getpid(), signal.SIGKILL)
        write(file, data, offset)

    features._write = counting
    open_features(Double(notes), items(range(150)), CPU)


def test_killed_at_twenty_moments_the_file_is_the_same_in_the_end(tmp_path: Path, empty_cache: Path) -> None:
    expected = np.array(open_features(Double(tmp_path / "all"), items(range(150)), CPU).rows)
    for moment in range(20):  # of 300 writes: of rows and of states, in two blocks
        shutil.rmtree(empty_cache / "frozen")
        child = fork.Process(target=killed_after, args=(15 * moment, tmp_path / "killed"))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        found = open_features(Double(tmp_path / "end"), items(range(150)), CPU)
        assert np.array_equal(found.rows, expected)
        assert found.state.all()


def test_processes_share_the_blocks_and_take_over_that_of_a_dead_one(tmp_path: Path) -> None:
    def embed(notes: Path, seconds: float) -> None:
        open_features(Double(notes, seconds=seconds), items(range(8 * features.BLOCK)), CPU)

    dead = fork.Process(target=embed, args=(tmp_path / "dead", 60.0))
    dead.start()
    while not (tmp_path / "dead").exists():
        time.sleep(0.01)
    alive = [fork.Process(target=embed, args=(tmp_path / f"alive{k}", 0.05)) for k in range(2)]
    for process in alive:
        process.start()
    time.sleep(0.3)
    dead.kill()
    for process in alive:
        process.join(timeout=60)
        assert process.exitcode == 0
    passes = [Double(tmp_path / f"alive{k}").passes() for k in range(2)]
    assert all(passes)
    assert sorted(passes[0] + passes[1]) == list(range(8 * features.BLOCK))


def test_features_that_do_not_fit_are_refused_with_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**20, 2**20 - 2**18, 2**18))
    with pytest.raises(UserError, match=r"data\.features=true.* 1 MiB .*only 0 MiB.*CLIPX_CACHE"):
        open_features(Double(tmp_path / "notes"), items(range(100_000)), CPU)


def test_a_disk_that_fills_up_is_named_and_the_blocks_so_far_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tower, write, numbers = Double(tmp_path / "notes"), os.pwrite, count()

    def full(*arguments: Any) -> int:
        if next(numbers) >= 300:
            raise OSError(28, "No space left on device")
        return write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(UserError, match=r"data\.features=true: .* No space left on device"):
            open_features(tower, items(range(300)), CPU)
    open_features(tower, items(range(300)), CPU)
    assert tower.passes() == sorted([*range(300), *range(128, 256)])
