"""until=decided: the runs that each look adds, the end, and a second call, which goes through the same looks."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.reproduce import until
from cli.reproduce.plan import PlannedRun
from cli.reproduce.until import Experiment, Tried, run_looks
from cli.settings.compose import compose_run
from clipx.config.schema import RunConfig
from clipx.errors import UserError
from evaluation.claims.design import LOOKS_WITHOUT_DESIGN, Design, describe_claims
from evaluation.claims.measures import GAP, ZEROSHOT
from evaluation.claims.types import ANY, Claim, Comparison, Measure, more, rises_over_arms
from tests.helpers import synthetic

RECIPE, S = "gap_mini", 0.01  # s: smallest effect of interest
VALUES = {"far": 0.7, "near": 0.5 + S, "low": 0.5, "other": 0.6}  # far − low is large; near − low is exactly s
NOISE = 0.004  # standard deviation over seeds
FAR = Claim("9.1", "far", "", (RECIPE,), (more("far", "low", ZEROSHOT, S),))
NEAR = Claim("9.2", "near", "", (RECIPE,), (more("near", "low", ZEROSHOT, S),))
LEVEL = Comparison("level", (ANY,), (ZEROSHOT,), lambda v: v[0][0], VALUES["other"])


class FakeTraining:
    """Writes run folders with known effects instead of training.

    Args:
        interrupt: number of runs after which SystemExit is raised, as after a signal.
        stop: number of runs after which no further run is tried, as when hours= is spent.
        broken: arms whose runs fail.
        empty: arm and seed of a run without results.
        failing: arm and seed of a run that fails.
    """

    def __init__(
        self,
        root: Path,
        interrupt: int | None = None,
        stop: int | None = None,
        broken: tuple[str, ...] = (),
        empty: tuple[str, int] | None = None,
        failing: tuple[str, int] | None = None,
    ) -> None:
        self.root, self.interrupt, self.stop, self.broken = root, interrupt, stop, broken
        self.empty, self.failing = empty, failing
        self.batches: list[list[tuple[str, int]]] = []
        self.written = 0

    def run_all(self, runs: list[PlannedRun]) -> Tried:
        self.batches.append([(run.config.arm, run.config.seed) for run in runs])
        tried = Tried()
        for run in runs:
            if run.config.arm in self.broken or (run.config.arm, run.config.seed) == self.failing:
                tried.failures[run.folder] = UserError("broken")
                continue
            if not run.folder.exists():
                if self.written == self.interrupt:
                    raise SystemExit(75)
                if self.written == self.stop:
                    return replace(tried, stopped=True)
                write(self.root, run.config.arm, run.config.seed)
                if (run.config.arm, run.config.seed) == self.empty:
                    (run.folder / "results.jsonl").write_text("")
                self.written += 1
            tried.finished.append(run.folder)
        return tried


def write(root: Path, arm: str, seed: int, seconds: float = 60.0, recipe: str = RECIPE) -> None:
    noise = random.Random(f"{arm} {seed}").gauss(0, NOISE)
    log = [{"step": 1, "samples": 64, "images_per_s": 64 / seconds}]
    values = {("zeroshot", "s", "top1"): VALUES.get(arm, 0.5) + noise, ("geometry", "s", "gap"): 0.1 + noise}
    synthetic.write(root, synthetic.run(recipe, arm, seed, values, log))


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return compose_run([f"recipe={RECIPE}", "arm=base"])


Make = Callable[..., Experiment]


@pytest.fixture
def experiment(config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes an experiment of all arms of VALUES, with runs in tmp_path."""

    def make(*claims: Claim, max_seeds: int | None = None, arms: tuple[str, ...] = tuple(VALUES)) -> Experiment:
        monkeypatch.setattr(until, "claims_of", lambda recipe: list(claims))
        design = Design(RECIPE, "hash", arms, LOOKS_WITHOUT_DESIGN, describe_claims(RECIPE, claims))
        runs = [
            PlannedRun([], replace(config, name=f"{RECIPE}-{arm}", arm=arm, seed=seed, runs=str(tmp_path)))
            for seed in range(100)
            for arm in arms
        ]
        return Experiment(runs, [design], max_seeds)

    return make


def run_all_looks(experiment: Experiment, training: FakeTraining) -> tuple[str, list[str]]:
    """Return the last line of `run_looks`, and the lines that it printed before each look."""
    lines: list[str] = []
    return run_looks(experiment, training.run_all, lines.append), lines


def seeds_by_arm(root: Path) -> dict[str, int]:
    names = [folder.parent.name.removeprefix(f"{RECIPE}-") for folder in root.glob("*/s*")]
    return {name: names.count(name) for name in dict.fromkeys(sorted(names))}


def test_a_large_effect_ends_at_the_first_look(experiment: Make, tmp_path: Path) -> None:
    ending, lines = run_all_looks(experiment(FAR), FakeTraining(tmp_path))
    assert seeds_by_arm(tmp_path) == dict.fromkeys(sorted(VALUES), 3)
    assert lines == [f"look at 3 seeds: 12 runs of {RECIPE} (far, low, near, other)"]
    assert ending == "until=decided: 1 of 1 claims are decided (9.1 at 3 seeds)"


def test_an_undecided_claim_adds_seeds_only_to_its_own_arms(experiment: Make, tmp_path: Path) -> None:
    ending, lines = run_all_looks(experiment(FAR, NEAR, max_seeds=12), FakeTraining(tmp_path))
    assert seeds_by_arm(tmp_path) == {"far": 3, "low": 12, "near": 12, "other": 3}
    assert lines[1:] == [f"look at {n} seeds: {k} runs of gap_mini (near, low)" for n, k in ((5, 4), (8, 6), (12, 8))]
    assert ending == ("until=decided: 1 of 2 claims are decided (9.1 at 3 seeds); undecided: 9.2; all seeds are used")


LOW_AND_NEAR = {"far": 3, "low": 5, "near": 5, "other": 3}


@pytest.mark.parametrize(
    ("claim", "max_seeds", "expected"),
    [
        (NEAR, 7, LOW_AND_NEAR),  # between the looks at 5 and 8 seeds
        (replace(NEAR, comparisons=(*FAR.comparisons, *NEAR.comparisons)), 5, LOW_AND_NEAR),  # undecided parts only
        # refuted, so its undecided part does not matter
        (
            replace(NEAR, comparisons=(more("low", "far", ZEROSHOT, S), *NEAR.comparisons)),
            None,
            dict.fromkeys(VALUES, 3),
        ),
        (replace(NEAR, comparisons=(replace(NEAR.comparisons[0], at_bound=RECIPE),)), 8, dict.fromkeys(VALUES, 3)),
        (replace(NEAR, comparisons=(LEVEL,)), 5, dict.fromkeys(VALUES, 5)),  # over all runs
        (replace(FAR, looks=(10, 20)), 3, dict.fromkeys(VALUES, 10)),  # its own first look
    ],
)
def test_the_arms_get_the_seeds_that_a_claim_needs(
    claim: Claim, max_seeds: int | None, expected: dict[str, int], experiment: Make, tmp_path: Path
) -> None:
    ending, _ = run_all_looks(experiment(claim, max_seeds=max_seeds), FakeTraining(tmp_path))
    assert seeds_by_arm(tmp_path) == expected
    assert max_seeds or f"{claim.id} at 3 seeds" in ending


@pytest.mark.parametrize("interrupted", [2, 12, 13, 17])
def test_a_killed_call_continues_through_the_same_looks(interrupted: int, experiment: Make, tmp_path: Path) -> None:
    whole = run_all_looks(experiment(FAR, NEAR, max_seeds=8), FakeTraining(tmp_path))
    expected = seeds_by_arm(tmp_path)
    (tmp_path / "earlier").mkdir()
    for folder in list(tmp_path.glob("*/s*")):
        folder.rename(tmp_path / "earlier" / f"of-{folder.parent.name}-{folder.name}")
    with pytest.raises(SystemExit):
        run_all_looks(experiment(FAR, NEAR, max_seeds=8), FakeTraining(tmp_path, interrupt=interrupted))
    assert sum(seeds_by_arm(tmp_path).values()) == interrupted
    assert run_all_looks(experiment(FAR, NEAR, max_seeds=8), FakeTraining(tmp_path)) == whole
    assert seeds_by_arm(tmp_path) == expected


def test_hours_end_the_call_and_the_next_call_continues(experiment: Make, tmp_path: Path) -> None:
    whole = experiment(FAR, NEAR, max_seeds=8)
    ending, _ = run_all_looks(whole, FakeTraining(tmp_path, stop=13))
    assert "(9.1 at 3 seeds); undecided: 9.2; hours= is used up; 3 runs of the look at 5 seeds remain:" in ending
    run_all_looks(experiment(FAR, NEAR, max_seeds=8), FakeTraining(tmp_path))
    assert seeds_by_arm(tmp_path) == {"far": 3, "low": 8, "near": 8, "other": 3}


def test_a_look_ignores_runs_of_later_seeds(experiment: Make, tmp_path: Path) -> None:
    for seed in range(3, 8):
        synthetic.write(tmp_path, synthetic.run(RECIPE, "far", seed, {("zeroshot", "s", "top1"): 0.1}))
    ending, _ = run_all_looks(experiment(FAR), FakeTraining(tmp_path))
    assert "9.1 at 3 seeds" in ending


def test_every_claim_has_its_first_look_before_any_has_a_second(experiment: Make, tmp_path: Path) -> None:
    many = replace(FAR, id="9.3", looks=(30,), comparisons=(more("far", "other", ZEROSHOT, S),))
    _, lines = run_all_looks(experiment(NEAR, many, max_seeds=5), FakeTraining(tmp_path))
    assert [line.partition(":")[0] for line in lines] == ["look at 3 seeds", "look at 30 seeds", "look at 5 seeds"]


def test_a_trend_over_arms_gets_no_seeds_after_the_first_look(experiment: Make, tmp_path: Path) -> None:
    arms = tuple("abcdefghijklmnopqrst")
    unrelated = replace(NEAR, comparisons=(rises_over_arms((arms,), GAP, ConstantScore(), "x and y"),))
    ending, _ = run_all_looks(experiment(unrelated, max_seeds=5, arms=arms), FakeTraining(tmp_path))
    assert seeds_by_arm(tmp_path) == dict.fromkeys(arms, 3)
    reason = "the arms are 1 families with one knob each, a test needs 6"
    assert f"undecided (more seeds do not help: {reason}): 9.2" in ending


class ConstantScore(Measure):
    """A measure that is unrelated to the gap, and the same for all seeds of an arm."""

    def read(self, run: object) -> dict[str, float]:
        return {"order": random.Random(run.config.arm).random()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fault", "tried", "seeds", "reason"),  # tried: looks, failures
    [
        ({"broken": ("near",)}, (1, 3), {"near": 0}, "run: clipx train recipe=gap_mini arm=near seed=0"),
        ({"failing": ("near", 1)}, (1, 1), {"near": 2}, "runs failed"),
        ({"empty": ("near", 4)}, (2, 0), {"near": 5, "low": 5}, "more seeds do not help: ROOT/s4 gives no number"),
    ],
)
def test_a_failed_arm_or_run_ends_the_looks_of_its_claims_and_is_named(
    fault: dict[str, Any], tried: tuple[int, int], seeds: dict[str, int], reason: str, experiment: Make, tmp_path: Path
) -> None:
    training, whole = FakeTraining(tmp_path, **fault), experiment(FAR, NEAR)
    ending, _ = run_all_looks(whole, training)
    assert (len(training.batches), len(whole.done.failures)) == tried
    assert Counter(seeds_by_arm(tmp_path)) == Counter(dict.fromkeys(VALUES, 3) | seeds)
    reason = reason.replace("ROOT", f"{tmp_path}/{RECIPE}-near")
    assert ending == f"until=decided: 1 of 2 claims are decided (9.1 at 3 seeds); undecided ({reason}): 9.2"


def test_the_cheapest_claim_and_its_longest_run_come_first(experiment: Make, tmp_path: Path) -> None:
    bound = VALUES["other"] - VALUES["near"]  # the effect is exactly s, so the claim stays undecided
    slow = Claim("9.3", "slow", "", (RECIPE,), (more("other", "near", ZEROSHOT, bound),))
    for arm, seconds in (("near", 10.0), ("low", 20.0), ("far", 1.0), ("other", 50.0)):
        for seed in range(3):
            write(tmp_path, arm, seed, seconds)
    training = FakeTraining(tmp_path)
    run_all_looks(experiment(slow, NEAR, max_seeds=5), training)
    assert training.batches[1] == [(arm, seed) for arm in ("low", "near", "other") for seed in (3, 4)]
