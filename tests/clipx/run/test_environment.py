"""environment.json records the environment at a run's first start, and what has changed at each later start."""

import json
from pathlib import Path

import pytest
import torch

from clipx.run import environment


def test_later_starts_add_only_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = {"device": "cpu", "processes": 1, "packages": {"torch": "1"}}

    def start(step: int, **changes: object) -> dict[str, object]:
        current.update(changes)
        monkeypatch.setattr(environment, "_current", lambda device: dict(current))
        environment.write(tmp_path, torch.device("cpu"), step)
        read: dict[str, object] = json.loads((tmp_path / "environment.json").read_text())
        return read

    first = start(0)
    assert first == current
    assert start(10) == first  # no change
    later: dict[str, object] = {"step_20": {"device": "gpu"}}
    assert start(20, device="gpu") == {**first, "later": later}
    assert start(30) == {**first, "later": later}
    later["step_40"] = {"device": "cpu", "processes": 2}  # compared with the latest start, not the first
    assert start(40, device="cpu", processes=2) == {**first, "later": later}
    (tmp_path / "environment.json").write_text("{")
    assert start(50) == current
