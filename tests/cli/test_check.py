"""`clipx check` tries a few samples of the data, whatever the settings of training."""

from pathlib import Path

import pytest
import torch

from cli.check import _read_some
from clipx.training.setup import build_components
from tests.helpers.runs import prepared


def test_a_few_samples_are_decoded_without_filling_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = prepared(tmp_path, samples=32)
    config.data.cache = "memory"
    monkeypatch.setattr("clipx.data.loading.cache.open_pixels", None)  # a call would fail
    components = build_components(config, torch.device("cpu"), 32, "generated")
    assert _read_some(config, components) == "32 pairs, 16 decoded"
