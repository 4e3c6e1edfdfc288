"""Gain, forgetting and area against plain loops over seeds and data sets, and which run counts as the start."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

from evaluation.compare.forgetting import FineTuning, fine_tunings
from evaluation.runs import reader, results
from evaluation.runs.groups import group_runs
from evaluation.runs.reader import Run
from tests.helpers.fine_tuning_runs import END, MIDDLE, RECIPE, START, all_runs, one_run, values
from tests.helpers.synthetic import result, run, write


def only(runs: list[Run]) -> FineTuning:
    (found,) = fine_tunings(group_runs(runs))
    return found


def approx(changes: list[float]) -> Any:
    """Return the mean of the changes and its interval (Student's t)."""
    low, high = stats.ttest_1samp(changes, 0.0).confidence_interval(0.95)
    return pytest.approx((fmean(changes), low, high))


def test_gain_and_forgetting_are_paired_differences_to_the_start_run() -> None:
    found = only(all_runs())
    assert found.kept == ["zeroshot cifar10", "zeroshot scenesshape"]
    assert found.new == ["retrieval newcaptions", "zeroshot newcolour", "zeroshot newshape"]
    assert [found.titles[name] for name in found.kept] == ["zeroshot wds_cifar10", "zeroshot scenes_shape"]
    assert [arm.label for arm in found.arms] == ["clip", "frozen"], "the largest gain minus forgetting must come first"
    (clip,) = [arm for arm in found.arms if arm.label == "clip"]
    gains, losses = [], []
    for seed in range(4):
        captions = 0.7 - 0.03 * seed - 0.2
        gains.append((captions + (0.6 - 0.4) + (0.7 + 0.01 * seed - 0.2)) / 3)
        losses.append(((0.9 - 0.5) + (0.8 - 0.7)) / 2)
    gain = clip.mean(lambda change: change.gain)
    assert (gain.value, gain.low, gain.high) == approx(gains)
    assert clip.mean(lambda change: change.forgetting).value == pytest.approx(fmean(losses))
    net = clip.mean(lambda change: change.net)
    expected = [gain - loss for gain, loss in zip(gains, losses, strict=True)]
    assert (net.value, net.low, net.high) == approx(expected)
    assert clip.mean(lambda change: change.by_set["zeroshot scenesshape"]).value == pytest.approx(-0.4)


def test_only_sets_of_all_runs_count_and_without_a_new_one_all_runs_are_left_out() -> None:
    runs = all_runs()
    extra = [*runs[4].results, result("zeroshot", "food101", "top1", 0.9)]
    assert only([*runs[:4], replace(runs[4], results=extra), *runs[5:]]).new == only(runs).new
    last = replace(runs[-1], results=[row for row in runs[-1].results if "new" not in row.dataset])
    found = only([*runs[:-1], last])
    assert found.new == [] and found.arms == [] and len(found.left_out) == 8


def test_runs_without_their_start_run_are_left_out_and_named() -> None:
    found = only([one for one in all_runs() if (one.config.arm, one.seed) != ("start", 2)])
    assert {path.parent.name for path in found.left_out} == {"finetune_mini-clip", "finetune_mini-frozen"}
    assert {path.name for path in found.left_out} == {"s2"}
    assert all(set(arm.curves) == {0, 1, 3} for arm in found.arms)


def test_runs_that_keep_no_set_or_start_from_nothing_have_no_forgetting() -> None:
    start, *_ = all_runs()
    assert fine_tunings(group_runs([start, one_run("clip", 0, START, kept=[])])) == []
    assert fine_tunings(group_runs([start, one_run("clip", 0, START, init=None)])) == []


@pytest.mark.parametrize("init", ["RUN", "RUN/checkpoints/step_00000010"])
def test_the_start_run_may_be_a_folder_or_a_checkpoint(init: str) -> None:
    start = run("demo", "", 7, values(START, 0))
    tuned = one_run("clip", 0, END["clip"], init=init.replace("RUN", str(start.path)))
    (arm,) = only([start, tuned]).arms
    assert arm.mean(lambda change: change.forgetting).value == pytest.approx(0.25)


def test_an_earlier_checkpoint_counts_with_its_own_results(tmp_path: Path) -> None:
    start = run("demo", "", 7, values(dict.fromkeys(START, 0.99), 0))  # results of the last checkpoint
    start = replace(start, path=write(tmp_path, start))
    checkpoint = start.path / "checkpoints" / "step_00000010"
    checkpoint.mkdir(parents=True)
    tuned = one_run("clip", 0, END["clip"], init=str(checkpoint))
    tuned = replace(tuned, environment={"init": {"checkpoint": str(checkpoint), "sha256": "a" * 64}})
    others = [replace(row, hashes={"checkpoint": "b" * 16}) for row in start.results]
    assert only([replace(start, results=others), tuned]).left_out == [tuned.path]
    rows = [replace(result(*key, value), hashes={"checkpoint": "a" * 16}) for key, value in values(START, 0).items()]
    results.write(start.path / "intermediate" / checkpoint.name / "results.jsonl", rows)
    (arm,) = only([replace(start, results=others), tuned]).arms
    assert arm.mean(lambda change: change.forgetting).value == pytest.approx(0.25)


def test_the_start_run_has_the_same_overrides_as_the_run() -> None:
    suffix = "-optimizer.lr_0.1"
    runs = all_runs(1)
    plain, longer = runs[0], replace(runs[0], name=f"{RECIPE}-start{suffix}", results=[])
    longer = replace(longer, path=Path("runs") / longer.name / "s0")
    tuned = replace(runs[1], name=runs[1].name + suffix, path=Path("runs") / f"{runs[1].name}{suffix}" / "s0")
    assert only([plain, longer, tuned]).left_out == [tuned.path], "scores of another start run were used"


def test_interpolated_weights_give_a_curve_and_its_area(tmp_path: Path) -> None:
    for one in all_runs(3):
        folder = write(tmp_path, one)
        if one.config.arm == "clip":
            rows = [result(*key, value, one.seed) for key, value in values(MIDDLE, 0).items()]
            for name in ("0.25", "0.25.1", "copy"):  # only the first is the name of a coefficient
                results.write(folder / f"interpolated/{name}/results.jsonl", rows)
    found = only(reader.find([tmp_path]))
    clip, frozen = sorted(found.arms, key=lambda arm: arm.label)
    assert frozen.path() == [] and frozen.area() is None
    gains, losses = [0.0, 1.0 / 3, 0.0], [0.0, 0.05, 0.25]  # at alpha 0, 0.25 and 1; the next line sets the last gain
    gains[2] = clip.mean(lambda change: change.gain).value
    assert clip.path() == [pytest.approx(point) for point in zip(losses, gains, strict=True)]
    net = [gain - loss for gain, loss in zip(gains, losses, strict=True)]
    area = clip.area()
    assert area and area.value == pytest.approx(0.25 * (net[0] + net[1]) / 2 + 0.75 * (net[1] + net[2]) / 2)
