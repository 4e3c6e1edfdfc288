"""Checkpoints restore what was saved, are verified before use and execute no code; the steps decide which are kept."""

import errno
import hashlib
import json
import os
import pickle
import resource
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save
from torch import nn

from clipx.errors import Fault, UserError
from clipx.run.checkpoint import (
    TRAINING,
    checkpoints,
    file_sha256,
    load_weights,
    progress_of,
    remove_leftovers,
    resolve,
    run_of,
    step_of,
    verify,
)
from clipx.run.saving import CheckpointManager, HashedFile, Snapshot, TrainState, resume, write_tensors
from tests.helpers import tiny
from tests.helpers.folder import settings
from tests.helpers.runs import prepared, trained

WEIGHT = "image.stem.0.weight"


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def state(seed: int = 0, data: str = "10:aa", tower: str = "resnet") -> TrainState:
    """Return the state of a run of one step."""
    config = tiny.settings({"clip": {}})
    config.seed = seed
    run = tiny.components(config, tower)
    tiny.train(run, 1)
    run.state.data_fingerprint = data
    return run.state


def failing(number: int) -> Mock:
    return Mock(side_effect=OSError(number, os.strerror(number)))


def replace_file(checkpoint: Path, name: str, data: bytes, fix_manifest: bool) -> None:
    (checkpoint / name).write_bytes(data)
    if fix_manifest:
        manifest = json.loads((checkpoint / "checkpoint.json").read_text())
        manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
        (checkpoint / "checkpoint.json").write_text(json.dumps(manifest))


def test_tensors_are_written_as_by_safetensors_and_hashed(tmp_path: Path) -> None:
    tensors = {
        "conv": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "count": torch.tensor(7),
        "half": torch.randn(5).bfloat16(),
        "mask é": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 3),
        "scale": torch.tensor(0.5),
    }
    with (tmp_path / "file").open("wb") as file:
        write_tensors(hashed := HashedFile(file), tensors)
    assert (tmp_path / "file").read_bytes() == save({name: tensor.contiguous() for name, tensor in tensors.items()})
    assert hashed.sha256.hexdigest() == file_sha256(tmp_path / "file")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Let no checkpoint be written before this event is set."""
    gate, write = Event(), Snapshot.write
    monkeypatch.setattr(Snapshot, "write", lambda snapshot, run: gate.wait(60) and write(snapshot, run))
    yield gate
    gate.set()


def test_training_goes_on_while_a_thread_writes_what_was_there_at_the_call(tmp_path: Path, gate: Event) -> None:
    saved, loaded = state(0), state(1)
    manager, buffers = CheckpointManager(settings(tmp_path), tmp_path), set()
    for saved.step in (5, 10):  # the second time into the same buffers
        gate.clear()
        weight = saved.model.get_parameter(WEIGHT).detach().clone()
        moment = saved.optimizer.state_dict()["state"][0]["exp_avg"].clone()
        lr = saved.optimizer.param_groups[0]["lr"]
        manager.save(saved, {}, finished=False, background=True)
        assert step_of(checkpoints(tmp_path)[-1]) < saved.step if saved.step > 5 else not checkpoints(tmp_path)
        saved.optimizer.param_groups[0]["lr"] = lr / 2
        saved.optimizer.step()
        gate.set()
        manager.wait()
        resume(loaded, tmp_path)
        assert loaded.step == saved.step
        assert torch.equal(loaded.model.get_parameter(WEIGHT), weight)
        assert not torch.equal(saved.model.get_parameter(WEIGHT), weight)
        assert torch.equal(loaded.optimizer.state_dict()["state"][0]["exp_avg"], moment)
        buffers.add(len(manager._copies._buffers))
        assert loaded.optimizer.param_groups[0]["lr"] == lr
    assert len(buffers) == 1, "each checkpoint takes more memory"


@pytest.mark.parametrize("background", [True, False])
def test_after_a_failed_checkpoint_the_next_one_is_written_at_once_or_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], background: bool
) -> None:
    saved, manager = state(), CheckpointManager(settings(tmp_path), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("clipx.run.saving.write_tensors", failing(errno.ENOSPC))
        saved.step = 5
        manager.save(saved, {}, finished=False, background=True)
        saved.step = 10
        with pytest.raises(UserError, match=r"step_00000010 could not be written .*No space left"):
            manager.save(saved, {}, finished=False, background=background)
        saved.step = 15
        manager.save(saved, {}, finished=False, background=True)
        assert manager.thread.submit(bool).result() is False, "the thread has tried"
    saved.step = 20
    manager.save(saved, {}, finished=False, background=background)
    assert [path.name for path in checkpoints(tmp_path)] == ["step_00000020"]
    assert "step_00000015 could not be written" in capsys.readouterr().err


def test_a_checkpoint_that_is_being_written_counts_for_the_best(tmp_path: Path, gate: Event) -> None:
    config, saved = settings(tmp_path), state()
    config.train.keep_best, config.log.geometry_every = "min:loss", 3
    manager = CheckpointManager(config, tmp_path)
    saved.step = 6
    manager.save(saved, {"loss": 1.0}, finished=False, background=True)
    assert [manager.due(9, {"loss": loss}) for loss in (2.0, 0.5)] == [False, True]


def test_a_later_corrupt_checkpoint_does_not_count_for_the_best(tmp_path: Path) -> None:
    """A run that has resumed from the checkpoint before it has not yet removed it."""
    config, saved = settings(tmp_path), state()
    config.train.keep_best, config.log.geometry_every = "min:loss", 3
    for saved.step, loss in ((6, 2.0), (12, 0.5)):
        path = saved.save(tmp_path, {"loss": loss})
    os.truncate(path / "training.pt", 100)
    assert CheckpointManager(config, tmp_path).due(9, {"loss": 1.0})


def test_a_checkpoint_that_could_not_be_written_does_not_count_for_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, saved = settings(tmp_path), state()
    config.train.keep_best, config.log.geometry_every = "min:loss", 3
    manager = CheckpointManager(config, tmp_path)
    monkeypatch.setattr(Snapshot, "write", Mock(side_effect=UserError("full")))
    saved.step = 6
    manager.save(saved, {"loss": 1.0}, finished=False, background=True)
    manager.thread.shutdown()
    assert manager.due(9, {"loss": 2.0})


def test_moments_in_another_order_are_stored_like_their_weights(tmp_path: Path) -> None:
    """A fused optimizer pairs the values of weights and moments as they lie in memory."""
    saved = state()
    path = saved.save(tmp_path)
    training = torch.load(path / TRAINING, weights_only=True)
    for moments in training["optimizer"]["state"].values():
        moments |= {name: value.contiguous() for name, value in moments.items()}  # as 0.1 wrote them with fsdp
    torch.save(training, path / TRAINING)
    saved.load(path)
    found = [(weight, moments["exp_avg"]) for weight, moments in saved.optimizer.state.items() if weight.ndim == 4]
    assert found and all(weight.stride() == moment.stride() for weight, moment in found)


def test_a_schedule_of_tau_needs_the_number_of_pairs_in_the_manifest(tmp_path: Path) -> None:
    config = settings(tmp_path)
    config.temperature.kind = "cosine"
    path = state(data="aa").save(tmp_path)
    with pytest.raises(UserError, match=r"checkpoint.json: data=aa has no number of pairs"):
        progress_of(path, config)


def test_cleaning_up_deletes_unfinished_checkpoints_and_no_other_files(tmp_path: Path) -> None:
    """The other files here are a user's backups and notes, some with names that resemble those of checkpoints."""
    saved = state()
    saved.step = 5
    saved.save(tmp_path)
    folder = tmp_path / "checkpoints"
    for name in ("step_00000400.bak", "step_old", ".step_mine", ".step_00000007.x1y2"):
        (folder / name).mkdir()
    for name in ("step_notes.txt", "step_00000900"):
        (folder / name).write_text("mine")
    saved.step = 10
    saved.save(tmp_path)
    remove_leftovers(tmp_path, step=10)
    assert [path.name for path in checkpoints(tmp_path)] == ["step_00000005", "step_00000010"]
    others = {"step_00000400.bak", "step_old", ".step_mine", "step_notes.txt", "step_00000900"}
    assert {path.name for path in folder.iterdir()} == {"step_00000005", "step_00000010"} | others


def keep_in_use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the removal of a folder fail as on NFS, where a file that is read leaves a hidden one in its folder."""
    rmdir = os.rmdir

    def refuse(path: Any, **options: Any) -> None:
        if os.fspath(path).endswith(name):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", refuse)


def test_a_corrupt_checkpoint_that_is_in_use_takes_the_place_of_no_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, manager = state(), CheckpointManager(settings(tmp_path), tmp_path)
    (tmp_path / "checkpoints" / "step_00000030").mkdir(parents=True)
    keep_in_use(monkeypatch, "step_00000030")
    for saved.step in (5, 10, 15):
        manager.save(saved, {}, finished=False)
    assert [step_of(path) for path in checkpoints(tmp_path)] == [10, 15, 30]


def test_a_checkpoint_that_cannot_be_removed_yet_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, manager = state(), CheckpointManager(settings(tmp_path), tmp_path)
    with monkeypatch.context() as patch:
        keep_in_use(patch, "step_00000005")
        for saved.step in (5, 10, 15, 20):
            manager.save(saved, {}, finished=False, background=True)
        manager.wait()
        assert [step_of(path) for path in checkpoints(tmp_path)] == [5, 15, 20]
        assert resume(state(1), tmp_path) == [f"resumed from {tmp_path}/checkpoints/step_00000020"]
    saved.step = 25
    manager.save(saved, {}, finished=True)
    assert [step_of(path) for path in checkpoints(tmp_path)] == [20, 25]


@pytest.mark.parametrize("read", ["os.scandir", "pathlib.Path.read_text", "clipx.run.checkpoint.file_sha256"])
def test_a_checkpoint_on_a_failing_drive_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """A run that resumed from an older checkpoint, or from none, would delete the good one."""
    state().save(tmp_path)
    monkeypatch.setattr(read, failing(errno.ESTALE))
    with pytest.raises((Fault, OSError), match=os.strerror(errno.ESTALE)):
        resume(state(1), tmp_path)


def test_corrupt_later_checkpoints_are_replaced_or_deleted_by_the_resumed_run(tmp_path: Path) -> None:
    saved = state()
    for saved.step in (5, 10, 15):
        saved.save(tmp_path)
    folder = tmp_path / "checkpoints"
    corrupt = [folder / "step_00000015/training.pt", folder / "step_00000010/model.safetensors"]
    for file in corrupt:
        os.truncate(file, 100)
    loaded = state(1)
    notes = resume(loaded, tmp_path)
    assert len(notes) == 3 and all(f"{file} is corrupt" in note for file, note in zip(corrupt, notes, strict=False))
    assert loaded.step == 5 and all(file.exists() for file in corrupt)
    loaded.step = 10
    verify(loaded.save(tmp_path))  # replaces the corrupt checkpoint of step 10
    remove_leftovers(tmp_path, step=10)
    assert [p.name for p in checkpoints(tmp_path)] == ["step_00000005", "step_00000010"]


def test_a_full_disk_raises_user_error_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    saved = state()
    large = nn.Linear(300, 300)
    saved.model.add_module("large", large)
    saved.optimizer.add_param_group({"params": list(large.parameters())})
    large(torch.randn(1, 300)).sum().backward()
    saved.optimizer.step()
    saved.step = 5
    good = saved.save(tmp_path)
    saved.step = 10
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for size in (100_000, 500_000):  # too small for the weights; too small for the optimizer's state
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(UserError) as raised:
                saved.save(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert "step_00000010 could not be written (" in str(raised.value)
        assert f"the last good checkpoint is {good}: make room" in str(raised.value)
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_00000005"]
    verify(good)


def test_a_disk_without_room_for_the_folder_of_checkpoints_is_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", failing(errno.EDQUOT))
    with pytest.raises(UserError, match=r"could not be written \(.*quota.*; there is no earlier checkpoint"):
        state().save(tmp_path)


def test_only_disk_errors_become_user_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clipx.run.saving.write_tensors", Mock(side_effect=RuntimeError("CUDA error")))
    with pytest.raises(RuntimeError, match="CUDA error"):
        state().save(tmp_path)


def test_a_run_without_a_good_checkpoint_is_refused_and_not_overwritten(tmp_path: Path) -> None:
    saved = state()
    path = saved.save(tmp_path)
    (path / "checkpoint.json").write_text("{")
    with pytest.raises(UserError, match="has no good checkpoint"):
        resume(state(1), tmp_path)
    assert (path / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "training.pt"])
@pytest.mark.parametrize("fix_manifest", [False, True])
def test_a_file_replaced_by_a_pickle_is_refused_and_not_executed(tmp_path: Path, name: str, fix_manifest: bool) -> None:
    path = state().save(tmp_path)
    for data in (pickle.dumps(Bomb(tmp_path / "executed")), torch_pickle(tmp_path)):
        replace_file(path, name, data, fix_manifest)
        with pytest.raises(UserError, match=name):
            state(1).load(path)
        assert not (tmp_path / "executed").exists()


def torch_pickle(folder: Path) -> bytes:
    torch.save({"optimizer": Bomb(folder / "executed")}, folder / "bomb.pt")
    return (folder / "bomb.pt").read_bytes()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = state().save(tmp_path)
    with pytest.raises(UserError, match=r"is of another model: \S+ has shape .* in this run"):
        load_weights(state(tower="plain").model, path)


def test_resolve_names_what_is_there_instead_of_a_checkpoint(tmp_path: Path) -> None:
    path = state().save(tmp_path / "run")
    assert resolve(path) == path
    (path / "checkpoint.json").unlink()
    (tmp_path / "file").write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    (tmp_path / "folder").mkdir()
    for given, message in (
        (path, rf"^checkpoint={path} is no complete checkpoint: it has no checkpoint.json"),
        (tmp_path / "nothing", "is missing: give a run directory"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "folder", "is a folder without checkpoints"),
        (tmp_path, f"give a run directory, such as {tmp_path}/run, or its"),
    ):
        with pytest.raises(UserError, match=message):
            resolve(given)


def test_a_checkpoint_with_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = state().save(tmp_path)
    (path / "training.pt").unlink()
    with pytest.raises(UserError, match=r"training.pt is missing"):
        verify(path)


def test_the_last_every_nth_and_the_best_are_kept() -> None:
    config = settings(Path())
    config.train.save_every, config.train.keep, config.train.keep_every = 10, 2, 40
    config.train.keep_best, config.log.geometry_every = "min:loss", 5
    manager = CheckpointManager(config, Path("nowhere"))
    assert [step for step in range(1, 45) if manager.due(step, {})] == [10, 20, 30, 40]
    losses = {15: 2.0, 35: 1.5, 45: float("nan"), 95: 1.5}
    found = {step: {"loss": losses[step]} if step in losses else {} for step in (*range(10, 100, 10), *losses)}
    assert manager.retained(found) == {35, 40, 80, 90, 95}  # 35: the first of equal values
    config.train.keep_best = "max:loss"
    assert CheckpointManager(config, Path()).retained(found) == {15, 40, 80, 90, 95}
    config.train.keep, config.train.keep_best, config.train.keep_every = 1, None, None
    assert CheckpointManager(config, Path()).retained(found) == {95}


@pytest.mark.parametrize(
    ("value", "every", "message"),
    [
        ("min:los", 5, "keep_best=min:los must be min:METRIC or max:METRIC; metrics: alignment, gap, loss"),
        ("min:loss", 0, "keep_best=min:loss must be measured: set log.geometry_every"),
    ],
)
def test_an_unknown_or_unmeasured_metric_is_refused(value: str, every: int, message: str) -> None:
    config = settings(Path())
    config.train.keep_best, config.log.geometry_every = value, every
    with pytest.raises(UserError, match=message):
        CheckpointManager(config, Path())


def test_the_best_checkpoint_is_saved_and_kept_if_no_other_rule_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(tmp_path, samples=48, epochs=2, save_every=5)
    config.model.image.name, config.train.keep, config.train.keep_best = "small:conv", 1, "min:loss"
    config.log.geometry_every, config.data.held_out = 3, 0.3
    losses = {0: 9.0, 3: 2.0, 6: 1.0, 9: 3.0}  # during the eight steps, 3 and 6 are measured
    monkeypatch.setattr(
        "clipx.train.GeometryProbe",
        lambda *_: lambda step, *_: {} if step % 3 else {"loss": losses[step]},
    )
    run = trained(config)
    assert [step_of(path) for path in checkpoints(run)] == [6, 8]
    assert resolve(run / "checkpoints" / "best") == run / "checkpoints" / "step_00000006"
    assert resolve(run).name == "step_00000008"


def test_checkpoints_are_ordered_by_step_and_not_by_file_time(tmp_path: Path) -> None:
    for age, name in enumerate(("step_99999999", "step_100000000", "step_00000010")):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        os.utime(tmp_path / "checkpoints" / name, (age, age))
    assert [step_of(path) for path in checkpoints(tmp_path)] == [10, 99999999, 100000000]


def test_only_rank_0_reads_checkpoints_to_find_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If rank 0 deletes a checkpoint while another machine reads it, the read fails with ESTALE."""
    config = settings(tmp_path)
    config.train.keep_best, config.log.geometry_every = "min:loss", 3
    state().save(tmp_path)
    monkeypatch.setattr("clipx.distributed.rank", lambda: 1)
    monkeypatch.setattr("clipx.distributed.max_over_ranks", lambda best: [1.0])
    monkeypatch.delattr("clipx.run.checkpoint.read_metrics")
    assert CheckpointManager(config, tmp_path).due(9, {})


def test_a_checkpoint_is_found_from_within_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = state().save(tmp_path)
    for place, given in ((path.parent, path.name), (path, ".")):
        monkeypatch.chdir(place)
        assert run_of(resolve(Path(given))) == tmp_path
