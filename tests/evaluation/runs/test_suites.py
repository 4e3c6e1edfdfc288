"""Suites of evaluation sets and their means."""

from pathlib import Path

import pytest

from clipx.config.eval_schema import EvalConfig
from clipx.config.setting import settings_of
from clipx.errors import UserError
from evaluation.datasets.named import NAMED
from evaluation.runs.suites import SUITES, mean_line, sets_of
from evaluation.types import Result
from tests.helpers import replicas


def row(task: str, dataset: str, metric: str, value: float, **hashes: str) -> Result:
    return Result(task, dataset, "test", metric, value, 10, value, value, None, True, 0, "m", hashes)


def test_suites_have_the_published_sizes_and_are_the_choices_of_the_setting() -> None:
    sizes = {name: len(set(sets)) for name, sets in SUITES.items()}
    assert sizes == {"datacomp38": 38, "vtab": 19, "clip13": 13, "composition": 3}
    assert set(settings_of(EvalConfig)["suite"].choices) == {"none", *SUITES}
    assert set(SUITES["clip13"] + SUITES["composition"] + SUITES["vtab"]) <= set(NAMED)


def test_the_mean_is_over_each_sets_main_metric() -> None:
    rows = [
        row("choices", "sugar_crepe", "accuracy", 0.8),
        row("choices", "sugar_crepe", "accuracy/swap_att", 0.1),
        row("pairs", "winoground", "pair_accuracy", 0.9),
        row("pairs", "winoground", "group_score", 0.3),
        row("pairs", "mmvp", "pair_accuracy", 0.1),
    ]
    assert mean_line("composition", rows) == "suite composition: mean of 3 sets 40.0%"
    without = mean_line("composition", rows[:-1])
    assert without == "suite composition: 2 of 3 sets, so no mean; missing: mmvp"


def test_sets_without_a_layout_and_rows_of_pools_count_as_missing() -> None:
    sets = [name for name in SUITES["datacomp38"] if name in NAMED and name not in ("mscoco", "flickr30k", "pets")]
    rows = [row("zeroshot", name, "top1", 0.5) for name in sets]
    rows += [row("zeroshot", name, "mean_per_class", 0.5) for name in sets]
    rows += [row("retrieval", "mscoco", f"{way}_recall@1", 0.5) for way in ("image_to_text", "text_to_image")]
    rows += [row("retrieval", "flickr30k", f"{w}_recall@1", 0.5, pool="9") for w in ("image_to_text", "text_to_image")]
    rows += [row("zeroshot", "pets", "top1", 0.5)]
    line = mean_line("datacomp38", rows)
    assert f"{len(sets) + 1} of 38 sets" in line
    assert "missing: pets, flickr30k;" in line and "no layout in clipx: winogavil," in line


def test_only_sets_below_root_are_evaluated_and_a_suite_without_any_is_refused(tmp_path: Path) -> None:
    replicas.winoground(tmp_path, ["Object"])
    assert sets_of("composition", tmp_path) == ["winoground"]
    with pytest.raises(UserError, match=r"suite=clip13: none of its sets is below root=.* \(imagenet, cifar10,"):
        sets_of("clip13", tmp_path)
    with pytest.raises(UserError, match="suite=vtap is not known; did you mean 'vtab'"):
        sets_of("vtap", tmp_path)
