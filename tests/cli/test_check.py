"""`clipx check` does a step and tries a few samples of the data, whatever the settings of training."""

import math
from pathlib import Path

import pytest

from cli.settings.compose import compose_run
from clipx.data.preprocess.transforms import TrainTransform
from clipx.training.loader_rate import images_per_s
from clipx.training.setup import TrainComponents
from clipx.types import Pixels, Progress
from tests.helpers.commands import clipx_here, tiny
from tests.helpers.folder import write_shards


@pytest.mark.slow
def test_a_step_is_done_and_a_few_samples_are_decoded_without_filling_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "shards/train", samples=32)
    monkeypatch.setattr("clipx.data.loading.cache.open_pixels", None)  # a call would fail
    done = clipx_here("check", *tiny(tmp_path / "shards"), "data.cache=memory", cwd=tmp_path)
    assert "image tower   0.19 M parameters" in done.stdout
    assert "32 pairs, 16 decoded, shards\n" in done.stdout and "for a step" in done.stdout
    assert not (tmp_path / "runs").exists()
    large = ["train.batch_size=64", "train.samples=64", "data.held_out=0.5"]
    done = clipx_here("check", *tiny(tmp_path / "shards")[:4], *large, cwd=tmp_path, code=2)
    assert "cannot use data: train.batch_size=64 is larger than the 16 samples to train on" in done.stderr


def test_a_loss_that_is_not_finite_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "shards/train", samples=32)
    monkeypatch.setattr("cli.check.timed_step", lambda *of: (math.nan, 1.0))
    failed = clipx_here("check", *tiny(tmp_path / "shards"), cwd=tmp_path, code=2)
    assert "the loss of a step on" in failed.stderr and "is nan" in failed.stderr


@pytest.mark.parametrize("batch_size", [8, 16])
def test_the_pairs_of_a_step_are_not_as_many_as_the_embeddings_are_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    write_shards(tmp_path / "shards/train", samples=32)
    pairs = list[int]()

    def step(components: TrainComponents, progress: Progress) -> tuple[float, float]:
        pairs.append(components.config.train.batch_size)
        return 1.0, 1.0

    monkeypatch.setattr("cli.check.timed_step", step)
    sizes = [f"train.batch_size={batch_size}", "train.samples=64", "model.embed_dim=16"]
    clipx_here("check", *tiny(tmp_path / "shards")[:4], *sizes, cwd=tmp_path)
    assert pairs == [{8: 8, 16: 14}[batch_size]] * 2


def test_a_forecast_says_how_many_cores_the_loaders_need_and_what_too_few_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["check", "recipe=demo", "data=shards", "data.root=x", "train.samples=64000", "device=H100"]
    monkeypatch.setattr("clipx.training.loader_rate.images_per_s", lambda *of: 1e9)
    fast = clipx_here(*command, cwd=tmp_path).stdout
    assert "data.augment=workers): 1 core for each GPU" in fast and "loaders" not in fast
    monkeypatch.setattr("clipx.training.loader_rate.images_per_s", lambda *of: 10.0)
    slow = clipx_here(*command, "data.workers=2", cwd=tmp_path).stdout
    # 64,000 images at 20 a second
    assert "slower than the GPUs (cores for each: 2): " in slow and " steps, 53 min 20 s, 0.9 GPU-hours" in slow
    assert slow.endswith(
        "data.augment=device, data.cache=memory, data.decode=fast, more cores, smaller stored images\n"
    )
    reduced = clipx_here(*command, "data.workers=2", "data.decode=fast", cwd=tmp_path).stdout
    assert reduced.endswith("use more cores, smaller stored images\n")
    scenes = clipx_here("check", "recipe=demo", "device=H100", "train.processes=4", cwd=tmp_path).stdout
    assert scenes.startswith("forecast      4 x H100")
    assert "decoding" not in scenes, "scenes are cached"


def test_the_preparation_of_a_photograph_is_timed() -> None:
    config = compose_run(["recipe=demo"])
    inputs = Pixels(32, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest")
    assert 0 < images_per_s(TrainTransform(config.data, inputs), (640, 480), cached=False) < 1e5
