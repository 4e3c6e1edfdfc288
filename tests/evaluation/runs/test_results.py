"""results.jsonl: invalid lines, an incomplete last line, replaced rows, and the rows in W&B."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from clipx.errors import UserError
from evaluation.runs import results
from evaluation.types import Result

ROW = Result("zeroshot", "set", "test", "top1", 0.5, 10, 0.4, 0.6, 0.1, True, 0, "model", {"checkpoint": "aa"})


@pytest.mark.parametrize("change", [{"value": "abc"}, {"hashes": 3}, {"low": None}, {"more": 1}])
def test_the_error_names_a_line_that_is_not_a_result(tmp_path: Path, change: dict[str, Any]) -> None:
    lines = [json.dumps(asdict(ROW)), json.dumps({**asdict(ROW), **change})]
    (tmp_path / "r.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"r.jsonl:2 is not a result row"):
        results.read(tmp_path / "r.jsonl")


def test_rows_of_a_pool_do_not_overwrite_the_rows_of_the_full_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = replace(ROW, split="test, 10 of 40 images (seed 0)", value=0.9)
    run = SimpleNamespace(summary={}, finish=lambda: None)
    monkeypatch.setattr("wandb.init", lambda **settings: run)
    results.to_wandb([ROW, pool], "model", "offline", "project", tmp_path)
    assert run.summary == {"zeroshot/set/top1": 0.5, "zeroshot/set, 10 of 40 images (seed 0)/top1": 0.9}
    results.show([ROW, pool])
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.index("50.0") < printed.index("zeroshot set, 10 of 40 images") < printed.index("90.0")


def test_wandb_results_go_to_the_training_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init = MagicMock()
    monkeypatch.setattr("wandb.init", init)
    results.to_wandb([ROW], "model", "offline", "project", tmp_path)
    (tmp_path / "wandb_id").write_text("c0ffee\n")
    results.to_wandb([ROW], "model", "offline", "project", tmp_path)
    asked = [call.kwargs for call in init.call_args_list]
    assert asked[0]["name"] == "eval model" and "id" not in asked[0]
    assert (asked[1]["id"], asked[1]["resume"]) == ("c0ffee", "allow") and "name" not in asked[1]


def test_added_rows_replace_only_rows_with_the_same_hashes(tmp_path: Path) -> None:
    other = replace(ROW, hashes={"checkpoint": "bb"})
    results.write(tmp_path / "r.jsonl", [ROW, other])
    results.add(tmp_path / "r.jsonl", [replace(ROW, value=0.7)])
    assert [(row.value, row.hashes) for row in results.read(tmp_path / "r.jsonl")] == [
        (0.5, {"checkpoint": "bb"}),
        (0.7, {"checkpoint": "aa"}),
    ]
