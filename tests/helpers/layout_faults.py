"""Put a fault into the files of an evaluation set, and read the error that it raises."""

from pathlib import Path
from typing import Any

import pytest

from clipx.errors import UserError
from evaluation.datasets.opening import open_dataset
from evaluation.types import DEFAULTS, Settings


def edit(path: Path, old: str, new: str) -> None:
    """Replace all occurrences of `old`; there must be one."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def forbid(monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, end: str) -> None:
    """Let a function raise PermissionError for paths with this end: who runs the tests may be allowed to read all."""
    allowed = getattr(owner, function)

    def refused(path: Any, *rest: Any, **named: Any) -> Any:
        if str(path).endswith(end):
            raise PermissionError(13, "Permission denied", str(path))
        return allowed(path, *rest, **named)

    monkeypatch.setattr(owner, function, refused)


def error_of(spec: str, settings: Settings = DEFAULTS) -> str:
    """Return the one-line message of the UserError that opening the set or reading its splits raises."""
    with pytest.raises(UserError) as caught:
        data = open_dataset(spec, settings)
        for split in data.splits:
            data.hashes(split, "images")
            assert len([*data.images(split)]) > 0
    assert "\n" not in str(caught.value)
    return str(caught.value)
