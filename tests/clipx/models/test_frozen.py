"""Digests of frozen towers: another one for everything that changes the outputs; no load if nothing is missing."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clipx.config.schema import ImageTowerConfig, ModelConfig, RunConfig, TextTowerConfig
from clipx.models import clip, frozen
from clipx.models.frozen import FrozenTower, frozen_towers
from tests.helpers.folder import settings
from tests.helpers.hub import write_distilbert

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    """Return a run with a convolutional tower of random weights and a local text tower, both frozen."""
    folder = write_distilbert(tmp_path / "text", weights=True)
    config = settings(tmp_path)
    config.model.image = ImageTowerConfig(name="small:conv", frozen=True)
    config.model.text = TextTowerConfig(
        name=f"hf:{folder}", pretrained=str(folder), context_length=8, pooling="mean", frozen=True
    )
    config.model.embed_dim = 16
    config.data.features = True
    return config


def change_weight(config: RunConfig) -> None:
    file = Path(str(config.model.text.pretrained)) / "model.safetensors"
    weights = load_file(file)
    first = sorted(weights)[0]
    weights[first].view(-1)[0] += 1e-3
    save_file(weights, file, metadata={"format": "pt"})


def change_tokenizer(config: RunConfig) -> None:
    with (Path(str(config.model.text.pretrained)) / "vocab.txt").open("a") as file:
        file.write("another\n")


CHANGES: dict[str, tuple[str, Callable[[RunConfig], Any]]] = {  # what changes -> side, change
    "a weight": ("text", change_weight),
    "the tokenizer": ("text", change_tokenizer),
    "pooling": ("text", lambda config: setattr(config.model.text, "pooling", "class")),
    "the context": ("text", lambda config: setattr(config.model.text, "context_length", 9)),
    "text cleaning": ("text", lambda config: setattr(config.data, "clean", "lower_no_punctuation")),
    "the image size": ("image", lambda config: setattr(config.model.image, "size", 40)),
    "the trained blocks": ("text", lambda config: setattr(config.model.text, "trainable_blocks", 1)),
    "tokens instead of one vector": ("text", lambda config: setattr(config.model.points, "kernel", "imq")),
}


def test_the_digest_changes_with_all_that_changes_the_outputs_of_a_tower(config: RunConfig) -> None:
    for what, (side, change) in CHANGES.items():
        if what.startswith("tokens"):
            config.model.image.name = "small:vit"
        changed = deepcopy(config)
        before = frozen_towers(config)
        change(changed)
        after = frozen_towers(changed)
        assert before[side].digest != after[side].digest, what
        if not what.startswith("tokens"):
            other = "image" if side == "text" else "text"
            assert before[other].digest == after[other].digest, what


@pytest.mark.parametrize(
    "changed",
    [{"mean": (0.1, 0.2, 0.3)}, {"std": (0.1, 0.2, 0.3)}, {"interpolation": "nearest"}, {"resize_mode": "squash"}],
    ids=str,
)
def test_the_digest_changes_with_the_transform(
    config: RunConfig, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = frozen_towers(config)["image"].digest
    load = frozen._load

    def other(model: ModelConfig, side: str) -> Any:
        *rest, tower = load(model, side)
        return *rest, replace(tower, inputs=replace(tower.inputs, **changed))

    monkeypatch.setattr(frozen, "_load", other)
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "empty"))  # forget the tower
    after = frozen._describe(config, "image")
    assert getattr(after.inputs, *changed) == changed[next(iter(changed))] and after.digest != before


def test_the_precision_is_another_file_of_the_same_tower(config: RunConfig) -> None:
    half = replace(config, data=replace(config.data, feature_precision="float16"))
    ours, theirs = frozen_towers(config)["image"], frozen_towers(half)["image"]
    assert (ours.digest, ours.precision, theirs.precision) == (theirs.digest, "float32", "float16")


def test_a_known_tower_is_not_loaded(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {side: tower.digest for side, tower in frozen_towers(config).items()}
    monkeypatch.setattr(frozen, "_load", None)  # a call would fail
    assert {side: tower.digest for side, tower in frozen_towers(config).items()} == expected


def test_padding_is_known_and_its_outputs_are_zero(config: RunConfig) -> None:
    config.model.image.name = "small:vit"
    config.model.points.kernel = "imq"
    tower: FrozenTower[Any] = frozen_towers(config)["text"]
    text = torch.tensor([[5, 6, 7, 0, 0, 0, 0, 0], [5, 6, 0, 8, 9, 0, 0, 0]])  # one has padding between its tokens
    outputs = tower(text, torch.device("cpu"))
    assert tower.padding == 0
    assert outputs.shape == (2, 5, tower.shape[1]) and tower.shape[0] == 8
    assert outputs[0, :3].any(dim=1).all() and outputs[1, [0, 1, 3, 4]].any(dim=1).all()
    assert not outputs[0, 3:].any()
    torch.testing.assert_close(outputs, tower.body(text)[:, :5])


def test_grad_checkpointing_needs_no_support_of_a_tower_whose_features_are_stored(config: RunConfig) -> None:
    config.model.text.frozen, config.train.grad_checkpointing = False, True
    text: Any = clip.build_model(config).text
    assert text.body.encoder.is_gradient_checkpointing
