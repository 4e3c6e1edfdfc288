"""`fit`: the files of a run, refused settings, and resuming after a kill."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from clipx import distributed, train
from clipx.config.schema import DataConfig, RunConfig
from clipx.errors import UserError
from clipx.models.clip import ClipModel
from clipx.run.checkpoint import checkpoints, step_of
from clipx.run.folder import RunFolder
from clipx.run.log import RunLog
from clipx.run.saving import Snapshot
from clipx.train import Outcome, fit
from clipx.training.stop_signals import StopMonitor
from clipx.training.timing import ThroughputMeter
from clipx.utils.plugins import load_plugins
from tests.helpers import plugin_tables
from tests.helpers.folder import add, jpeg, settings, write_shards
from tests.helpers.gloo import Gloo
from tests.helpers.runs import log, prepared, trained, weights


def small(config: RunConfig) -> RunConfig:
    """Take an image tower with faster steps than mini-48."""
    config.model.image.name = "small:conv"
    return config


def test_a_run_learns_and_writes_the_files_that_the_report_reads(tmp_path: Path) -> None:
    config = small(prepared(tmp_path, samples=48, epochs=8))
    config.log.every = 1
    run = trained(config)
    rows = log(run)
    assert [row["step"] for row in rows] == list(range(1, 49))
    assert [row["samples"] for row in rows] == [8 * step for step in range(1, 49)]
    assert sum(r["loss"] for r in rows[-6:]) < sum(r["loss"] for r in rows[:6])
    columns = (
        "step epoch samples loss terms scale tau lr grad_norm images_per_s data_wait step_s bad progress left_s time"
    )
    assert list(rows[1]) == columns.split()
    assert set(rows[1]["step_s"]) == {"data", "forward", "loss", "backward", "optimizer"}
    assert rows[0].keys() - rows[1].keys() == {"first_batch_s"}
    assert rows[0]["tau"] == pytest.approx(0.07, rel=1e-3)
    assert rows[-1]["tau"] != rows[0]["tau"]
    assert [p.name for p in checkpoints(run)] == ["step_00000048"]
    assert json.loads((run / "environment.json").read_text())["packages"]["torch"] == version("torch")
    assert RunFolder(run).load_config() == config


def test_a_run_that_ends_with_the_loss_of_equal_embeddings_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(prepared(tmp_path, samples=16, epochs=1))
    config.temperature.kind, config.temperature.tau = "fixed", 100
    trained(config)
    assert "guessing among 8 pairs" in capsys.readouterr().err
    assert not train._about_chance({"clip": 1.9}, config)
    config.objective = {"clip": {"average": False}}
    assert train._about_chance({"clip": 2 * math.log(8)}, config)


@pytest.mark.parametrize("kind", ["timm:muon", "timm:lion", "point sets"])  # a step of point sets draws frequencies
def test_timms_optimizers_and_point_sets_learn_and_resume_exactly(tmp_path: Path, kind: str) -> None:
    config = small(prepared(tmp_path, samples=24, epochs=6, save_every=12))
    config.log.every = 1
    if kind == "point sets":
        config.model.image.name, config.model.text.name = "small:vit", "small:transformer"
        config.model.points.kernel, config.model.points.features_train = "imq", 128
        config.temperature.parameterisation, config.temperature.min_scale = "identity", 1.0
    else:
        config.optimizer.kind, config.optimizer.lr = kind, 3e-4
    run = trained(config)
    losses = [row["loss"] for row in log(run)]
    assert sum(losses[-6:]) < sum(losses[:6])
    expected = weights(run)
    shutil.rmtree(checkpoints(run)[-1])  # step 18; step 12 remains
    fit(config, run)
    assert [name for name, value in weights(run).items() if not torch.equal(value, expected[name])] == []


def test_fit_on_a_finished_run_says_so_and_changes_no_file(
    copied_run: tuple[RunConfig, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = copied_run
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file()}
    fit(config, run)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file()} == before
    assert "is done: 4 steps" in capsys.readouterr().err


def test_a_finished_run_without_optimizer_state_is_smaller_has_equal_weights_and_stays_finished(
    copied_run: tuple[RunConfig, Path],
) -> None:
    config, whole = copied_run
    config.name, config.train.keep_optimizer, config.train.save_every = "small", False, 2
    small, expected = trained(config), weights(whole)
    sizes = [(path / "training.pt").stat().st_size for path in (*checkpoints(whole), *checkpoints(small))]
    assert min(sizes[:2]) > 100 * sizes[2]  # only the last checkpoint of `small` lacks the optimizer's state
    assert fit(config, small) is Outcome.FINISHED
    for name, tensor in weights(small).items():
        assert torch.equal(tensor, expected[name])
    shutil.rmtree(checkpoints(small)[-1])
    assert fit(config, small) is Outcome.FINISHED  # resumes from step 2
    for name, tensor in weights(small).items():
        assert torch.equal(tensor, expected[name])


def test_an_interrupted_evaluation_is_run_on_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small(prepared(tmp_path, save_every=2))
    config.log.every, config.log.evaluate_every = 1, 2
    run = RunFolder.create(config).path

    def evaluated() -> list[float]:
        return [row["step"] for row in log(run) if "evaluation" in row]

    def interrupted(model: ClipModel) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(config, run, evaluate=interrupted)
    assert [step_of(path) for path in checkpoints(run)] == [2] and not evaluated()
    assert fit(config, run, evaluate=lambda model: {"set": 0.5}) is Outcome.FINISHED
    assert evaluated() == [2, 4]
    (run / "log.jsonl").write_text("".join((run / "log.jsonl").read_text().splitlines(keepends=True)[:-1]))
    for _ in range(2):  # the first call adds the missing evaluation, the second finds none missing
        assert fit(config, run, evaluate=lambda model: {"set": 0.25}) is Outcome.FINISHED
        assert evaluated() == [2, 4]
    assert capsys.readouterr().err.count("step 4  evaluation 0.250") == 1


def test_a_stop_signal_and_the_last_step_wait_for_the_checkpoint_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(prepared(tmp_path, epochs=3, save_every=2))
    run = RunFolder.create(config).path
    write, stopped = Snapshot.write, threading.Event()
    done: list[int] = []

    def slow(snapshot: Snapshot, run: Path) -> None:
        if snapshot.manifest["step"] == 2:
            assert stopped.wait(60)  # longer than the next step
        write(snapshot, run)
        done.append(snapshot.manifest["step"])

    def reason(self: StopMonitor, step: int) -> str:
        if step == 3:
            stopped.set()
        return "SIGTERM" if step == 3 else ""

    monkeypatch.setattr(Snapshot, "write", slow)
    monkeypatch.setattr(StopMonitor, "reason", reason)
    assert fit(config, run) is Outcome.STOPPED
    assert done == [2, 3]
    assert fit(config, run) is Outcome.FINISHED
    assert done == [2, 3, 4, 6]


def test_changed_settings_are_refused_and_listed(copied_run: tuple[RunConfig, Path]) -> None:
    config, _ = copied_run
    config.log.every = 3  # does not change the results
    config.data.workers = 1
    RunFolder.create(config)
    config.optimizer.lr = 0.5
    config.objective = {"clip": {"average": False}}
    with pytest.raises(UserError, match=r"objective: .*average.*; optimizer.lr: 0.001 -> 0.5.*name="):
        RunFolder.create(config)


def test_a_run_is_not_resumed_on_other_data_of_the_same_size(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shards(tmp_path / name / "train", samples=16, per_shard=16 if name == "a" else 8)
    config = small(settings(tmp_path / "a"))
    config.runs = str(tmp_path / "runs")
    trained(config)
    config.data.root = str(tmp_path / "b")
    with pytest.raises(UserError, match=r"was trained on other data \(fingerprint 16:\w+/image\+txt, now 16:"):
        trained(config)


def test_a_plugin_that_was_edited_is_named_when_the_same_command_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But not if the run has no checkpoint: it starts again, with the new code in all steps."""
    (tmp_path / "edited.py").write_text("TOWERS = {}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with plugin_tables.restored():
        load_plugins(["edited"])
        config = small(prepared(tmp_path, samples=16))
        config.plugins = ["edited"]
        trained(config)
        trained(config)
        assert "the code has changed" not in capsys.readouterr().err
        (tmp_path / "edited.py").write_text("TOWERS = {}  # better\n")
        trained(config)
        assert "warning: plugins=edited: the code has changed" in capsys.readouterr().err
        shutil.rmtree(RunFolder.of(config).path / "checkpoints")
        trained(config)
    assert "the code has changed" not in capsys.readouterr().err


def test_a_shard_that_was_replaced_by_one_of_equal_size_is_named_on_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(prepared(tmp_path, samples=16, save_every=1))
    shutil.rmtree(checkpoints(trained(config))[-1])
    shard = max(Path(config.data.root or "", "train").glob("*.tar"))
    with tarfile.open(shard) as tar:
        member = next(one for one in tar if one.name.endswith(".txt"))
    with shard.open("r+b") as file:  # another text of the same length
        file.seek(member.offset_data)
        file.write(b"z")
    trained(config)
    printed = capsys.readouterr()
    assert "warning: the data have changed since the run began" in printed.out + printed.err
    assert shard.name in printed.out + printed.err


def test_settings_of_a_run_without_steps_may_change(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with pytest.raises(UserError, match="no folder"):
        trained(config)
    config.optimizer.lr = 0.5
    RunFolder.create(config)


def kill_when(run: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL once the step is in the log; the deadline only keeps the test from hanging."""
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if (run / "log.jsonl").exists() and f'"step": {step},' in (run / "log.jsonl").read_text():
            process.send_signal(signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.01)
    raise AssertionError(f"the run ended (exit code {process.poll()}) before step {step} was logged")


@pytest.mark.guards_data
@pytest.mark.long
def test_a_run_killed_twice_ends_in_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", samples=64)
    folders = {}
    for name in ("whole", "killed"):
        config = settings(tmp_path, epochs=4, save_every=5)
        config.name, config.log.every, config.data.workers = name, 1, 1
        config.data.captions, config.data.flip = "random", True
        folders[name] = RunFolder.create(config).path

    def start(name: str) -> subprocess.Popen[bytes]:
        code = "from pathlib import Path; import sys; from clipx import train; from clipx.run.folder import RunFolder; "
        code += "p = Path(sys.argv[1]); train.fit(RunFolder(p).load_config(), p)"
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        return subprocess.Popen([sys.executable, "-c", code, str(folders[name])], env=environment)

    assert start("whole").wait() == 0
    kill_when(folders["killed"], 8, start("killed"))
    kill_when(folders["killed"], 13, start("killed"))
    assert start("killed").wait() == 0
    whole, killed = weights(folders["whole"]), weights(folders["killed"])
    assert whole.keys() == killed.keys()
    assert [k for k in whole if not torch.equal(whole[k], killed[k])] == []
    assert [r["step"] for r in log(folders["killed"])] == list(range(1, 33))
    assert [r["loss"] for r in log(folders["killed"])] == [r["loss"] for r in log(folders["whole"])]


def reported_and_counted(config: RunConfig) -> tuple[list[str], list[float]]:
    """Train; return the lines about bad samples that this rank prints, and the counts in the log."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLog, "info", lambda self, text: lines.append(text))
        fit(config, run := RunFolder.of(config).path)
    return [line for line in lines if line.startswith("left out")], [row["bad"] for row in log(run)]


def test_bad_samples_of_every_rank_are_named_and_counted(tmp_path: Path, gloo: Gloo) -> None:
    write_shards(tmp_path / "train", samples=28)
    with tarfile.open(tmp_path / "train" / "torn.tar", "w") as tar:
        for name in "abcd":
            add(tar, f"{name}.jpg", jpeg("red")[:300])
            add(tar, f"{name}.txt", b"a caption")
    config = small(settings(tmp_path, epochs=1))
    config.data.max_bad_rate, config.log.every = 0.5, 3  # two log lines in 4 steps
    RunFolder.create(config)
    (reported, counts), _ = gloo.run(2, reported_and_counted, config)
    assert sorted(line.split(":")[2] for line in reported) == ["a", "b", "c", "d"]
    assert len(counts) == 2 and counts[-1] == 4


def test_a_run_that_waits_for_its_data_says_once_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "MOST_WAITING", -1.0)
    config = small(prepared(tmp_path, samples=32, epochs=1))
    config.log.every, config.data.workers = 1, 0
    trained(config)
    lines = [line for line in capsys.readouterr().err.splitlines() if "waits for its data" in line]
    assert len(lines) == 1 and "data.decode=fast" in lines[0]


def fit_with_slow_loaders_of_rank_1(config: RunConfig) -> None:
    read = ThroughputMeter.read
    with pytest.MonkeyPatch.context() as patch:
        slow = {"data_wait": 0.75 * distributed.rank()}
        patch.setattr(ThroughputMeter, "read", lambda meter: read(meter) | slow)
        train.fit(config, RunFolder.of(config).path)


def test_the_log_shows_the_process_that_waits_longest_for_its_data(tmp_path: Path, gloo: Gloo) -> None:
    config = small(prepared(tmp_path, samples=32, epochs=1))
    run = RunFolder.create(config).path
    gloo.run(2, fit_with_slow_loaders_of_rank_1, config)
    assert {row["data_wait"] for row in log(run) if "loss" in row} == {0.75}


def test_advice_against_waiting_names_only_settings_that_the_run_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    def advised(streaming: bool = False, **settings: Any) -> set[str]:
        source = Mock(streaming=streaming)
        return set(re.findall(r"data\.\w+=[a-z0-9]+", train._about_waiting(0.5, DataConfig(**settings), source)))

    assert advised() == {"data.cache=memory", "data.decode=fast"}
    assert advised(decode="fast") == advised(cache="memory") == advised(features=True) == set()
    assert advised(augment="device") == {"data.cache=memory"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    assert advised(workers=1) == {"data.workers=2", "data.cache=memory", "data.decode=fast"}
    assert advised(streaming=True, workers=1) == {"data.workers=2", "data.decode=fast"}
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # two ranks share the cores
    assert advised(workers=1) == {"data.cache=memory", "data.decode=fast"}
