"""The second place: it gets every checkpoint that stays, a failing one stops nothing, and a run comes back from it."""

import json
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from safetensors.torch import load_file

from clipx import distributed, train
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from clipx.run import checkpoint_manager, directory, uploader
from clipx.run.checkpoint import checkpoints, folder, verify
from clipx.run.checkpoint_manager import CheckpointManager
from clipx.run.remote import RemoteCheckpointStore, open_remote_store
from tests.helpers.folder import settings, write_shards


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunConfig]:
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(uploader, pause, 0.01)
    write_shards(tmp_path / "train", samples=32)
    made = settings(tmp_path, epochs=2, save_every=2)
    made.log.every, made.train.keep = 1, 1
    made.train.copy_to = f"memory://{uuid.uuid4()}/bucket"
    yield made
    fsspec.filesystem("memory").rm(made.train.copy_to, recursive=True)


def there(config: RunConfig) -> list[str]:
    fs = fsspec.filesystem("memory")
    return sorted(Path(p).name for p in fs.ls(f"{config.train.copy_to}/test/s0/checkpoints", detail=False))


def test_a_run_whose_directory_is_lost_goes_on_from_the_copy(
    config: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config.train.keep_every = 4
    run = directory.claim(config)
    assert train.fit(config, run)
    assert there(config) == ["step_00000004", "step_00000008"] == [p.name for p in checkpoints(run)]
    whole = load_file(run / "checkpoints/step_00000008/model.safetensors")

    fs = fsspec.filesystem("memory")  # the newest copy is damaged, one is incomplete
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000008/training.pt", b"x")
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000009/model.safetensors", b"x")
    shutil.rmtree(run)
    capsys.readouterr()
    assert train.fit(config, directory.claim(config))
    said = capsys.readouterr().err
    assert "passed over:" in said and "had no checkpoint: took the copy" in said
    assert "resumed from" in said and "step_00000004" in said
    again = load_file(run / "checkpoints/step_00000008/model.safetensors")
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()] == list(range(1, 9))

    shutil.rmtree(run)
    config.optimizer.lr = 0.5
    with pytest.raises(UserError, match=r"train.copy_to: .* other settings .optimizer.lr: 0.001 -> 0.5"):
        train.fit(config, directory.claim(config))


def test_a_failing_copy_is_said_and_tried_again_and_stops_nothing(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put = fsspec.filesystem("memory").put_file
    failures = iter(range(3))

    def fail(*arguments: Any, **options: Any) -> None:
        assert threading.current_thread().name == "copies"
        if next(failures, None) is not None:
            raise OSError("the bucket is away")
        put(*arguments, **options)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", staticmethod(fail))
    run = directory.claim(config)
    assert train.fit(config, run)
    assert there(config)[-1] == "step_00000008"
    assert capsys.readouterr().err.count("was not copied to") == 3

    failures = iter(range(10**6))  # for ever: the run ends all the same
    config.name = "other"
    assert train.fit(config, directory.claim(config))
    assert "step_00000008 was not copied to" in capsys.readouterr().err
    verify(checkpoints(directory.directory(config))[-1])


def test_an_unusable_url_is_named_before_the_run_starts(config: RunConfig) -> None:
    for url, message in (("nosuch://x", "nosuch"), ("s3://x", "Install s3fs")):
        config.train.copy_to = url
        with pytest.raises(UserError, match=f"train.copy_to={url} cannot be used: .*{message}"):
            open_remote_store(config, Path())
    config.train.copy_to = f"memory://{uuid.uuid4()}"
    fsspec.filesystem("memory").makedirs(config.train.copy_to)


def test_what_was_left_undone_is_copied_by_the_same_command_and_once(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, url = fsspec.filesystem("memory"), config.train.copy_to
    config.train.copy_to, config.train.epochs = None, 1
    run = directory.claim(config)
    assert train.fit(config, run)
    config.train.copy_to = url
    names: list[str] = []
    put = fs.put_file

    def noted(place: str, *arguments: Any, **options: Any) -> None:
        names.append(Path(place).name)
        put(place, *arguments, **options)

    monkeypatch.setattr(type(fs), "put_file", staticmethod(noted))
    assert train.fit(config, directory.claim(config))  # is done, and copied only now
    assert there(config) == ["step_00000004"] and "model.safetensors" in names
    for name in ("config.yaml", "log.jsonl", "environment.json"):
        assert fs.cat_file(f"{url}/test/s0/{name}") == (run / name).read_bytes(), name

    names.clear()
    (run / directory.OUTCOME).write_text("{}")
    place = open_remote_store(config, run)
    assert place
    place.put(checkpoints(run)[-1])
    assert names == ["config.yaml", "log.jsonl", "environment.json", "outcome.json"]
    (run / directory.OUTCOME).unlink()  # the run goes on
    place.put(checkpoints(run)[-1])
    assert not fs.exists(f"{url}/test/s0/outcome.json")
    environment = (run / "environment.json").read_bytes()
    shutil.rmtree(run)
    assert place.restore() and (run / "environment.json").read_bytes() == environment


def test_a_run_that_diverged_comes_back_as_such(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    run = directory.claim(config)
    assert train.fit(config, run)
    place = open_remote_store(config, run)
    assert place
    directory.end_diverged(run, step=8, bad_steps=10)
    place.put(checkpoints(run)[-1])
    shutil.rmtree(run)
    capsys.readouterr()
    assert train.fit(config, directory.claim(config))
    assert "diverged at step 8" in " ".join(capsys.readouterr().err.split())
    assert directory.diverged(run) is not None


class Slow(RemoteCheckpointStore):
    """Takes checkpoints only when it is let."""

    def __init__(self) -> None:
        self.root = "slow"
        self.let = threading.Event()
        self.has: list[str] = []

    def put(self, checkpoint: Path) -> None:
        """Not before it is let."""
        assert self.let.wait(60)
        self.has.append(checkpoint.name)


def saver_of(config: RunConfig, place: RemoteCheckpointStore) -> CheckpointManager:
    """Of a run that stands at step 3."""
    run = directory.directory(config)
    folder(run, 3).mkdir(parents=True)
    return CheckpointManager(config, run, place, print, 3)


def test_no_rank_waits_in_one_go_for_a_whole_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process group ends a run whose ranks wait longer than half an hour."""
    place, asked = Slow(), list[float]()

    def max_of(value: float) -> float:
        asked.append(value)
        if len(asked) == 3:
            place.let.set()
        return value

    monkeypatch.setattr(checkpoint_manager, "POLL", 0.01)
    monkeypatch.setattr(distributed, "all_reduce_max", max_of)
    with saver_of(settings(tmp_path), place):
        assert not place.has
    assert asked[:3] == [1.0] * 3 and asked[-1] == 0.0
    assert place.has == ["step_00000003"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_a_run_that_is_broken_off_does_not_wait_for_copies(error: type[BaseException], tmp_path: Path) -> None:
    place = Slow()
    with pytest.raises(error), saver_of(settings(tmp_path), place) as saver:
        next(saver.copying(iter([0])))
        raise error
    assert not place.has
    place.let.set()
    assert saver.copies and saver.copies.ended(60) and place.has == ["step_00000003"]
