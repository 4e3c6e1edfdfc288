"""`clipx watch`: what the logs say of running, finished and diverged runs."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from clipx.run.folder import RunFolder
from tests.helpers.commands import clipx_here


def write_log(run: Path, **last: Any) -> None:
    """Write a log whose last two lines are 100 images apart at 50 images per second."""
    run.mkdir(parents=True)
    rows: list[dict[str, Any]] = [
        {"step": 10 * k, "samples": 100 * k, "loss": 2.0 / k, "images_per_s": 50.0, "tau": 0.07} for k in (1, 2)
    ]
    rows[-1] |= {"progress": 0.25, "left_s": 90.0, "geometry": {"gap": 0.5}, "evaluation": {"a": 0.2, "b": 0.4}} | last
    (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "config.yaml").write_text("name: x\nrecipe: x\n")


def test_a_line_has_progress_loss_tau_gap_score_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    write_log(tmp_path / "runs/a/s0")
    write_log(tmp_path / "runs/b/s0", progress=1.0, left_s=0.0, evaluation={"a": 0.3, "b": None})
    write_log(tmp_path / "runs/c/s0")
    RunFolder(tmp_path / "runs/c/s0").record_divergence(20, 3)
    write_log(tmp_path / "runs/d/s0")
    long_ago = time.time() - 3600
    os.utime(tmp_path / "runs/d/s0/log.jsonl", (long_ago, long_ago))
    lines = [line.split() for line in clipx_here("watch", cwd=tmp_path).stdout.splitlines() if "/s0" in line]
    assert " ".join(lines[0]) == "a/s0 25% 1 min 30 s 1.000 █▁ 0.0700 0.500 30.0% 50 running"
    assert [" ".join(line[-4:]) for line in lines[1:3]] == ["0.500 30.0% 50 finished", "diverged at step 20"]
    assert "silent for 1 h" in " ".join(lines[3])
