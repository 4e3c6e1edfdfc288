"""A fixture for tests of reports."""

import pytest

from evaluation.report.writer import SECTIONS


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the section on training: its figures take most of the time of a small report."""
    monkeypatch.setitem(SECTIONS, "Training", lambda contents: [])
