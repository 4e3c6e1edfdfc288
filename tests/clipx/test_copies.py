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

from clipx import copies, runs, train
from clipx.config import RunConfig
from clipx.errors import UserError
from clipx.second_place import open_place
from clipx.state import checkpoints, step_of, verify
from tests.clipx.folder import settings, write_shards


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunConfig]:
    monkeypatch.setattr(copies, "LONGEST_PAUSE", 0.01)
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
    run = runs.claim(config)
    assert train.fit(config, run)
    assert there(config) == ["step_00000004", "step_00000008"] == [p.name for p in checkpoints(run)]
    whole = load_file(run / "checkpoints/step_00000008/model.safetensors")

    fs = fsspec.filesystem("memory")  # the newest copy is damaged, one is incomplete
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000008/training.pt", b"x")
    fs.pipe(f"{config.train.copy_to}/test/s0/checkpoints/step_00000009/model.safetensors", b"x")
    shutil.rmtree(run)
    capsys.readouterr()
    assert train.fit(config, runs.claim(config))
    said = capsys.readouterr().err
    assert "passed over:" in said and "had no checkpoint: took the copy" in said
    assert "resumed from" in said and "step_00000004" in said
    again = load_file(run / "checkpoints/step_00000008/model.safetensors")
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()] == list(range(1, 9))

    shutil.rmtree(run)
    config.optimizer.lr = 0.5
    with pytest.raises(UserError, match=r"train.copy_to: .* other settings .optimizer.lr: 0.001 -> 0.5"):
        train.fit(config, runs.claim(config))


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
    run = runs.claim(config)
    assert train.fit(config, run)
    assert there(config)[-1] == "step_00000008"
    assert capsys.readouterr().err.count("was not copied to") == 3

    failures = iter(range(10**6))  # for ever: the run ends all the same
    config.name = "other"
    assert train.fit(config, runs.claim(config))
    assert "step_00000008 was not copied to" in capsys.readouterr().err
    verify(checkpoints(runs.directory(config))[-1])


def test_an_unusable_url_is_named_before_the_run_starts(config: RunConfig) -> None:
    for url, message in (("nosuch://x", "nosuch"), ("s3://x", "Install s3fs")):
        config.train.copy_to = url
        with pytest.raises(UserError, match=f"train.copy_to={url} cannot be used: .*{message}"):
            open_place(config, Path())
    config.train.copy_to = f"memory://{uuid.uuid4()}"
    fsspec.filesystem("memory").makedirs(config.train.copy_to)


def test_step_of_reads_names_only() -> None:
    assert [step_of(Path(name)) for name in ("a/step_00000012", "step_x", "best")] == [12, -1, -1]
