"""Steps without a finite loss or gradient: skipped, counted, and in a row the end of the run."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cli import train as launch
from clipx import train
from clipx.config.schema import RunConfig
from clipx.objectives.base import Objective
from clipx.run import directory
from clipx.run.checkpoint import checkpoints
from clipx.training.setup import build_components
from clipx.training.step import train_step
from clipx.types import Batch, Embeddings, Loss, Progress
from tests.helpers.folder import settings, write_shards

SAMPLES = 48  # six steps an epoch


def spoiled(monkeypatch: pytest.MonkeyPatch, bad: set[int], factor: float = float("nan")) -> None:
    """The loss of these steps times a factor."""
    plain = Objective.__call__

    def call(self: Objective, embeddings: Embeddings, rows: dict[str, Tensor], progress: Progress) -> Loss:
        loss = plain(self, embeddings, rows, progress)
        if progress.step in bad:
            loss.total = loss.total * factor
        return loss

    monkeypatch.setattr(Objective, "__call__", call)


def config(tmp_path: Path, **kept: int) -> RunConfig:
    if not (tmp_path / "train").exists():
        write_shards(tmp_path / "train", samples=SAMPLES)
    made = settings(tmp_path, **kept)
    made.log.every = 1
    return made


def log(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_a_bad_step_is_skipped_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(tmp_path, epochs=1)
    spoiled(monkeypatch, {2, 4})
    run = directory.claim(made)
    train.fit(made, run)
    assert [row.get("skipped", 0) for row in log(run)] == [0, 0, 1, 0, 1, 0]
    assert [p.name for p in checkpoints(run)] == ["step_00000006"]
    assert all(t.isfinite().all() for t in load_file(checkpoints(run)[-1] / "model.safetensors").values())
    assert directory.read_divergence(run) is None


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e38])  # 1e38: a finite loss, no finite gradient
def test_a_skipped_step_changes_no_weight_no_moment_and_no_row(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled(monkeypatch, {0}, factor)
    made = settings(Path(), epochs=1)
    made.model.image.name = "open_clip:mini-vit-48"
    made.objective, made.temperature.kind = {"sogclr": {"gamma": 0.8}}, "fixed"
    components = build_components(made, torch.device("cpu"), num_samples=8, data_fingerprint="x")
    before = {k: v.clone() for k, v in components.state.model.state_dict().items()}
    columns = {k: v.clone() for k, v in components.state.table.whole().items()}
    text = torch.randint(1, 1000, (8, components.state.model.inputs.context_length))
    batch = Batch(torch.arange(8), torch.randn(8, 3, 48, 48), text, torch.zeros(8).long())
    if factor == 1e38:
        made.temperature.tau = 1e-4
    train_step(components, batch, Progress(0, 2, 0, 1))
    assert components.bad_steps == 1
    assert all(torch.equal(before[k], v) for k, v in components.state.model.state_dict().items())
    assert not components.state.optimizer.state_dict()["state"]
    for name, column in components.state.table.whole().items():
        torch.testing.assert_close(column, columns[name], equal_nan=True, atol=0, rtol=0)
    train_step(components, batch, Progress(1, 2, 0, 1))
    assert components.bad_steps == 0
    assert components.state.optimizer.state_dict()["state"]


def test_bad_steps_in_a_row_end_the_run_with_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = config(tmp_path, epochs=3, save_every=2)
    made.train.max_bad_steps = 3
    spoiled(monkeypatch, set(range(4, 18)))
    run = directory.claim(made)
    train.fit(made, run)
    ended = directory.read_divergence(run)
    assert ended == directory.Diverged(7, 3, "checkpoints/step_00000004")
    assert json.loads((run / "outcome.json").read_text())["outcome"] == "diverged"
    assert len(log(run)) == 7
    assert "diverged at step 7: 3 steps in a row" in capsys.readouterr().err
    launch.train(made)  # says so again, and does not train it a second time
    assert len(log(run)) == 7
    assert "diverged at step 7" in capsys.readouterr().err


def test_no_checkpoint_is_written_between_bad_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a resumed run counts them as one that was never stopped."""
    made = config(tmp_path, epochs=1, save_every=1)
    made.train.keep = 10
    spoiled(monkeypatch, {1, 2})
    run = directory.claim(made)
    train.fit(made, run)
    assert [int(p.name[5:]) for p in checkpoints(run)] == [1, 4, 5, 6]


def test_a_learning_rate_far_too_high_diverges_and_does_not_crash(tmp_path: Path) -> None:
    made = config(tmp_path, epochs=4)
    made.optimizer.lr, made.schedule.warmup_steps, made.train.max_bad_steps = 1e30, 1, 5
    run = directory.claim(made)
    train.fit(made, run)
    ended = directory.read_divergence(run)
    assert ended is not None and ended.bad_steps == 5
    assert ended.checkpoint is None
    assert "no checkpoint yet" in ended.message(run)
