"""Every test has its own cache folder, real data only where CLIPX_DATA says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# before any import of torch, as in cli.main: tests run beside worker processes
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from tests.helpers.gloo import Gloo, pool


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices and features of one test are not seen by another."""
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of CLIPX_DATA; tests that use it are marked real_data."""
    folder = os.environ.get("CLIPX_DATA")
    if not folder:
        pytest.skip("CLIPX_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def gloo() -> Iterator[Gloo]:
    """Worker processes for tests on several ranks, shared by the session."""
    with pool() as workers:
        yield workers
