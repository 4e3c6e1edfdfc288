"""Adapters (model.SIDE.lora) are all that is trained of a tower, and become a part of its weights in evaluation."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cli.export.command import export
from clipx.config.schema import DataConfig, ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig, TrainConfig
from clipx.errors import UserError
from clipx.models import clip
from clipx.models.towers import lora
from clipx.run.checkpoint import WEIGHTS, checkpoints, load_weights, read_weights, resolve
from clipx.run.folder import RunFolder
from clipx.run.initial_weights import build_initial_model
from clipx.run.saving import TrainState
from clipx.train import fit
from clipx.training.cost import count_step
from evaluation.embedding.encoder import from_checkpoint, from_file
from tests.helpers.hub import write_bert, write_distilbert
from tests.helpers.pairs import START
from tests.helpers.runs import prepared, trained, weights

SMALL = ("small:vit", "small:transformer")


def run(image: str, text: str, image_rank: int = 4, text_rank: int = 4) -> RunConfig:
    embed_dim = None if image.startswith("open_clip:") else 128 if text == SMALL[1] else 16
    towers = ImageTowerConfig(name=image, lora=image_rank), TextTowerConfig(name=text, lora=text_rank)
    model = ModelConfig(image=towers[0], text=towers[1], embed_dim=embed_dim)
    train = TrainConfig(epochs=1, batch_size=8, device="cpu")
    data = DataConfig(name="data", source="shards")
    return RunConfig(name="run", recipe="run", model=model, data=data, train=train, objective={"clip": {}})


def pairs(model: clip.ClipModel, number: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = model.inputs.image_size
    text = torch.randint(5, 9, (number, model.inputs.context_length), generator=generator)
    text[:, 6:] = 0
    return torch.randn(number, 3, size, size, generator=generator), text


def with_adapters(config: RunConfig) -> clip.ClipModel:
    """Build a model whose adapters change its outputs, as after training."""
    torch.manual_seed(config.seed)
    model = clip.build_model(config, pretrained=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".B"):
                parameter.normal_(std=0.1)
    return model


def saved(config: RunConfig) -> Path:
    """Write a run with trained adapters; return its directory."""
    folder, model = RunFolder.create(config).path, with_adapters(config)
    TrainState(model, torch.optim.SGD(model.parameters()), "16:data", step=3).save(folder)
    return folder


def without_adapters(model: clip.ClipModel) -> clip.ClipModel:
    plain = clip.build_model(run(*SMALL, 0, 0), pretrained=False)
    plain.load_state_dict(lora.merged(model.state_dict()))
    return plain


@torch.no_grad()
def embed(model: Any, images: Tensor, texts: Tensor) -> Tensor:
    return torch.cat([model.encode_image(images), model.encode_text(texts)])


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("open_clip:mini-vit-48", "open_clip:mini-vit-48"),
        ("timm:test_vit", "bert"),
        ("timm:test_convnext", "distilbert"),
    ],
)
def test_only_adapters_are_trained_all_of_them_and_merged_they_embed_alike(
    tmp_path: Path, image: str, text: str
) -> None:
    if text in ("bert", "distilbert"):
        text = f"hf:{(write_bert if text == 'bert' else write_distilbert)(tmp_path)}"
    config = run(image, text)
    model = clip.build_model(config)
    plain = clip.build_model(lora.without(config))
    plain.load_state_dict(lora.merged(model.state_dict()))
    batch = pairs(model)
    torch.testing.assert_close(embed(model.eval(), *batch), embed(plain.eval(), *batch), rtol=0, atol=1e-6)

    before = {name: value.clone() for name, value in model.train().state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        embedded = model(*batch, START)
        (embedded[0] @ embedded[1].T * embedded[2]).log_softmax(1).trace().backward()
        optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    heads = {name for name in before if name.split(".")[1] == "projection"}
    assert changed == {name for name in before if name.endswith((".A", ".B"))} | heads | {"temperature.nu"}
    assert len(changed) > 20

    plain.load_state_dict(lora.merged(model.state_dict()))
    torch.testing.assert_close(embed(model.eval(), *batch), embed(plain, *batch), rtol=0, atol=1e-5)


def test_the_gradient_of_adapters_of_attention_is_that_of_the_merged_weights() -> None:
    """2 B^T G and 2 G A^T, where G is the gradient of W."""
    model = with_adapters(run(*SMALL))
    plain = without_adapters(model).requires_grad_(True)
    for each in (model, plain):
        each.train()(*pairs(model), START)[0].square().mul(torch.arange(128)).sum().backward()
    attention: Any = model.image.transformer.resblocks[0].attn  # type: ignore[union-attr, index]
    merged: Any = plain.image.transformer.resblocks[0].attn  # type: ignore[union-attr, index]
    for adapter, gradient in (
        (attention.parametrizations.in_proj_weight[0], merged.in_proj_weight.grad),
        (attention.out_proj.parametrizations.weight[0], merged.out_proj.weight.grad),
    ):
        A, B = adapter.A, adapter.B
        torch.testing.assert_close(A.grad, lora.SCALING * B.T @ gradient, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(B.grad, lora.SCALING * gradient @ A.T, rtol=1e-4, atol=1e-6)


def run_on_disk(root: Path, name: str) -> RunConfig:
    config = prepared(root, epochs=2, save_every=2)
    config.model, config.name, config.optimizer.lr = run(*SMALL).model, name, 0.01
    return config


def test_runs_continue_bit_for_bit_and_start_from_each_other_with_or_without_adapters(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = run_on_disk(tmp_path, "first")
    config.train.ema = 0.5
    first = trained(config)
    expected = weights(first)
    shutil.rmtree(checkpoints(first)[-1])
    fit(config, first)
    assert all(torch.equal(value, expected[name]) for name, value in weights(first).items())

    model = clip.build_model(config)
    load_weights(model, resolve(first))
    batch = pairs(model.eval())
    own = embed(model, *batch)
    for rank in (0, 2):
        config = run_on_disk(tmp_path, f"second{rank}")
        config.model.init, config.model.image.lora = str(first), rank
        second = build_initial_model(config).eval()
        torch.testing.assert_close(embed(second, *batch), own, rtol=0, atol=1e-5)
        assert any("image" in name and name.endswith(".B") for name, _ in second.named_parameters()) is bool(rank)
    assert capfd.readouterr().err.count("(random weights, adapters of rank 4)") == 4  # two towers, two starts
    last, start = trained(config), build_initial_model(lora.without(config))
    assert (
        f"{SMALL[0]} (adapters of rank 2) and {SMALL[1]} (adapters of rank 4) from {first} on" in capfd.readouterr().err
    )
    end = clip.build_model(config)
    load_weights(end, resolve(last))
    final = lora.merged(end.state_dict())
    start.load_state_dict({name: torch.lerp(value, final[name], 0.25) for name, value in start.state_dict().items()})
    encoder, _ = from_checkpoint(last, torch.device("cpu"), alpha=0.25)
    found = torch.cat([encoder.image(batch[0]), encoder.text(batch[1])])
    torch.testing.assert_close(found, embed(start.eval(), *batch), rtol=0, atol=1e-5)


def test_an_exported_run_loads_in_open_clip(tmp_path: Path, light_tower: None) -> None:
    config = replace(run("open_clip:light-48", "open_clip:light-48", text_rank=2), runs=str(tmp_path))
    folder, model = saved(config), with_adapters(config)
    batch = pairs(model)
    expected = clip.build_model(lora.without(config)).eval()
    expected.load_state_dict(lora.merged(model.state_dict()))
    export([str(folder), f"out={tmp_path}/mine.safetensors"])
    theirs: Any = open_clip.create_model("light-48", pretrained=f"{tmp_path}/mine.safetensors").eval()
    with torch.no_grad():
        found = [theirs.encode_image(batch[0], normalize=True), theirs.encode_text(batch[1], normalize=True)]
    torch.testing.assert_close(torch.cat(found), embed(expected, *batch), rtol=0, atol=1e-5)


def test_a_run_that_open_clip_cannot_hold_is_exported_without_adapters(tmp_path: Path) -> None:
    config = run(*SMALL)
    config.runs = str(tmp_path)
    folder, batch = saved(config), pairs(model := with_adapters(config).eval())
    export([str(folder), f"out={tmp_path}/mine.safetensors"])
    own = embed(model, *batch)
    for encoder in (from_file(tmp_path / "mine.safetensors"), from_checkpoint(folder, torch.device("cpu"))[0]):
        found = torch.cat([encoder.image(batch[0]), encoder.text(batch[1])])
        torch.testing.assert_close(found, own, rtol=0, atol=1e-5)


def test_the_forecast_counts_adapters_as_trained_and_all_as_saved() -> None:
    config = run(*SMALL)
    cost, model = count_step(config), clip.build_model(config)
    assert cost.num_trainable == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert cost.num_weights == sum(value.numel() for value in model.state_dict().values())


@pytest.mark.parametrize(
    ("image", "text", "side"),
    [("timm:test_efficientnet", "small:transformer", "image"), ("small:vit", "small:bag", "text")],
)
def test_a_tower_that_cannot_be_adapted_is_refused(image: str, text: str, side: str) -> None:
    with pytest.raises(UserError, match=f"model.{side}.lora=4: the tower has no linear layers"):
        clip.build_model(run(image, text))


@pytest.mark.parametrize("change", ["missing", "another rank", "half"])
def test_an_adapter_of_somebody_else_that_does_not_fit_is_refused(tmp_path: Path, change: str) -> None:
    config = run(*SMALL)
    config.runs = str(tmp_path)
    place = resolve(saved(config))
    kept = load_file(place / WEIGHTS)
    name = next(name for name in kept if name.endswith(".0.B"))
    kept[name] = kept[name].half() if change == "half" else kept[name][:, :2].contiguous()
    save_file({key: value for key, value in kept.items() if (key, change) != (name, "missing")}, place / WEIGHTS)
    with pytest.raises(UserError, match="has an adapter that is incomplete, or of another shape"):
        read_weights(place)


def test_other_parametrizations_keep_their_names() -> None:
    for parametrize in (torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.parametrizations.spectral_norm):
        layer = parametrize(torch.nn.Linear(2, 3))
        weights = {f"image.blocks.0.{name}": value for name, value in layer.state_dict().items()}
        assert lora.merged(weights).keys() == weights.keys()
