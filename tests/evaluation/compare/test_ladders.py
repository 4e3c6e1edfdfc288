"""Ladders: found by the conditions of the comparisons, gains paired by seed, table and figure."""

import math
from dataclasses import replace
from typing import Any

import pytest

from evaluation.compare.ladders import Ladder, find_ladders
from evaluation.compare.methods import compare
from evaluation.report import comparison
from evaluation.runs.groups import group_runs
from evaluation.runs.reader import Run
from tests.helpers.method_runs import runs_of
from tests.helpers.synthetic import result

POINTS = (10_000, 640, 2_560)
LEVELS = {"clip": (0.60, 0.50, 0.55), "high": (0.65, 0.49, 0.55)}  # at each of POINTS


def at(samples: int, arm: str, level: float, seeds: int = 3, **changes: Any) -> list[Run]:
    """Return the runs of an arm at a point; their names contain the point."""
    settings = {"train": {"samples": samples, "batch_size": 64}, "optimizer": {"lr": 0.1}} | changes
    runs = runs_of(arm, level, seeds, **settings)
    suffix = "".join(f"-train.samples_{samples}" for _ in range(samples > 0))
    return [replace(one, name=one.name + suffix, path=one.path.parent.parent / (one.name + suffix)) for one in runs]


def runs_at(points: tuple[int, ...] = POINTS, **changes: Any) -> list[Run]:
    return [
        one
        for arm, levels in LEVELS.items()
        for samples, level in zip(points, levels, strict=False)
        for one in at(samples, arm, level, objective={arm: {}}, **changes)
    ]


def ladders_of(runs: list[Run], reference: str = "") -> list[Ladder]:
    return find_ladders(compare(group_runs(runs))[0], reference)


def values(ladder: Ladder, method: str) -> list[float | None]:
    return [None if gain is None else round(gain.value, 6) for gain in ladder.gains[method]]


def test_gains_at_all_points_are_the_paired_differences_of_the_comparisons() -> None:
    (ladder,) = ladders_of(runs_at())
    assert (ladder.axis, ladder.x, ladder.reference) == ("samples", [640, 2_560, 10_000], "clip")
    assert values(ladder, "high") == pytest.approx([-0.01, 0, 0.05], abs=1e-3)
    for one, gain in zip(ladder.points, ladder.gains["high"], strict=True):
        high, clip = sorted(one.ranked, key=lambda method: method.label, reverse=True)
        assert gain == one.difference(high, clip)
    (other,) = ladders_of(runs_at(), "high")
    assert values(other, "clip") == [-value for value in values(ladder, "high") if value is not None]


def test_a_point_lies_at_the_samples_of_the_runs_that_did_not_diverge() -> None:
    samples = [one.config.train.samples or 0 for one in runs_at()]
    logs = [[{"step": seen // 64, "samples": seen}] for seen in samples]
    runs = [replace(one, log=log) for one, log in zip(runs_at(), logs, strict=True)]
    lost = result("train", "d", "loss", math.nan)
    runs[0] = replace(runs[0], log=[{"step": 1, "samples": 64}], results=[lost])
    (ladder,) = ladders_of(runs)
    assert ladder.x == [640, 2_560, 10_000]


def test_methods_are_joined_by_their_settings_but_for_the_learning_rate() -> None:
    sweep = at(640, "high", 0.9, seeds=1, objective={"high": {}}, optimizer={"lr": 0.7})
    changed = at(40_960, "high", 0.9, objective={"high": {"weight": 2}})
    reference = at(40_960, "clip", 0.7, objective={"clip": {}}, optimizer={"lr": 0.2})
    (ladder,) = ladders_of([*runs_at(), *sweep, *changed, *reference])
    assert [*ladder.gains] == ["high"] and ladder.x[-1] == 40_960
    assert ladder.gains["high"][-1] is None, "another weight is another method"
    assert values(ladder, "high")[0] == pytest.approx(-0.01, abs=1e-3), "the rate with three seeds counts"


def test_methods_with_one_label_are_told_apart_by_their_settings() -> None:
    """A method that is the only one with its arm at its first point has the label of the arm there."""
    points = (160, *POINTS, 40_960)
    runs = []
    for tau, of in ((0.07, (640, 2_560, 10_000)), (0.1, (160, 2_560, 10_000)), (0.2, (2_560, 10_000, 40_960))):
        for arm in ("high", *["clip"] * (tau == 0.1)):
            for samples in of:
                found = at(samples, arm, 0.5 + tau, objective={arm: {}}, temperature={"tau": tau})
                runs += [replace(one, name=f"{one.name}-{tau}", path=one.path / str(tau)) for one in found]
    reference = [one for samples in points for one in at(samples, "clip", 0.5, objective={"clip": {}})]
    (ladder,) = ladders_of([*reference, *runs])
    high = {f"high temperature.tau={tau}" for tau in (0.07, 0.1, 0.2)}
    assert high <= {*ladder.gains} and len(ladder.gains) == 4
    assert ladder.reference not in ladder.gains


def test_other_towers_are_a_ladder_of_their_own() -> None:
    others = runs_at(model={side: {"name": "open_clip:b"} for side in ("image", "text")})
    found = ladders_of([*runs_at(), *[replace(one, name=f"{one.name}-b") for one in others]])
    assert [len(ladder.x) for ladder in found] == [3, 3]
    assert len({comparison.ladder_title(ladder) for ladder in found}) == 2


def test_points_scored_on_other_sets_or_conditions_of_two_axes_are_no_ladder() -> None:
    others = [
        replace(one, results=[replace(row, dataset=f"other_{row.dataset}") for row in one.results])
        for one in runs_at((2_560,))
    ]
    assert ladders_of([*runs_at((640, 10_000)), *others]) == []
    batches = runs_at((2_560,), train={"samples": 2_560, "batch_size": 128})
    assert ladders_of([*runs_at((640, 10_000)), *batches]) == []
