"""A run on features of frozen towers from the command line: trained, evaluated, and refused where it cannot go."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cli.settings.compose import compose_run
from cli.settings.recipes import recipe
from cli.train import train
from clipx.data.preprocess.images import decode
from clipx.errors import UserError
from clipx.models.frozen import FrozenTower
from evaluation.embedding.encoder import from_checkpoint, from_file
from tests.helpers.commands import clipx_here
from tests.helpers.folder import jpeg, write_shards

ARGUMENTS = """
recipe=demo data=shards data.root=data train.samples=64 train.batch_size=16 schedule.warmup_steps=0
model.image.frozen=true model.text.frozen=true data.features=true data.crop_scale=[1,1] data.workers=0
data.split=train data.evaluation=[captions:test] log.geometry_every=2 log.geometry_on=train log.geometry_pairs=16
log.evaluate_every=2
""".split()  # noqa: SIM905


@pytest.fixture
def folder(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with shards to train on and to evaluate; return it."""
    write_shards(tmp_path / "data/train", 32)
    write_shards(tmp_path / "data/test", 8)
    monkeypatch.setattr("cli.train.check_memory", lambda *_: None)  # a third of the time of these runs
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of a frozen tower adds the number of its items."""
    counted, call = list[int](), FrozenTower.__call__

    def counting(self: FrozenTower[Any], batch: torch.Tensor, device: torch.device) -> torch.Tensor:
        counted.append(len(batch))
        return call(self, batch, device)

    monkeypatch.setattr(FrozenTower, "__call__", counting)
    return counted


BLOCKS = """
model.image.name=small:vit model.image.trainable_blocks=1
model.text.name=small:transformer model.text.trainable_blocks=1
""".split()  # noqa: SIM905
HEADS = ["model.image.head=mlp", "model.text.head=linear", "model.embed_dim=16"]


@pytest.mark.parametrize(
    ("towers", "heads", "colours", "shape"),
    [
        ([], HEADS, 6, (1280,)),
        # the whole tower embeds the colours too, for their mean; the last block gets tokens
        (BLOCKS, ["model.image.standardise=true"], 6 + 6, (17, 64)),
    ],
    ids=["heads", "blocks"],
)
def test_arms_and_evaluations_share_one_pass_an_item_and_an_exported_file_embeds_as_the_run(
    towers: list[str],
    heads: list[str],
    colours: int,
    shape: tuple[int, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = passes(monkeypatch)
    clipx_here("train", *ARGUMENTS, *towers, *heads, "name=a", cwd=folder)
    clipx_here("eval", "runs/a/s0", "workers=0", cwd=folder)
    # 32 captions; of the evaluation set 8 images, and captions of which the first 8 are training captions
    assert sum(counted) == colours + 32 + 8 + 8
    train(compose_run([*ARGUMENTS, *towers, "name=b", "objective=sogclr", "seed=1"]))
    assert sum(counted) == colours + 32 + 8 + 8
    done = clipx_here("export", "runs/a/s0", "out=x.safetensors", cwd=folder)
    assert "encoder = from_file('x.safetensors')" in done.stdout
    encoder, cpu = from_file(folder / "x.safetensors"), torch.device("cpu")
    image, text = encoder.image(encoder.preprocess(decode(jpeg("red")))[None]), encoder.tokenize(["a red square"])
    stored, _ = from_checkpoint(folder / "runs/a/s0", cpu)
    features = stored.frozen_towers["image"](stored.preprocess(decode(jpeg("red")))[None], cpu)
    torch.testing.assert_close(image, stored.image(features))
    torch.testing.assert_close(encoder.text(text), stored.text(stored.frozen_towers["text"](text, cpu)))
    assert torch.allclose(image.norm(dim=1), torch.ones(1))
    assert features.shape[1:] == shape


SMALL = """
data=shards data.root=data data.split=train data.captions=first train.batch_size=8
schedule.warmup_steps=0 model.image.name=small:conv model.image.pretrained=null model.image.size=48
model.text.name=small:bag model.text.pretrained=null model.text.pooling=null
""".split()  # noqa: SIM905
RECIPES = ("clip_reg_photos", "margin_photos", "counting_photos", "nuclr_photos", "gap_photos", "objectives_photos")


@pytest.mark.long
def test_all_arms_on_photographs_share_one_pass_an_item(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, trained = passes(monkeypatch), 0
    for name in RECIPES:
        for arm in recipe(name).arms:
            steps = [] if arm == "untrained" else ["train.samples=24"]
            clipx_here("train", f"recipe={name}", f"arm={arm}", *SMALL, *steps, cwd=folder)
            trained += 1
    assert trained >= 64
    assert sum(counted) == 6 + 32, "6 colours and 32 captions"


def test_another_file_is_no_exported_model(tmp_path: Path) -> None:
    for text in (None, "{", "[1]", "[" * 20_000 + "]" * 20_000, f"[{'9' * 400}]"):
        save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors", None if text is None else {"clipx": text})
        with pytest.raises(UserError, match=r"x\.safetensors is no model that `clipx export` wrote"):
            from_file(tmp_path / "x.safetensors")
    with pytest.raises(UserError, match=r"missing\.safetensors is no model"):
        from_file(tmp_path / "missing.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "x.safetensors", {"clipx": '{"recipe": "${oc.env:HOME}"}'})
    with pytest.raises(UserError, match=r"x\.safetensors"):
        from_file(tmp_path / "x.safetensors")
