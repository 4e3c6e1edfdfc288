"""A fixture for tests of data sources that use Hugging Face `datasets`."""

from pathlib import Path

import datasets
import pytest


@pytest.fixture
def own_datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test an empty cache of `datasets`, without progress bars and without 5 s after each unfinished pass."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr("datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.1, raising=False)
    datasets.disable_progress_bars()
