"""Suites of evaluation sets and their means."""

from dataclasses import replace
from pathlib import Path

import pytest

from clipx.config.evaluation import EvalConfig
from clipx.config.setting import settings_of
from clipx.errors import UserError
from evaluation.datasets.named import NAMED
from evaluation.runs.suites import METRIC, SUITES, mean_line, sets_of
from evaluation.types import Result
from tests.helpers import replicas


def row(task: str, dataset: str, metric: str, value: float, **hashes: str) -> Result:
    return Result(task, dataset, "test", metric, value, 10, value, value, None, True, 0, "m", hashes)


def test_suites_have_the_published_sizes_and_are_the_choices_of_the_setting() -> None:
    sizes = {name: len(set(sets)) for name, sets in SUITES.items()}
    assert sizes == {"datacomp38": 38, "vtab": 19, "clip13": 13, "composition": 7}
    assert set(settings_of(EvalConfig)["suite"].choices) == {"none", *SUITES}
    assert {name for sets in SUITES.values() for name in sets} <= set(NAMED)
    assert set(METRIC) <= set(NAMED)


def test_the_mean_is_over_each_sets_main_metric() -> None:
    rows = [
        row("choices", "sugar_crepe", "accuracy", 0.8),
        row("choices", "sugar_crepe", "accuracy/swap_att", 0.1),
        row("pairs", "winoground", "pair_accuracy", 0.9),
        row("pairs", "winoground", "group_score", 0.3),
        row("choices", "aro_relation", "accuracy", 0.9),
        row("choices", "aro_relation", "mean_per_category", 0.2),
        row("choices", "aro_attribution", "mean_per_category", 0.3),
        row("choices", "aro_coco_order", "accuracy", 0.4),
        row("choices", "aro_flickr_order", "accuracy", 0.7),
        row("pairs", "mmvp", "pair_accuracy", 0.1),
    ]
    assert mean_line("composition", rows) == "suite composition: mean of 7 sets 40.0%"
    limited = [replace(one, hashes={"limit": "2"}) for one in rows]
    assert mean_line("composition", limited) == "suite composition: mean of 7 sets 40.0% with limit=2"
    without = mean_line("composition", [*rows[:-1], row("pairs", "mmvp", "pair_accuracy", 0.1, pool="9")])
    assert without == "suite composition: 6 of 7 sets, so no mean; missing: mmvp"


def test_each_set_of_datacomp_counts_with_the_metric_of_its_evaluation() -> None:
    """The metrics are `main_metric` in tasklist.yml of github.com/mlfoundations/datacomp."""
    others = {"iwildcam": "macro_f1", "fmow": "worst_group_top1", "geode": "worst_group_top1"}
    others |= {"dollar_street": "worst_group_top5", "winogavil": "jaccard/10-12"}
    others |= dict.fromkeys(("caltech101", "aircraft", "flowers102", "pets"), "mean_per_class")
    rows = []
    for name in SUITES["datacomp38"]:
        if name in ("mscoco", "flickr30k"):
            rows += [row("retrieval", name, f"{way}_recall@1", 0.25) for way in ("image_to_text", "text_to_image")]
        elif name == "winogavil":
            rows += [row("associations", name, "jaccard", 0.9), row("associations", name, others[name], 0.25)]
        else:
            rows.append(row("zeroshot", name, others.get(name, "top1"), 0.25))
            rows += [row("zeroshot", name, "top1", 0.9)] if name in others else []
    assert mean_line("datacomp38", rows) == "suite datacomp38: mean of 38 sets 25.0%"
    without = [one for one in rows if (one.dataset, one.metric) != ("pets", "mean_per_class")]
    assert mean_line("datacomp38", without).endswith("37 of 38 sets, so no mean; missing: pets")


def test_only_sets_below_root_are_evaluated_and_a_suite_without_any_is_refused(tmp_path: Path) -> None:
    replicas.winoground(tmp_path, ["Object"])
    assert sets_of("composition", tmp_path) == ["winoground"]
    with pytest.raises(UserError, match=r"suite=clip13: none of its sets is in sets=.* \(imagenet, cifar10,"):
        sets_of("clip13", tmp_path)
    with pytest.raises(UserError, match="suite=vtap is not known; did you mean 'vtab'"):
        sets_of("vtap", tmp_path)
