"""Fixtures for all tests: a cache folder per test, no hub, real data, worker processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# As in cli.main, set before torch is imported: threads that wait must not spin while worker processes compute.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from evaluation.embedding.kept_inputs import forget
from tests.helpers.gloo import Gloo, pool


def pytest_configure() -> None:
    """Handle SIGINT: a shell script starts `pytest &` with SIGINT ignored, and commands under test inherit this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that all cores finish at about the same time."""
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("slow", "long")))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test empty caches, so that it cannot read an index, inputs or features that another test cached."""
    forget()
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the Hugging Face hub unreachable and its cache empty."""
    monkeypatch.setattr("clipx.utils.hub.reachable", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder named by CLIPX_DATA, or skip the test. Mark tests that use this fixture with real_data."""
    folder = os.environ.get("CLIPX_DATA")
    if not folder:
        pytest.skip("CLIPX_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def gloo() -> Iterator[Gloo]:
    """Yield a pool of worker processes for tests on several ranks. All tests of a session share it."""
    with pool() as workers:
        yield workers
