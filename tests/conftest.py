"""Fixtures of all tests: a cache folder per test, real data, worker processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# must be set before torch is imported, as in cli.main: waiting threads must not spin while workers compute
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from evaluation.embedding.kept_inputs import forget
from tests.helpers.gloo import Gloo, pool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first, so that all cores finish at about the same time."""
    items.sort(key=lambda item: not any(item.get_closest_marker(name) for name in ("slow", "long")))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test empty caches, so that no cached index, input or features leak between tests."""
    forget()
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder CLIPX_DATA, or skip the test; tests that use it are marked real_data."""
    folder = os.environ.get("CLIPX_DATA")
    if not folder:
        pytest.skip("CLIPX_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def gloo() -> Iterator[Gloo]:
    """Yield worker processes for tests on several ranks, shared by the session."""
    with pool() as workers:
        yield workers
