"""Remote checkpoints: kept ones are uploaded, failures do not stop the run, and a lost run directory is restored."""

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
from clipx.errors import Fault, UserError
from clipx.run import checkpoint_manager, directory, uploader
from clipx.run.checkpoint import checkpoints, folder, verify
from clipx.run.checkpoint_manager import CheckpointManager
from clipx.run.remote import RemoteCheckpointStore, open_remote_store
from clipx.train import Outcome
from tests.helpers.folder import settings
from tests.helpers.runs import log, prepared, trained


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunConfig]:
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(uploader, pause, 0.01)
    run_config = prepared(tmp_path, samples=32, epochs=2, save_every=2)
    run_config.log.every, run_config.train.keep = 1, 1
    run_config.model.image.name, run_config.model.text.name = "small:conv", "small:bag"  # small checkpoints
    run_config.train.copy_to = f"memory://{uuid.uuid4()}/bucket"
    yield run_config
    fsspec.filesystem("memory").rm(run_config.train.copy_to, recursive=True)


def remote_checkpoints(config: RunConfig) -> list[str]:
    fs = fsspec.filesystem("memory")
    return sorted(Path(p).name for p in fs.ls(f"{config.train.copy_to}/test/s0/checkpoints", detail=False))


def test_a_lost_run_directory_is_restored_from_the_remote_copy(
    config: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config.train.keep_every = 4
    run = trained(config)
    assert remote_checkpoints(config) == ["step_00000004", "step_00000008"] == [p.name for p in checkpoints(run)]
    whole = load_file(run / "checkpoints/step_00000008/model.safetensors")

    fs = fsspec.filesystem("memory")  # make the copy of step 8 corrupt, and add an incomplete one of step 9
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000008/training.pt", b"x")
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000009/model.safetensors", b"x")
    shutil.rmtree(run)
    capsys.readouterr()
    trained(config)
    printed = capsys.readouterr().err
    assert "skipped:" in printed and "had no good checkpoint: restored the copy" in printed
    assert "resumed from" in printed and "step_00000004" in printed
    again = load_file(run / "checkpoints/step_00000008/model.safetensors")
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    assert [row["step"] for row in log(run)] == list(range(1, 9))

    shutil.rmtree(run)
    config.optimizer.lr = 0.5
    with pytest.raises(UserError, match=r"train.copy_to: .* other settings .optimizer.lr: 0.001 -> 0.5"):
        trained(config)


def test_a_failed_upload_is_logged_and_retried_without_stopping_the_run(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put = fsspec.filesystem("memory").put_file
    failures = iter(range(3))

    def fail(*arguments: Any, **options: Any) -> None:
        assert threading.current_thread().name == "uploader"
        if next(failures, None) is not None:
            raise OSError("the bucket does not answer")
        put(*arguments, **options)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", staticmethod(fail))
    trained(config)
    assert remote_checkpoints(config)[-1] == "step_00000008"
    assert capsys.readouterr().err.count("was not copied to") == 3

    failures = iter(range(10**6))  # now every upload fails; the run still finishes
    config.name = "other"
    trained(config)
    assert "step_00000008 was not copied to" in capsys.readouterr().err
    verify(checkpoints(directory.run_directory(config))[-1])


def test_an_unusable_url_is_named_before_the_run_starts(config: RunConfig) -> None:
    for url, message in (("nosuch://x", "nosuch"), ("s3://x", "Install s3fs")):
        config.train.copy_to = url
        with pytest.raises(UserError, match=f"train.copy_to={url} cannot be used: .*{message}"):
            open_remote_store(config, Path())
    config.train.copy_to = f"memory://{uuid.uuid4()}"
    fsspec.filesystem("memory").makedirs(config.train.copy_to)  # the fixture removes this folder


def test_a_finished_run_uploads_a_missing_checkpoint_once(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, url = fsspec.filesystem("memory"), config.train.copy_to
    config.train.copy_to, config.train.epochs = None, 1
    run = trained(config)
    config.train.copy_to = url
    names: list[str] = []
    put = fs.put_file

    def recorded(path: str, *arguments: Any, **options: Any) -> None:
        names.append(Path(path).name)
        put(path, *arguments, **options)

    monkeypatch.setattr(type(fs), "put_file", staticmethod(recorded))
    trained(config)  # only uploads
    assert remote_checkpoints(config) == ["step_00000004"] and "model.safetensors" in names
    for name in ("config.yaml", "log.jsonl", "environment.json"):
        assert fs.cat_file(f"{url}/test/s0/{name}") == (run / name).read_bytes(), name

    names.clear()
    (run / directory.OUTCOME).write_text("{}")
    store = open_remote_store(config, run)
    assert store
    store.upload(checkpoints(run)[-1])
    assert names == ["config.yaml", "log.jsonl", "environment.json", "outcome.json"]
    (run / directory.OUTCOME).unlink()  # as when the run is resumed
    store.upload(checkpoints(run)[-1])
    assert not fs.exists(f"{url}/test/s0/outcome.json")
    environment = (run / "environment.json").read_bytes()
    shutil.rmtree(run)
    assert store.restore() and (run / "environment.json").read_bytes() == environment


def test_an_older_local_run_continues_from_the_newer_remote_copy(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.train.keep_every = 4
    run = trained(config)
    older, newer = checkpoints(run)
    weights, rows = load_file(newer / "model.safetensors"), log(run)
    shutil.rmtree(newer)
    (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    store = open_remote_store(config, run)
    assert store
    directory.record_divergence(run, step=4, bad_steps=10)  # of the older run

    def failing(path: str) -> bytes:
        raise OSError("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(store.fs, "cat_file", lambda path: failing(path) if path.endswith("log.jsonl") else b"{}")
        with pytest.raises(Fault, match="cannot be read: no connection"):
            store.restore()
    assert checkpoints(run) == [older] and len(log(run)) == 4
    (line,) = store.restore()
    assert "no good checkpoint after step 4: restored the copy" in line and checkpoints(run) == [older, newer]
    assert directory.read_divergence(run) is None
    restored = load_file(newer / "model.safetensors")
    assert all(torch.equal(weights[k], restored[k]) for k in weights)
    assert log(run) == rows


@pytest.mark.parametrize("has_local", [True, False])
def test_a_run_does_not_start_without_reading_its_copies(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, has_local: bool
) -> None:
    """A run that started from an older checkpoint, or from none, would delete the newer copies."""
    run = trained(config)
    if not has_local:
        shutil.rmtree(run)
    store = open_remote_store(config, run)
    assert store

    def failing(path: str, **options: Any) -> list[str]:
        raise OSError("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(store.fs, "ls", failing)
        with pytest.raises(Fault, match=r"train.copy_to: .* cannot be read: no connection"):
            store.restore()
        with pytest.raises(OSError, match="no connection"):
            store.prune(folder(run, 8))
    assert remote_checkpoints(config) == ["step_00000008"]


def test_a_damaged_checkpoint_is_replaced_by_its_copy(config: RunConfig) -> None:
    config.train.keep_every = 4
    run = trained(config)
    older, newer = checkpoints(run)
    weights = (newer / "model.safetensors").read_bytes()
    (newer / "model.safetensors").write_bytes(b"x")
    store = open_remote_store(config, run)
    assert store is not None
    (line,) = store.restore()
    assert "no good checkpoint after step 4: restored the copy" in line and checkpoints(run) == [older, newer]
    assert (newer / "model.safetensors").read_bytes() == weights
    store.prune(newer)
    assert remote_checkpoints(config) == ["step_00000004", "step_00000008"]


def test_a_folder_of_this_machine_can_hold_the_copy(config: RunConfig, tmp_path: Path) -> None:
    fsspec.filesystem("memory").makedirs(config.train.copy_to)  # the fixture removes this folder
    url, config.train.copy_to = config.train.copy_to, f"file://{tmp_path}/copies"
    run = trained(config)
    config.train.copy_to = url
    assert (tmp_path / "copies/test/s0/config.yaml").read_bytes() == (run / "config.yaml").read_bytes()
    copied = verify(tmp_path / "copies/test/s0/checkpoints/step_00000008")
    assert copied == verify(run / "checkpoints/step_00000008")


def test_settings_are_uploaded_before_a_checkpoint(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    url, config.train.copy_to = config.train.copy_to, None
    run = trained(config)
    config.train.copy_to = url
    store = open_remote_store(config, run)
    assert store
    monkeypatch.setattr(store, "_upload_checkpoint", None)
    with pytest.raises(TypeError):
        store.upload(checkpoints(run)[-1])
    assert fsspec.filesystem("memory").cat_file(f"{url}/test/s0/config.yaml") == (run / "config.yaml").read_bytes()


def test_a_restored_run_that_diverged_stays_diverged(config: RunConfig) -> None:
    run = trained(config)
    store = open_remote_store(config, run)
    assert store
    directory.record_divergence(run, step=18, bad_steps=10)
    last = {"step": 18, "skipped": 10}
    with (run / "log.jsonl").open("a") as file:
        file.write(json.dumps(last) + "\n")
    store.upload(checkpoints(run)[-1])
    shutil.rmtree(run)

    def remote_log() -> str:
        return str(fsspec.filesystem("memory").cat_file(f"{config.train.copy_to}/test/s0/log.jsonl").decode())

    assert train.fit(config, directory.create(config)) is Outcome.DIVERGED
    assert log(run)[-1] == last and json.loads(remote_log().splitlines()[-1]) == last
    ended = directory.read_divergence(run)
    assert ended and "diverged at step 18" in ended.message(run)


class BlockedStore(RemoteCheckpointStore):
    """Completes uploads only once `released` is set."""

    def __init__(self) -> None:
        self.root = "blocked"
        self.released = threading.Event()
        self.uploaded: list[str] = []

    def upload(self, path: Path) -> None:
        """Wait for `released`."""
        assert self.released.wait(60)
        self.uploaded.append(path.name)

    def prune(self, newest: Path) -> None:
        """Keep all checkpoints."""


def manager_at_step_3(config: RunConfig, store: RemoteCheckpointStore) -> CheckpointManager:
    """Return the manager of a run that resumes from step 3."""
    run = directory.run_directory(config)
    folder(run, 3).mkdir(parents=True)
    return CheckpointManager(config, run, store, print, 3)


def test_ranks_wait_for_an_upload_in_short_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process group's timeout ends a run in which a rank waits for more than half an hour."""
    store, asked = BlockedStore(), list[float]()

    def all_reduce_max(value: float) -> float:
        asked.append(value)
        if len(asked) == 3:
            store.released.set()
        return value

    monkeypatch.setattr(checkpoint_manager, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(distributed, "all_reduce_max", all_reduce_max)
    with manager_at_step_3(settings(tmp_path), store):
        assert not store.uploaded
    assert asked[:3] == [1.0] * 3 and asked[-1] == 0.0
    assert store.uploaded == ["step_00000003"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_a_failed_run_does_not_wait_for_uploads(error: type[BaseException], tmp_path: Path) -> None:
    store = BlockedStore()
    with pytest.raises(error), manager_at_step_3(settings(tmp_path), store) as manager:
        manager.upload_newest()
        raise error
    assert not store.uploaded
    store.released.set()
    assert manager.uploader and manager.uploader.join(60) and store.uploaded == ["step_00000003"]
