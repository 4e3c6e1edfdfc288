"""data.cache=memory: same batches and weights as without it; processes share one copy and remove it at the end."""

import multiprocessing
import platform
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from PIL import Image

from clipx.config.schema import DataConfig, RunConfig, TrainConfig
from clipx.data.loading import cache
from clipx.data.preprocess.captions import Keywords
from clipx.data.preprocess.transforms import TrainTransform
from clipx.data.sources.base import PairSource
from clipx.data.sources.opening import open_pair_source
from clipx.errors import UserError
from clipx.run.folder import RunFolder
from clipx.train import Outcome, fit
from clipx.types import Batch
from clipx.utils import files
from tests.helpers import loading
from tests.helpers.annotation_files import write_table
from tests.helpers.folder import add, add_bad_samples, jpeg, settings, write_shards
from tests.helpers.runs import trained, weights

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    """Remove the cached captions of other tests, and the cached images of this test."""
    cache._captions.clear()
    yield
    cache._release()


def write_noise(folder: Path, samples: int) -> None:
    """Write pairs with random pixels, so that flips and crops of an image differ; the images have several sizes."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True)
    with tarfile.open(folder / "0.tar", "w") as tar:
        for i in range(samples):
            pixels = generator.integers(0, 256, (32 + 8 * (i % 3), 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "x.png")
            add(tar, f"{i:03d}.png", (folder / "x.png").read_bytes())
            add(tar, f"{i:03d}.txt", f"{i} objects".encode())
            add(tar, f"{i:03d}.json", f'{{"captions": ["{i} objects", "three {i}", "red {i}"]}}'.encode())


def load(root: Path, cache: str, workers: int = 0, start: int = 0, **changes: Any) -> list[tuple[Batch, list[str]]]:
    """Return the batches of two epochs from step `start` on, with the errors of their bad samples."""
    config = DataConfig(name="t", source="shards", root=str(root), cache=cache, workers=workers, max_bad_rate=1.0)
    config.keywords = ["three"]
    for key, value in changes.items():
        setattr(config, key, value)
    return loading.load(config, TrainConfig(epochs=2, batch_size=8), seed=5, start=start)


def assert_equal(first: list[tuple[Batch, list[str]]], second: list[tuple[Batch, list[str]]]) -> None:
    for (a, bad), (b, bad_too) in zip(first, second, strict=True):
        assert bad == bad_too
        assert a.group is None and b.group is None
        for name in ("sample_id", "image", "text", "label"):
            tensor, other = getattr(a, name), getattr(b, name)
            assert torch.equal(tensor, other) and tensor.dtype == other.dtype, name
            assert tensor.stride() == other.stride() or name != "image"


TRANSFORMS: list[dict[str, Any]] = [
    {"crop_scale": [1.0, 1.0], "flip": True, "captions": "random"},
    {"crop_scale": [0.3, 1.0], "flip": True, "captions": "random"},
    {"crop_scale": [1.0, 1.0], "rand_augment": [2, 9]},
]


@pytest.mark.parametrize("changes", TRANSFORMS, ids=str)
def test_batches_equal_those_from_the_source_in_the_cache_on_the_device_and_after_a_resume(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Bad samples are left out, with the same messages."""
    write_noise(tmp_path / "train", samples=21)
    add_bad_samples(tmp_path / "train")
    with tarfile.open(tmp_path / "train" / "texts.tar", "w") as tar:
        for i, text in enumerate(['["", "x"]', '"x"', "[]", "[" * 20_000 + "]" * 20_000]):
            add(tar, f"t{i}.jpg", jpeg("red"))
            add(tar, f"t{i}.json", f'{{"captions": {text}}}'.encode())
    expected = load(tmp_path, "none", **changes)
    assert any(bad for _, bad in expected)
    for kept, augment in (("memory", "workers"), ("none", "device"), ("memory", "device")):
        assert_equal(expected, load(tmp_path, kept, augment=augment, **changes))
    for kept, augment in (("memory", "workers"), ("memory" if changes.get("flip") else "none", "device")):
        assert_equal(expected[3:], load(tmp_path, kept, 2, start=3, augment=augment, **changes))


def test_filling_the_cache_may_take_longer_than_stall_seconds(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenize = cache._encode

    def slow(*given: Any) -> Any:
        time.sleep(0.8)
        return tokenize(*given)

    monkeypatch.setattr(cache, "_encode", slow)
    assert len(load(shards, "memory", stall_seconds=0.5)) == 4


def test_an_image_with_several_captions_is_kept_once(tmp_path: Path) -> None:
    config = write_table(tmp_path)
    pixels = cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
    assert len(pixels.sizes) == 6
    options: Any = {"source": "csv", "annotations": config.annotations, "split": ".", "captions": "each", "flip": True}
    assert_equal(load(tmp_path, "none", **options), load(tmp_path, "memory", **options))


def test_other_images_with_the_same_names_and_captions_are_not_confused(tmp_path: Path) -> None:
    found = []
    for size in (32, 48):
        (tmp_path / str(size)).mkdir()
        config = write_table(tmp_path / str(size))
        (tmp_path / str(size) / "red.jpg").write_bytes(jpeg("red", size))
        pixels = cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
        found.append(pixels.sizes.tolist())
    assert found[0] != found[1]


def run_config(root: Path, name: str, cache: str, workers: int) -> RunConfig:
    config = settings(root)
    config.name, config.data.cache, config.data.workers = name, cache, workers
    config.data.captions, config.data.flip, config.data.crop_scale = "random", True, [1.0, 1.0]
    config.model.image.name, config.model.text.name = "small:conv", "small:bag"
    config.train.epochs, config.train.samples = None, 48
    return config


def test_a_run_resumes_with_the_cache_and_device_augmentation_and_ends_with_equal_weights(tmp_path: Path) -> None:
    write_noise(tmp_path / "train", samples=21)
    whole, cut = run_config(tmp_path, "whole", "none", 0), run_config(tmp_path, "cut", "none", 1)
    trained(whole)
    cut.train.max_minutes = 1e-9  # stop after the first step
    for change in ({"cache": "memory"}, {"cache": "none", "augment": "device"}):
        assert fit(cut, RunFolder.create(cut).path) is Outcome.STOPPED
        cut.data = replace(cut.data, **change)  # type: ignore[arg-type]
    cut.train.max_minutes = None
    trained(cut)
    expected, found = (weights(RunFolder.of(config).path) for config in (whole, cut))
    assert [key for key in expected if not torch.equal(expected[key], found[key])] == []


def _use(config: DataConfig, opened: Any, leave: Any) -> None:
    """Keep the pixels open until the event `leave` is set."""
    cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
    opened.set()
    leave.wait(60)


@pytest.mark.parametrize("killed", [False, True])
def test_processes_share_the_pixels_and_the_last_one_removes_them_or_the_next_one_if_it_was_killed(
    shards: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    config = DataConfig(name="t", source="shards", root=str(shards), crop_scale=[1.0, 1.0])
    context = multiprocessing.get_context("fork")
    opened, leave = context.Event(), context.Event()
    other = context.Process(target=_use, args=(config, opened, leave))
    other.start()
    assert opened.wait(60)
    there = list(cache.pixels_home().iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_write", None)  # decoding again would fail
        cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
    cache._release()
    assert list(cache.pixels_home().iterdir()) == there
    if killed:
        other.kill()
    else:
        leave.set()
    other.join(60)
    assert list(cache.pixels_home().iterdir()) == (there if killed else [])
    config.crop_scale = [0.5, 1.0]
    cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
    (left,) = cache.pixels_home().iterdir()
    assert left not in there


def test_machines_that_share_the_cache_folder_do_not_wait_for_each_other(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(name="t", source="shards", root=str(shards), crop_scale=[1.0, 1.0])
    held = MagicMock(wraps=files.lock)
    monkeypatch.setattr(cache, "lock", held)
    locks = []
    for machine in ("node0", "node1"):
        monkeypatch.setattr(platform, "node", lambda name=machine: name)
        cache.open_pixels(open_pair_source(config), TrainTransform(config, loading.inputs()))
        cache._release()
        locks.append({call.args for call in held.call_args_list})
        held.reset_mock()
    assert all(locks) and locks[0].isdisjoint(locks[1])


def test_the_second_run_of_a_process_decodes_and_tokenizes_nothing(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(shards, "memory")
    squares = load(shards, "memory", crop_scale=[1.0, 1.0])  # not confused with whole images
    assert_equal(squares, load(shards, "none", crop_scale=[1.0, 1.0]))
    monkeypatch.setattr(cache, "_write", None)
    monkeypatch.setattr(cache, "_encode", None)
    assert_equal(first, load(shards, "memory"))


def test_captions_in_memory_are_kept_apart_by_the_settings_that_choose_them() -> None:
    source, found = MagicMock(PairSource, fingerprint="1:x"), []
    source.__len__.return_value, source.captions.return_value = 1, ["one", "two", "three"]
    source.negative.return_value = "four"
    for captions, negatives in (("first", False), ("random", False), ("random", True)):
        source.draws_caption = captions == "random"
        kept = cache.open_captions(source, loading.inputs(), loading.tokenize, Keywords([], False), negatives)
        found.append((len(kept.label), kept.negative is not None))
    assert found == [(1, False), (3, False), (3, True)]


def test_images_larger_than_the_free_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "train", samples=400)
    monkeypatch.setattr("clipx.utils.device.free_memory", lambda device: 2**20)
    for low, needed in ((1.0, 1), (0.5, 3)):  # MiB: squares of 32 x 32 pixels, or whole images of 48 x 48
        message = rf"data\.cache=memory with 400 decoded images needs {needed} MiB, but only 1 MiB of memory"
        with pytest.raises(UserError, match=message):
            load(tmp_path, "memory", crop_scale=[low, 1.0])
        assert list(cache.pixels_home().iterdir()) == []
