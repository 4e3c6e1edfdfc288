"""Steps without a finite loss or gradient are skipped and counted; many in a row end the run."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cli import train as launch
from clipx import train
from clipx.config.schema import RunConfig
from clipx.errors import RunDiverged
from clipx.objectives.base import Objective
from clipx.run.checkpoint import checkpoints
from clipx.run.folder import Diverged, RunFolder
from clipx.training.setup import build_components
from clipx.training.step import train_step
from clipx.types import Batch, Embeddings, Loss, Progress
from clipx.utils.trust import PERMITTED, permit
from tests.helpers.folder import settings
from tests.helpers.runs import log, prepared, trained, weights

SAMPLES = 48  # six steps an epoch


def multiply_loss(monkeypatch: pytest.MonkeyPatch, steps: set[int], factor: float = float("nan")) -> None:
    """Multiply the loss of these steps by a factor."""
    plain = Objective.__call__

    def call(self: Objective, embeddings: Embeddings, rows: dict[str, Tensor], progress: Progress) -> Loss:
        loss = plain(self, embeddings, rows, progress)
        if progress.step in steps:
            loss.total = loss.total * factor
            loss.terms = {name: value * factor for name, value in loss.terms.items()}
        return loss

    monkeypatch.setattr(Objective, "__call__", call)


def small_config(tmp_path: Path, **options: int) -> RunConfig:
    config = prepared(tmp_path, samples=SAMPLES, **options)
    config.model.image.name, config.log.every = "small:conv", 1
    return config


def test_a_bad_step_is_skipped_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(tmp_path, epochs=1)
    multiply_loss(monkeypatch, {2, 4})
    run = trained(config)
    assert [row.get("skipped", 0) for row in log(run)] == [0, 0, 1, 0, 1, 0]
    assert "skipped since this start: 2" in capsys.readouterr().err
    assert [p.name for p in checkpoints(run)] == ["step_00000006"]
    assert all(t.isfinite().all() for t in weights(run).values())
    assert RunFolder(run).divergence() is None


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e38])  # 1e38: finite loss, infinite gradient
def test_a_skipped_step_changes_no_weights_or_other_state(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply_loss(monkeypatch, {0}, factor)
    config = settings(Path(), epochs=1)
    config.model.image.name = "open_clip:mini-vit-48"
    config.objective, config.temperature.kind = {"sogclr": {"gamma": 0.8}}, "fixed"
    components = build_components(config, torch.device("cpu"), num_samples=8, data_fingerprint="x")
    before = {k: v.clone() for k, v in components.state.model.state_dict().items()}
    columns = {k: v.clone() for k, v in components.state.table.whole().items()}
    text = torch.randint(1, 50, (8, components.state.model.inputs.context_length))
    batch = Batch(torch.arange(8), torch.randn(8, 3, 48, 48), text, torch.zeros(8).long())
    train_step(components, batch, Progress(0, 2, 0, 1))
    assert components.bad_steps == 1
    assert all(torch.equal(before[k], v) for k, v in components.state.model.state_dict().items())
    moments = [value for state in components.state.optimizer.state.values() for value in state.values()]
    assert not any(value.any() for value in moments), "the optimizer counted the step, or has moments"
    for name, column in components.state.table.whole().items():
        torch.testing.assert_close(column, columns[name], equal_nan=True, atol=0, rtol=0)
    train_step(components, batch, Progress(1, 2, 0, 1))
    assert components.bad_steps == 0
    assert all(state["step"] == 1 for state in components.state.optimizer.state.values())


def test_bad_steps_in_a_row_end_the_run_and_keep_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(tmp_path, epochs=3, save_every=2)
    config.train.max_bad_steps, config.log.notify = 3, f"cat > {tmp_path}/message; exit 1"  # it fails, afterwards
    monkeypatch.setenv(PERMITTED, "{}")  # restored after the test
    permit("programs", [config.log.notify])
    multiply_loss(monkeypatch, set(range(4, 18)))
    run = RunFolder.create(config).path
    for _ in range(2):  # the second call reports the divergence without training
        with pytest.raises(RunDiverged, match=f"^{run} diverged at step 7: 3 steps in a row") as raised:
            launch.train(config)
        assert raised.value.code == 3 and len(log(run)) == 7
    assert "not finite in the last step: objective.clip" in capsys.readouterr().err
    ended = RunFolder(run).divergence()
    assert ended == Diverged(7, 3, "checkpoints/step_00000004")
    assert json.loads((run / "outcome.json").read_text())["outcome"] == "diverged"
    assert (tmp_path / "message").read_text() == f"{ended.message(run)}\n"


def test_no_checkpoint_is_written_between_bad_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint between bad steps would make a resumed run count bad steps from 0 again."""
    config = small_config(tmp_path, epochs=1, save_every=1)
    config.train.keep = 10
    multiply_loss(monkeypatch, {1, 2})
    run = trained(config)
    assert [int(p.name[5:]) for p in checkpoints(run)] == [1, 4, 5, 6]


def test_a_run_with_a_huge_learning_rate_diverges_without_an_error(tmp_path: Path) -> None:
    config = small_config(tmp_path, epochs=4)
    config.optimizer.lr, config.schedule.warmup_steps, config.train.max_bad_steps = 1e30, 1, 5
    config.log.geometry_every, config.log.geometry_pairs, config.log.geometry_on = 1, 4, "train"
    run = RunFolder.create(config).path
    assert train.fit(config, run) is train.Outcome.DIVERGED
    ended = RunFolder(run).divergence()
    assert ended is not None and ended.bad_steps == 5
    assert ended.checkpoint is None
    assert "no checkpoint yet" in ended.message(run)
