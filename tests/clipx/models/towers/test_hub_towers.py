"""Runs with towers of timm and Hugging Face: train, resume and evaluate."""

import logging
from http.client import BadStatusLine
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from clipx.config.schema import RunConfig
from clipx.models import clip
from clipx.run import checkpoint
from clipx.run.folder import RunFolder
from clipx.train import fit
from clipx.utils.hub import quiet_hub, reachable
from evaluation.embedding.encoder import from_checkpoint
from tests.helpers import folder, hub
from tests.helpers.runs import trained

CPU = torch.device("cpu")


def settings(root: Path, epochs: int) -> RunConfig:
    config = folder.settings(root, epochs=epochs, save_every=1)
    config.model = hub.settings(root / "text").model
    config.data.clean = "lower_no_punctuation"
    config.data.rand_augment = [2, 7]
    return config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder.write_shards(tmp_path / "train", samples=16)
    hub.write_distilbert(tmp_path / "text", weights=True)
    return tmp_path


def test_a_run_is_evaluated_without_the_weights_it_started_from(root: Path) -> None:
    config = settings(root, epochs=1)
    config.model.text.pretrained = str(root / "text" / "model.safetensors")
    run = trained(config)
    (root / "text" / "model.safetensors").unlink()
    encoder, _ = from_checkpoint(run, CPU)
    model = clip.build_model(RunFolder(run).load_config(), pretrained=False)
    checkpoint.load_weights(model, checkpoint.resolve(run))
    tokens = encoder.tokenize(["A red, picture!", "number 3 is blue"])
    assert torch.equal(tokens[0], encoder.tokenize(["a red picture"])[0]), "prompts are cleaned like captions"
    with torch.no_grad():
        assert torch.allclose(encoder.text(tokens), model.eval().encode_text(tokens), atol=1e-6)


def test_a_resumed_run_with_a_frozen_tower_equals_an_uninterrupted_one(root: Path) -> None:
    weights = []
    for name, ends in (("uninterrupted", [2]), ("resumed", [1, 2])):
        for epochs in ends:
            config = settings(root, epochs)
            config.schedule.kind = "constant"
            config.name, config.model.image.frozen = name, True
            (run := RunFolder.of(config).path).mkdir(parents=True, exist_ok=True)
            fit(config, run)
        model = clip.build_model(config)
        checkpoint.load_weights(model, checkpoint.resolve(run))
        weights.append(model.state_dict())
    assert all(torch.equal(weights[0][key], value) for key, value in weights[1].items())


def test_logging_stays_as_the_user_disabled_it() -> None:
    logging.disable(logging.CRITICAL)
    try:
        with quiet_hub(fetching=False):
            assert logging.root.manager.disable == logging.CRITICAL
        assert logging.root.manager.disable == logging.CRITICAL
    finally:
        logging.disable(logging.NOTSET)


def test_a_proxy_that_answers_in_another_protocol_counts_as_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=BadStatusLine("\5\xff")))  # of a SOCKS proxy
    assert not reachable.__wrapped__()
