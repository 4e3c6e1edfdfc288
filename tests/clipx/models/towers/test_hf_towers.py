"""Hugging Face text towers: class token, padding mask, complete weights, errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clipx.config.schema import TextTowerConfig
from clipx.errors import UserError
from clipx.models.towers import hf_towers
from tests.helpers.hub import write_bert, write_distilbert


def build(folder: Path | str, pretrained: str | None = None, length: int | None = 12, load: bool = True) -> Any:
    config = TextTowerConfig(name=f"hf:{folder}", pretrained=pretrained, context_length=length)
    return hf_towers.build_hf_tower(config, 16, load)


@pytest.mark.parametrize("pooling", ["class", "mean", "last"])
def test_pooling_equals_a_loop_over_the_tokens_without_padding(tmp_path: Path, pooling: str) -> None:
    folder = write_distilbert(tmp_path)
    config = TextTowerConfig(name=f"hf:{folder}", context_length=8, pooling=pooling)
    body: Any = hf_towers.build_hf_tower(config, 16, True).body.eval()
    text = torch.randint(1, 100, (3, 8))
    for row, length in zip(text, (8, 5, 1), strict=True):
        row[length:] = 0
    for row, pooled, length in zip(text, body(text), (8, 5, 1), strict=True):
        hidden = body.encoder(input_ids=row[None, :length]).last_hidden_state[0]
        expected = {"class": hidden[0], "mean": hidden.mean(dim=0), "last": hidden[-1]}[pooling]
        assert torch.allclose(pooled, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("stated", "pooling"),
    [("pooling_mode_cls_token", "class"), ("pooling_mode_mean_tokens", "mean"), ("pooling_mode_lasttoken", "last")],
)
def test_a_folder_of_sentence_transformers_states_its_pooling(tmp_path: Path, stated: str, pooling: str) -> None:
    folder = write_distilbert(tmp_path)
    assert build(folder).body.pooling == "class"
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({stated: True, "pooling_mode_max_tokens": False}))
    assert build(folder).body.pooling == pooling
    for other in ('{"pooling_mode_max_tokens": true}', "[" * 20_000 + "]" * 20_000):
        (folder / "1_Pooling/config.json").write_text(other)
        with pytest.raises(UserError, match=r"model\.text\.pooling to class, mean or last"):
            build(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an offline cache of the hub with the repository me/minilm; return the folder of its files."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository, commit = tmp_path / "models--me--minilm", "0123456789" * 4
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    return repository / "snapshots" / commit


def test_a_repository_of_the_hub_states_its_pooling(hub: Path) -> None:
    with pytest.raises(UserError, match=r"not be downloaded; .* or set model\.text\.pooling to class, mean or last"):
        hf_towers._pooling_of("me/minilm")  # a guess would be another tower
    (hub / "1_Pooling").mkdir()
    (hub / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    assert hf_towers._pooling_of("me/minilm") == "mean"
    assert hf_towers._pooling_of("distilbert-base-uncased") == "class"
    (hub / "1_Pooling/config.json").unlink()
    missing = hub.parents[1] / ".no_exist" / hub.name / "1_Pooling"
    missing.mkdir(parents=True)
    (missing / "config.json").touch()  # known to have no such file
    assert hf_towers._pooling_of("me/minilm") == "class"


def test_roberta_takes_fewer_tokens_than_it_has_positions(tmp_path: Path) -> None:
    write_bert(tmp_path, "roberta")
    tower = build(tmp_path, length=None)
    assert tower.inputs.context_length == 38
    assert tower.module(torch.randint(3, 50, (1, 38))).isfinite().all()
    with pytest.raises(UserError, match="context_length=39 is more than the 38 tokens"):
        build(tmp_path, length=39)


@pytest.mark.parametrize("form", ["folder", "safetensors", "pytorch", "with a head"])
def test_local_weights_are_loaded(tmp_path: Path, form: str) -> None:
    folder = write_distilbert(tmp_path / "model", weights=True)
    expected = build(folder, str(folder)).body.encoder.state_dict()
    path = {"folder": folder, "safetensors": folder / "model.safetensors"}.get(form, tmp_path / "w.pt")
    prefix = "distilbert." if form == "with a head" else ""
    torch.save({f"{prefix}{k}": v for k, v in expected.items()}, tmp_path / "w.pt")
    torch.manual_seed(99)
    found = build(folder, str(path)).body.encoder.state_dict()
    assert all(torch.equal(found[k], v) for k, v in expected.items())
    random = build(folder).body.encoder.state_dict()
    assert not all(torch.equal(random[k], v) for k, v in expected.items())


def test_weights_that_lack_a_parameter_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = write_distilbert(tmp_path, weights=True)
    weights = load_file(folder / "model.safetensors")
    weights.pop("transformer.layer.0.ffn.lin1.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for place in (folder, folder / "model.safetensors"):
        with pytest.raises(UserError, match=r"1 are missing, such as transformer.layer.0.ffn.lin1.weight"):
            build(folder, str(place))


def test_distilbert_is_built_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clipx.utils.hub.reachable", lambda: pytest.fail("the hub was contacted"))
    from transformers import DistilBertConfig

    shape = hf_towers._load_config("distilbert-base-uncased")
    defaults = DistilBertConfig()
    keys = ("vocab_size", "dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings", "activation")
    assert all(getattr(shape, key) == getattr(defaults, key) for key in keys)


def test_weights_that_cannot_be_downloaded_are_refused(no_hub: None) -> None:
    with pytest.raises(UserError, match=r"run `hf download nobody/nothing`.*or give a local folder"):
        build("nobody/nothing")
    with pytest.raises(UserError, match=r"run `hf download distilbert-base-uncased`.*null for random weights"):
        build("distilbert-base-uncased", "distilbert-base-uncased")


def test_towers_that_cannot_be_built_are_refused(tmp_path: Path) -> None:
    folder = write_distilbert(tmp_path / "good")
    with pytest.raises(UserError, match="context_length=41 is more than the 40 tokens"):
        build(folder, length=41)
    with pytest.raises(UserError, match="does not hold weights of hf:"):
        build(folder, str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no usable config.json"):
        build(tmp_path / "empty")
    shape = json.loads((folder / "config.json").read_text()) | {"dim": 32, "n_heads": 3}
    (tmp_path / "empty" / "config.json").write_text(json.dumps(shape))
    with pytest.raises(UserError, match=r"has no usable config.json: .*n_heads"):
        build(tmp_path / "empty")
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UserError, match="is not a text encoder with a class token"):
        build(tmp_path / "t5")
    with pytest.raises(UserError, match=r"model.embed_dim= is needed"):
        hf_towers.build_hf_tower(TextTowerConfig(name=f"hf:{folder}"), None, True)
