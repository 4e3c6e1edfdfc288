"""results.jsonl: what cannot be a result is named, half a last line is nothing."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from clipx.errors import UserError
from evaluation import results
from evaluation.types import Result

ROW = Result("zeroshot", "set", "test", "top1", 0.5, 10, 0.4, 0.6, 0.1, True, 0, "model", {"checkpoint": "aa"})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    results.write(tmp_path / "r.jsonl", [ROW, ROW])
    assert results.read(tmp_path / "r.jsonl") == [ROW, ROW]
    assert results.read(tmp_path / "missing.jsonl") == []


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps(asdict(ROW))
    (tmp_path / "r.jsonl").write_text(f"{whole}\n{whole[:30]}")
    assert results.read(tmp_path / "r.jsonl") == [ROW]


@pytest.mark.parametrize("change", [{"value": "abc"}, {"hashes": 3}, {"low": None}, {"more": 1}])
def test_a_line_that_is_no_result_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    lines = [json.dumps(asdict(ROW)), json.dumps({**asdict(ROW), **change})]
    (tmp_path / "r.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"r.jsonl:2 is no result"):
        results.read(tmp_path / "r.jsonl")
