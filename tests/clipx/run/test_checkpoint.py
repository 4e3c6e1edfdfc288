"""Checkpoints: what comes back is what was saved, and nothing in them is executed or believed unchecked."""

import hashlib
import json
import os
import pickle
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from clipx.errors import UserError
from clipx.run.checkpoint import TrainState, checkpoints, digest, load_weights, resolve, resume, verify


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def state(seed: int = 0, data: str = "10:aa") -> TrainState:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    return TrainState(model, optimizer, data)


def replace_file(checkpoint: Path, name: str, data: bytes, fix_manifest: bool) -> None:
    (checkpoint / name).write_bytes(data)
    if fix_manifest:
        manifest = json.loads((checkpoint / "checkpoint.json").read_text())
        manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
        (checkpoint / "checkpoint.json").write_text(json.dumps(manifest))


def test_everything_comes_back(tmp_path: Path) -> None:
    saved = state(0)
    saved.step = 7
    saved.save(tmp_path)
    loaded = state(1)
    assert resume(loaded, tmp_path) == [f"resumed from {tmp_path}/checkpoints/step_00000007"]
    assert loaded.step == 7
    for a, b in zip(saved.model.state_dict().values(), loaded.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    old, new = saved.optimizer.state_dict(), loaded.optimizer.state_dict()
    assert old["param_groups"] == new["param_groups"]
    assert all(torch.equal(old["state"][i][k], new["state"][i][k]) for i in old["state"] for k in old["state"][i])


def test_a_checkpoint_of_an_older_version_with_a_random_state_loads(tmp_path: Path) -> None:
    path = state().save(tmp_path)
    training = torch.load(path / "training.pt", weights_only=True)
    random = {"cpu": torch.get_rng_state(), "cuda": []}
    torch.save({**training, "random": random}, tmp_path / "old.pt")
    replace_file(path, "training.pt", (tmp_path / "old.pt").read_bytes(), fix_manifest=True)
    loaded = state(1)
    assert resume(loaded, tmp_path)
    assert loaded.optimizer.state_dict()["state"].keys() == training["optimizer"]["state"].keys()


def test_what_lies_beside_checkpoints_is_not_touched(tmp_path: Path) -> None:
    """Backups and notes of the user, names that only look like a step, and what a killed run has left."""
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
    assert [path.name for path in checkpoints(tmp_path)] == ["step_00000005", "step_00000010"]
    theirs = {"step_00000400.bak", "step_old", ".step_mine", "step_notes.txt", "step_00000900"}
    assert {path.name for path in folder.iterdir()} == {"step_00000005", "step_00000010"} | theirs


def test_resume_reads_a_checkpoint_for_its_digests_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state().save(tmp_path)
    read: list[str] = []

    def noted(path: Path) -> str:
        read.append(path.name)
        return digest(path)

    monkeypatch.setattr("clipx.run.checkpoint.digest", noted)
    resume(state(1), tmp_path)
    assert read == ["model.safetensors", "training.pt"]


@pytest.mark.parametrize("name", ["model.safetensors", "training.pt"])
def test_a_truncated_file_is_passed_over_for_the_checkpoint_before(tmp_path: Path, name: str) -> None:
    saved = state()
    for saved.step in (5, 10):
        saved.save(tmp_path)
    broken = tmp_path / "checkpoints" / "step_00000010"
    os.truncate(broken / name, 100)
    loaded = state(1)
    notes = resume(loaded, tmp_path)
    assert loaded.step == 5
    assert f"{broken / name} is damaged" in notes[0]
    assert broken.exists()


def test_after_a_fallback_the_damaged_later_ones_are_replaced_and_never_outlive_good_ones(tmp_path: Path) -> None:
    saved = state()
    for saved.step in (5, 10, 15):
        saved.save(tmp_path)
    for name in ("step_00000010", "step_00000015"):
        os.truncate(tmp_path / "checkpoints" / name / "training.pt", 100)
    loaded = state(1)
    assert len(resume(loaded, tmp_path)) == 3
    assert loaded.step == 5
    loaded.step = 10
    verify(loaded.save(tmp_path))  # one of the same number was there, and a later one
    assert [p.name for p in checkpoints(tmp_path)] == ["step_00000005", "step_00000010"]


def test_a_full_disk_ends_the_run_in_one_line_and_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
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
    for size in (100_000, 500_000):  # the weights do not fit; the weights fit and the optimizer's state does not
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


def test_an_error_that_is_not_of_the_disk_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr("clipx.run.checkpoint.save_file", fail)
    with pytest.raises(RuntimeError, match="CUDA error"):
        state().save(tmp_path)


def test_without_any_good_checkpoint_nothing_is_overwritten(tmp_path: Path) -> None:
    saved = state()
    path = saved.save(tmp_path)
    (path / "checkpoint.json").write_text("{")
    with pytest.raises(UserError, match="has no good checkpoint"):
        resume(state(1), tmp_path)
    assert (path / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "training.pt"])
@pytest.mark.parametrize("fix_manifest", [False, True])
def test_a_pickle_in_place_of_a_file_is_refused_unexecuted(tmp_path: Path, name: str, fix_manifest: bool) -> None:
    path = state().save(tmp_path)
    for data in (pickle.dumps(Bomb(tmp_path / "executed")), torch_pickle(tmp_path)):
        replace_file(path, name, data, fix_manifest)
        with pytest.raises(UserError, match=name):
            state(1).load(path)
        assert not (tmp_path / "executed").exists()


def torch_pickle(folder: Path) -> bytes:
    torch.save({"optimizer": Bomb(folder / "executed")}, folder / "bomb.pt")
    return (folder / "bomb.pt").read_bytes()


def test_other_data_are_refused(tmp_path: Path) -> None:
    path = state(data="10:aa").save(tmp_path)
    with pytest.raises(UserError, match=r"trained on other data .samples 10:aa, now 10:bb"):
        state(data="10:bb").load(path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = state().save(tmp_path)
    with pytest.raises(UserError, match="does not hold this model's weights"):
        load_weights(nn.Linear(2, 2), path)


@pytest.mark.parametrize(("what", "message"), [("missing", "missing"), ("file", "a file"), ("folder", "without check")])
def test_resolve_says_what_it_found_instead(tmp_path: Path, what: str, message: str) -> None:
    path = tmp_path / "x"
    if what == "file":
        path.write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    if what == "folder":
        path.mkdir()
    with pytest.raises(UserError, match=message):
        resolve(path)


def test_a_manifest_that_lies_about_a_missing_file_is_found(tmp_path: Path) -> None:
    path = state().save(tmp_path)
    (path / "training.pt").unlink()
    with pytest.raises(UserError, match=r"training.pt is damaged"):
        verify(path)
