"""Sharded weights (train.parallel=fsdp) train the same model as one process and write the same checkpoints."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from clipx import distributed
from clipx.config.presets import check_combinations
from clipx.errors import UserError
from clipx.models.parallel import blocks, gather_shards
from clipx.models.towers.open_clip_towers import create_model
from clipx.run.checkpoint import AVERAGED, TRAINING, WEIGHTS
from clipx.training.setup import TrainComponents, build_components
from clipx.training.step import train_step
from clipx.types import Batch, Progress
from tests.helpers import tiny
from tests.helpers.folder import settings as mini_settings
from tests.helpers.gloo import Gloo
from tests.helpers.term_runs import Result, assert_same, settings

TERMS = ("clip", "siglip", "nuclr")  # siglip has a bias, nuclr a table
STEPS, SAVED = 6, 3  # steps in total and before the checkpoint


def run_of(term: str, kind: str, accumulation: int = 1, parallel: str = "fsdp", batch_size: int = 8) -> TrainComponents:
    config = settings(term, "soft", kind)
    config.train.accumulation, config.train.parallel = accumulation, parallel
    config.train.grad_clip = 0.05  # below the norm of the gradient
    config.optimizer.lr = {"adamw": 0.01, "sgd": 1.0}[kind]
    run = tiny.components(config, "blocks")
    run.config.train.batch_size = batch_size  # set after `components` checked it; 7: a batch of 8 with one bad sample
    return run


def trained(*arguments: Any) -> Result:
    return tiny.train(run_of(*arguments))


@cache
def alone(term: str, kind: str, batch_size: int = 8) -> Result:
    return trained(term, kind, 1, "ddp", batch_size)


def start(term: str, kind: str) -> Result:
    return dict(run_of(term, kind).state.model.state_dict())


SPLITS = [(1, 1), (2, 1), (4, 1), (2, 2)]  # processes, micro-batches
SHARDED = [
    pytest.param(
        term, kind, *split, marks=() if (term, kind) == ("nuclr", "adamw") or split == (2, 1) else pytest.mark.long
    )
    for term, kind in (("clip", "sgd"), ("siglip", "adamw"), ("nuclr", "adamw"), ("nuclr", "sgd"))
    for split in SPLITS
]


@pytest.mark.parametrize(("term", "kind", "world", "accumulation"), SHARDED)
def test_shards_end_in_the_weights_and_rows_of_one_process(
    term: str, kind: str, world: int, accumulation: int, gloo: Gloo
) -> None:
    found = gloo.run(world, trained, term, kind, accumulation)[0]
    assert_same(found, alone(term, kind), start(term, kind))


@pytest.mark.parametrize("term", [*(pytest.param(term, marks=pytest.mark.long) for term in TERMS[:-1]), TERMS[-1]])
def test_shards_and_unequal_parts_end_in_the_weights_and_rows_of_one_process(term: str, gloo: Gloo) -> None:
    """Two ranks have 3 and 4 of 7 pairs, four ranks 1, 2, 2 and 2."""
    for world, accumulation in ((2, 2), (4, 1)):
        found = gloo.run(world, trained, term, "sgd", accumulation, "fsdp", 7)[0]
        assert_same(found, alone(term, "sgd", 7), start(term, "sgd"))


def norms(parallel: str) -> list[float]:
    run = run_of("siglip", "sgd", 1, parallel)
    steps = enumerate(tiny.batches(run.config, STEPS))
    return [float(train_step(run, batch, Progress(step, STEPS, 0, 1))["grad_norm"]) for step, batch in steps]


def test_the_norm_of_the_gradient_covers_all_shards(gloo: Gloo) -> None:
    expected = norms("ddp")
    assert min(expected) > 0.05  # so the tests above clip every step
    for found in gloo.run(4, norms, "fsdp"):
        assert found == pytest.approx(expected, rel=1e-4)


def continued(first: int, last: int, parallel: str, loaded: Path | None, folder: Path | None) -> Result | None:
    """Load a checkpoint, train the steps first..last-1, then save in `folder` or else return the result."""
    run = run_of("nuclr", "adamw", 1, parallel)
    if loaded:
        run.state.load(loaded)
    for step, batch in enumerate(tiny.batches(run.config, last)):
        if step >= first:
            train_step(run, batch, Progress(step, STEPS, 0, 1))
    run.state.step = last
    if folder:
        run.state.save(folder)
    return None if folder else tiny.train(run, 0)


@pytest.mark.parametrize(("saver", "world", "loader", "other_world"), [("fsdp", 4, "ddp", 2), ("ddp", 2, "fsdp", 4)])
def test_checkpoints_resume_with_the_other_kind_and_another_number_of_ranks(
    saver: str, world: int, loader: str, other_world: int, gloo: Gloo, tmp_path: Path
) -> None:
    gloo.run(world, continued, 0, SAVED, saver, None, tmp_path)
    found = gloo.run(other_world, continued, SAVED, STEPS, loader, tmp_path / "checkpoints/step_00000003", None)[0]
    expected = continued(0, STEPS, "ddp", None, None)
    assert found and expected
    assert_same(found, expected, start("nuclr", "adamw"))


def strides(parallel: str, loaded: Path | None, folder: Path) -> list[tuple[tuple[int, ...], ...]]:
    """Train convolutions for a step, or load them; return the strides of each weight and of its moments, and save."""
    config = settings("clip", "none", "adamw")
    config.train.parallel = parallel
    run = tiny.components(config, "resnet")
    if loaded:
        run.state.load(loaded)
    else:
        tiny.train(run, 1)
    run.state.save(folder)

    def of(tensor: Tensor) -> tuple[int, ...]:
        return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).stride()

    found = run.state.optimizer.state.items()
    return [(of(weight), of(state["exp_avg"]), of(state["exp_avg_sq"])) for weight, state in found]


@pytest.mark.parametrize(("saver", "loader"), [("fsdp", "ddp"), ("ddp", "fsdp")])
def test_moments_lie_in_memory_like_the_weights_after_a_change_of_kind(
    saver: str, loader: str, gloo: Gloo, tmp_path: Path
) -> None:
    """Otherwise a fused optimizer updates convolutions with the moments of other weights, or refuses to."""
    gloo.run(2, strides, saver, None, tmp_path / "saved")
    found = gloo.run(2, strides, loader, tmp_path / "saved/checkpoints/step_00000000", tmp_path / "again")[0]
    assert any(len(weight) == 4 for weight, *_ in found)
    assert all(weight == mean == square for weight, mean, square in found), found


def test_both_kinds_write_the_same_checkpoint(gloo: Gloo, tmp_path: Path) -> None:
    """Shards are saved after they were loaded from a checkpoint of whole weights."""
    continued(0, SAVED, "ddp", None, tmp_path / "ddp")
    saved = tmp_path / "ddp/checkpoints/step_00000003"
    gloo.run(2, continued, SAVED, SAVED, "fsdp", saved, tmp_path / "fsdp")
    again = tmp_path / "fsdp/checkpoints/step_00000003"
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in saved.iterdir())
    assert all((again / name).read_bytes() == (saved / name).read_bytes() for name in (WEIGHTS, AVERAGED))
    old, new = (torch.load(path / TRAINING, weights_only=True)["optimizer"] for path in (saved, again))
    assert old["param_groups"] == new["param_groups"]
    torch.testing.assert_close(new["state"], old["state"], rtol=0, atol=0)


def sizes_of_shards() -> tuple[int, int, int, list[bool]]:
    """Return this rank's numbers of weights, moments and averages and, for each parameter of a block, True if freed."""
    run = run_of("clip", "adamw")
    tiny.train(run, 1)
    state = run.state
    assert state.ema is not None
    moments = [value for moments in state.optimizer.state.values() for value in moments.values() if value.ndim]
    sizes = [
        sum(t.to_local().numel() for t in tensors if isinstance(t, DTensor))
        for tensors in (state.model.parameters(), moments, state.ema.module.parameters())
    ]
    batch = next(tiny.batches(run.config, 1))
    run.parallel.wrapped(batch.image, batch.text, Progress(0, 1, 0, 1))
    freed = [isinstance(p, DTensor) for block in blocks(state.model) for p in block.parameters()]
    return sizes[0], sizes[1], sizes[2], freed


def test_a_rank_holds_its_part_of_weights_moments_and_averages_and_frees_blocks(gloo: Gloo) -> None:
    total = sum(p.numel() for p in run_of("clip", "adamw").state.model.parameters() if p.ndim)
    found = gloo.run(4, sizes_of_shards)
    for expected, sizes in zip((total, 2 * total, total), list(zip(*found, strict=True))[:3], strict=True):
        assert sum(sizes) == expected
        assert max(sizes) < 0.3 * expected  # one process holds all of `shift`, which has one row
    assert all(len(freed) == 8 and all(freed) for *_, freed in found)  # four parameters in each of two blocks


def embedded_on_rank0(parallel: str) -> Tensor:
    """Embed images on rank 0 before and after training; return the embeddings after training (none on other ranks)."""
    run = run_of("clip", "adamw", 1, parallel)
    image = torch.randn(5, 3, tiny.SIDE, tiny.SIDE, generator=torch.Generator().manual_seed(0))
    embedded = torch.empty(0)
    for steps in (2, 0):
        with torch.no_grad(), run.parallel.gathered():
            if distributed.rank() == 0:
                embedded = run.parallel.whole.encode_image(image)
        tiny.train(run, steps)
    return embedded


def test_one_rank_can_evaluate_the_gathered_model(gloo: Gloo) -> None:
    torch.testing.assert_close(gloo.run(2, embedded_on_rank0, "fsdp")[0], embedded_on_rank0("ddp"))


CASES: dict[str, dict[str, Any]] = {  # case -> changed settings
    "frozen": {"image.frozen": True, "grad_checkpointing": True, "accumulation": 2},
    "both frozen": {"image.frozen": True, "text.frozen": True},
    "bf16": {"grad_checkpointing": True, "precision": "bf16"},
    "points": {"points.kernel": "imq"},
    "adapters": {"image.lora": 4, "text.lora": 4, "ema": 0.5},
    "batch norm": {"image.name": "open_clip:mini-48", "sync_batchnorm": True, "ema": 0.5},
}


def trained_tower(case: str, parallel: str) -> dict[str, Tensor]:
    """Train real towers for two steps; return the weights and their averages."""
    config = mini_settings(Path())
    model, train = config.model, config.train
    model.image.name, model.text.name = "open_clip:mini-vit-48", "small:transformer"
    nodes = {"image": model.image, "text": model.text, "points": model.points}
    for key, value in CASES[case].items():
        node, _, name = key.rpartition(".")
        setattr(nodes.get(node, train), name, value)
    train.parallel, train.batch_size, train.device, train.grad_clip = parallel, 4, "cpu", 0.1
    config.optimizer.kind, config.optimizer.lr = "sgd", 1.0
    run = build_components(config, torch.device("cpu"), 8, "x")
    generator, size = torch.Generator().manual_seed(0), 4 // distributed.world_size()
    for step in range(2):
        image = torch.randn(4, 3, 48, 48, generator=generator)
        text = torch.randint(1, 50, (4, run.state.model.inputs.context_length), generator=generator)
        own = slice(distributed.rank() * size, (distributed.rank() + 1) * size)
        batch = Batch(torch.arange(4)[own], image[own], text[own], torch.zeros(size).long())
        train_step(run, batch, Progress(step, 2, 0, 1))
    averages = {} if run.state.ema is None else run.state.ema.module.state_dict()
    return gather_shards(run.state.model.state_dict() | {f"ema.{name}": value for name, value in averages.items()})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_shards_train_real_towers_as_replicas_do(case: str, gloo: Gloo) -> None:
    found, expected = (gloo.run(2, trained_tower, case, parallel)[0] for parallel in ("fsdp", "ddp"))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=tiny.about(name))


def test_blocks_are_found_in_the_names_of_all_libraries() -> None:
    from transformers import DistilBertConfig, DistilBertModel  # not for each worker process, which imports this file

    with torch.device("meta"):
        towers = {
            24: create_model("ViT-B-32", None, "x", custom_text=True),
            18: timm.create_model("convnext_tiny"),  # 3 + 3 + 9 + 3 blocks in four stages
            6: DistilBertModel(DistilBertConfig()),
        }
    assert {count: len(blocks(tower)) for count, tower in towers.items()} == {count: count for count in towers}


@pytest.mark.parametrize(("key", "value"), [("precision", "fp16"), ("compile", True)])
def test_settings_that_shards_do_not_support_are_refused(key: str, value: object) -> None:
    config = mini_settings(Path())
    setattr(config.train, key, value)
    config.train.parallel = "fsdp"
    with pytest.raises(UserError, match=rf"^train.{key}=\w+ does not work with train.parallel=fsdp; allowed: "):
        check_combinations(config)
