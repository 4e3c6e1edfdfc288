"""A run on features of frozen towers from the command line: trained, evaluated, and refused where it cannot go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clipx.data.preprocess.images import decode
from clipx.models.frozen import FrozenTower
from evaluation.embedding.encoder import from_checkpoint
from tests.helpers.commands import clipx_here
from tests.helpers.folder import jpeg, write_shards

ARGUMENTS = """
recipe=demo data=shards data.root=data train.samples=64 train.batch_size=16 schedule.warmup_steps=0
model.image.frozen=true model.text.frozen=true data.features=true data.crop_scale=[1,1] data.workers=0
data.split=train data.evaluation=[captions:test] log.geometry_every=2 log.geometry_on=train log.geometry_pairs=16
log.evaluate_every=2
""".split()  # noqa: SIM905


@pytest.fixture
def folder(tmp_path: Path, empty_cache: Path) -> Iterator[Path]:
    """Return a folder with shards to train on and to evaluate."""
    write_shards(tmp_path / "data/train", 32)
    write_shards(tmp_path / "data/test", 8)
    yield tmp_path


def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of a frozen tower adds the number of its items."""
    counted, call = list[int](), FrozenTower.__call__

    def counting(self: FrozenTower[Any], batch: torch.Tensor, device: torch.device) -> torch.Tensor:
        counted.append(len(batch))
        return call(self, batch, device)

    monkeypatch.setattr(FrozenTower, "__call__", counting)
    return counted


def test_arms_and_evaluations_share_one_pass_an_item(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = passes(monkeypatch)
    clipx_here("train", *ARGUMENTS, "name=a", cwd=folder)
    clipx_here("eval", "runs/a/s0", "workers=0", cwd=folder)
    # 6 colours; 32 captions; of the evaluation set 8 images, and captions of which the first 8 are training captions
    assert sum(counted) == 6 + 32 + 8 + 8
    for name, arm in (("b", "objective=clip_reg"), ("c", "objective=sogclr"), ("d", "seed=1")):
        clipx_here("train", *ARGUMENTS, f"name={name}", arm, cwd=folder)
    assert sum(counted) == 6 + 32 + 8 + 8
    done = clipx_here("export", "runs/a/s0", "out=x.safetensors", cwd=folder, code=2)
    assert "cannot be exported" in done.stderr


def test_an_own_image_is_embedded_as_the_page_shows(folder: Path) -> None:
    clipx_here("train", *ARGUMENTS, "name=a", cwd=folder)
    cpu = torch.device("cpu")
    encoder, _ = from_checkpoint(folder / "runs/a/s0", cpu)
    pixels = encoder.preprocess(decode(jpeg("red")))[None]
    image = encoder.image(encoder.frozen_towers["image"](pixels, cpu))
    assert torch.allclose(image.norm(dim=1), torch.ones(1))
