"""Fixtures of the evaluation's tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads what another, or the user, has cached."""
    monkeypatch.setenv("CLIPX_CACHE", str(tmp_path / "cache"))
