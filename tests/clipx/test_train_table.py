"""Runs with per-sample columns end in the same table and weights after a resume, also on another number of ranks."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from clipx import objectives
from clipx.config.schema import RunConfig
from clipx.run.checkpoint import TABLE, checkpoints
from clipx.run.folder import RunFolder
from clipx.train import fit
from tests.helpers.gloo import Gloo
from tests.helpers.runs import fit_as_rank, log, prepared, trained, weights

SAMPLES = 24  # 3 steps an epoch


def small_config(root: Path, name: str, variant: str = "paper", save_every: int = 3) -> RunConfig:
    config = prepared(root, samples=SAMPLES, epochs=2, save_every=save_every)
    config.name = name
    config.model.image.name, config.model.text.name = "open_clip:mini-vit-48", "small:transformer"  # no batch norms
    config.temperature.kind, config.temperature.tau = "fixed", 0.1
    eta = 0.5 if variant == "paper" else 0.02
    # xi0 <= zeta0, so that xi follows zeta
    config.objective = {"nuclr": {"variant": variant, "eta": eta, "xi0": -0.05, "freeze_steps": 1}}
    config.log.every, config.train.keep, config.optimizer.eps = 1, 9, 1e-4
    return config


def last(run: Path) -> dict[str, Tensor]:
    """Return weights and table of the last checkpoint."""
    folder = checkpoints(run)[-1]
    assert folder.name == "step_00000006"
    return weights(run) | load_file(folder / TABLE)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of one process."""
    return trained(small_config(tmp_path_factory.mktemp("one"), "one"))


@pytest.mark.slow
@pytest.mark.parametrize("variant", [pytest.param("paper", marks=pytest.mark.long), "code"])
def test_a_resumed_run_ends_in_the_same_table_and_weights(tmp_path: Path, variant: str) -> None:
    config = small_config(tmp_path, "run", variant, save_every=1)

    def ended(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        state = torch.load(checkpoints(run)[-1] / "training.pt", weights_only=True)
        return last(run), state["objective"]

    run = trained(config)
    expected, objective = ended(run)
    assert (expected["nuclr_seen"] == 1).all()
    assert len(set(expected["nuclr_zeta_text"].tolist())) > SAMPLES // 2
    assert objective["nuclr"]["xi_text"] > -0.05
    for step in (3, 2):  # the end of an epoch, and within one, where variant "code" uses the previous epoch's xi
        for folder in checkpoints(run)[step:]:
            shutil.rmtree(folder)
        fit(config, run)
        found, state = ended(run)
        assert [k for k in expected if not torch.equal(expected[k], found[k])] == []
        assert state == objective


@pytest.mark.slow
def test_two_ranks_then_one_end_in_the_weights_and_table_of_one(tmp_path: Path, gloo: Gloo, one: Path) -> None:
    config = small_config(tmp_path, "two")
    two = RunFolder.create(config).path
    gloo.run(2, fit_as_rank, str(two), {"CLIPX_CACHE": os.environ["CLIPX_CACHE"]})
    both = last(two)
    shutil.rmtree(checkpoints(two)[-1])
    fit(config, two)
    expected = last(one)
    for found in (both, last(two)):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(value, found[name], rtol=1e-4, atol=1e-5), name


def test_the_log_has_quantiles_of_every_column(one: Path) -> None:
    rows = log(one)
    assert set(rows[0]["columns"]) == set(objectives.build(RunFolder(one).config.objective, SAMPLES).columns)
    assert rows[0]["columns"]["nuclr_zeta_text"] == pytest.approx([-0.05] * 7)  # the freeze period
    spread = [row["columns"]["nuclr_zeta_text"][-1] - row["columns"]["nuclr_zeta_text"][0] for row in rows]
    assert spread[-1] > spread[0] == 0
    assert rows[1]["columns"]["nuclr_seen"][3] == 1  # two of three batches are seen, so the median is 1
