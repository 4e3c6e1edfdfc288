"""clipx tune recipe=NAME [arms=a,b] [lr=1e-3,2e-3] [tau=0.01,0.03] [seeds=3] [on=held_out] [jobs=N] [out=DIR] [...]

Finds the learning rate of every arm, with the same budget for each: every value trains seeds=N runs, from seed 1000
on, and R@1 on held-out pairs (or on=captions:dev) scores them. A grid is extended while its best value lies at the
edge. An arm keeps the shared rate unless its own is better by more than the noise. tau= is tuned after lr, for arms
with a fixed temperature. Prints the table, the noise of one run and the recipe's lines, and writes them to
DIR (default runs/tuning/NAME). Run the same command again to resume.
"""

import json
import math
import sys
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cli.eval.one import evaluate
from cli.launcher.process_pool import Pool, append_output_to, gpus_of_each_job
from cli.settings.arguments import take_options
from cli.settings.compose import compose_run, texts_of
from cli.settings.recipes import recipe
from clipx.config.evaluation import EvalConfig
from clipx.config.schema import ARM_PREFIX, RunConfig
from clipx.config.setting import AT_LEAST_1, Rule, at_least, check_range, setting
from clipx.errors import RunDiverged, UserError
from clipx.run.folder import RunFolder
from clipx.utils.files import write_text
from clipx.utils.registry import one_of
from clipx.utils.terminal import empty_table, stdout_console
from evaluation.datasets.captioned import HELD_OUT, held_out_pairs
from evaluation.datasets.kinds import AnyDataset, Captioned
from evaluation.datasets.opening import check_layout, is_training_data, open_dataset
from evaluation.statistics import are_equal
from evaluation.types import csv_text

FIRST_SEED = 1000  # no verdict and no replication uses the seeds from here on
FEWEST_SEEDS = 3
FEWEST_IMAGES = 1000  # of the set that scores: with fewer, noise decides
ROUNDS = 8  # largest number of times that grids are extended, or filled in at a value that is best for another arm
LR, TAU = "optimizer.lr", "temperature.tau"
Calls = dict[Path, list[Future[Any]]]  # run of another arm -> the call that trains it
RATES: Rule = (
    lambda v: len(v) != 1 and all(0 < x < math.inf for x in v) and v == sorted(set(v)),
    "two or more numbers above 0, ascending",
)


@dataclass(kw_only=True)
class Options:
    """The options of `clipx tune`; all other arguments are settings of every run."""

    recipe: str = setting("", "recipe to tune")
    arms: list[str] = setting([], "some of its arms; empty: all")
    lr: list[float] = setting([], "learning rates to try; empty: the recipe's, a quarter of it, four times it", RATES)
    tau: list[float] = setting([], "temperatures to try, after lr, for arms with a fixed tau; empty: none", RATES)
    seeds: int = setting(FEWEST_SEEDS, "seeds of each value, from 1000 on", at_least(FEWEST_SEEDS))
    on: str = setting(HELD_OUT, "set that scores: held_out, or LAYOUT:FOLDER below data.root, such as captions:dev")
    jobs: int = setting(1, "runs at the same time", AT_LEAST_1)
    out: str = setting("", "folder of the tables; default: runs/tuning/RECIPE")


@dataclass
class Grid:
    """The scores of the arms at the values of one setting."""

    key: str  # the setting
    scores: dict[tuple[str, float], list[float]] = field(default_factory=dict)  # arm, value -> R@1 in percent by seed
    rate: str = ""  # for a grid of tau: at which learning rate, if that is not the one that an arm keeps

    @property
    def name(self) -> str:
        """The setting and the rate, for the tables."""
        return f"{self.key} {self.rate}".strip()

    def values(self, arm: str) -> list[float]:
        """Return the values tried for an arm, ascending."""
        return sorted(value for of_arm, value in self.scores if of_arm == arm)

    def mean(self, arm: str, value: float) -> float:
        """Return the mean score over the seeds; -inf if a seed diverged."""
        scores = self.scores[arm, value]
        return fmean(scores) if all(map(math.isfinite, scores)) else -math.inf

    def best(self, arm: str) -> float:
        """Return the value with the best mean score."""
        return max(self.values(arm), key=lambda value: self.mean(arm, value))

    @property
    def arms(self) -> list[str]:
        """The arms, in the order of the recipe."""
        return list(dict.fromkeys(arm for arm, _ in self.scores))

    def beyond(self, arm: str) -> float | None:
        """Return the next value beyond an edge of the grid if the edge is the best value and beats its neighbour."""
        values, best = self.values(arm), self.best(arm)
        for edge, neighbour in ((values[-1], values[-2]), (values[0], values[1])):
            if best == edge and self.mean(arm, edge) > self.mean(arm, neighbour):
                return rounded(edge * edge / neighbour)
        return None

    def best_of_arms(self) -> list[float]:
        """Return the best value of every arm, ascending. All arms must have scores at these to share one value."""
        return sorted({self.best(arm) for arm in self.arms})

    def shared(self) -> float:
        """Return the value, of those that all arms have, with the best mean score over the arms."""
        common = set.intersection(*(set(self.values(arm)) for arm in self.arms))
        return max(sorted(common), key=lambda value: fmean(self.mean(arm, value) for arm in self.arms))

    def chosen(self, arm: str) -> float:
        """Return the shared value, or the arm's own best one if it is better by more than one standard error."""
        own, shared = self.best(arm), self.shared()
        return own if clearly_better(self.scores[arm, own], self.scores[arm, shared]) else shared

    def noise(self) -> float:
        """Return the standard deviation of one run's score between seeds, pooled over arms and values."""
        spreads = [stdev(scores) ** 2 for scores in self.scores.values() if all(map(math.isfinite, scores))]
        return math.sqrt(fmean(spreads)) if spreads else math.nan


def clearly_better(own: list[float], shared: list[float]) -> bool:
    """Return True if the mean gain over the seeds is above its standard error, and no seed of `own` diverged.

    Equal gains, which scores over few images may give, show no spread over the seeds, so they are not clear.
    """
    if not all(map(math.isfinite, own)):
        return False
    gains = [a - b for a, b in zip(own, shared, strict=True) if math.isfinite(a - b)]
    return len(gains) <= 1 or (not are_equal(gains) and fmean(gains) > stdev(gains) / math.sqrt(len(gains)))


def rounded(value: float) -> float:
    """Round to three significant digits, so that settings and names of runs stay short."""
    return float(f"{value:.2e}")


def tune(arguments: list[str]) -> None:
    """Run `clipx tune`: find the best settings of each arm, then print and write the tables and the recipe's lines."""
    options, settings = take_options(arguments, Options, "tune")
    if not options.recipe:
        raise UserError("recipe= is missing: clipx tune recipe=NAME")
    if texts_of(settings, "launch.slurm"):
        raise UserError("clipx tune needs the scores of a grid before it extends it: leave launch.slurm= out")
    known = recipe(options.recipe).arms
    given = [one_of(arm, known, f"recipe={options.recipe}: arms") for arm in dict.fromkeys(options.arms)]
    arms = given or [*known] or [""]
    out = Path(options.out or f"runs/tuning/{options.recipe}")
    trial = Trial(options, [f"recipe={options.recipe}", f"runs={out / 'runs'}", *settings])
    rates = options.lr or [rounded(trial.config(arms[0]).optimizer.lr * factor) for factor in (0.25, 1, 4)]
    check_range(LR, rates, RATES)
    fixed = [arm for arm in arms if trial.config(arm).temperature.kind == "fixed"] if options.tau else []
    if options.tau and not fixed:
        raise UserError("tau= needs an arm with temperature.kind=fixed")
    trial.check(arms[0])  # after the checks that read no data
    train = trial.config(arms[0]).train
    with Pool(gpus_of_each_job(options.jobs, 0 if train.device == "cpu" else train.processes)) as pool:
        grids = [trial.search(Grid(LR), arms, rates, {}, pool)]
        chosen = {arm: [f"{LR}={grids[0].chosen(arm):g}"] for arm in arms}
        if fixed:
            of_tau, with_tau = _search_tau(trial, grids[0], fixed, chosen, pool)
            grids, chosen = grids + of_tau, chosen | with_tau
    _report(grids, chosen, out)


def _search_tau(
    trial: "Trial", rates: Grid, arms: list[str], chosen: dict[str, list[str]], pool: Pool
) -> tuple[list[Grid], dict[str, list[str]]]:
    """Search tau at the rate that each arm keeps, and at its own best rate if that is another.

    Returns the grids, and arm -> its rate and tau.
    """
    kept = trial.search(Grid(TAU), arms, trial.options.tau, chosen, pool)
    with_tau = {arm: [*chosen[arm], f"{TAU}={kept.chosen(arm):g}"] for arm in arms}
    own = {arm: [f"{LR}={rates.best(arm):g}"] for arm in arms if rates.best(arm) != rates.chosen(arm)}
    if not own:
        return [kept], with_tau
    there = trial.search(Grid(TAU, rate="at the arm's own best rate"), [*own], trial.options.tau, own, pool)
    for arm, rate in own.items():
        best = there.best(arm)
        if clearly_better(there.scores[arm, best], kept.scores[arm, kept.chosen(arm)]):
            with_tau[arm] = [*rate, f"{TAU}={best:g}"]
    return [kept, there], with_tau


@dataclass
class Trial:
    """Trains and scores runs of a recipe."""

    options: Options
    settings: list[str]  # of all runs

    def config(self, arm: str) -> RunConfig:
        """Compose a run of the arm."""
        return compose_run(self._arguments(arm, [], FIRST_SEED))

    def _arguments(self, arm: str, overrides: list[str], seed: int) -> list[str]:
        return [*self.settings, *([f"arm={arm}"] if arm else []), f"seed={seed}", *overrides]

    def check(self, arm: str) -> None:
        """Raise UserError unless the set that scores exists and has at least FEWEST_IMAGES images."""
        config = self.config(arm)
        if self.options.on == HELD_OUT:
            if not config.data.held_out:
                raise UserError("on=held_out needs data.held_out=SHARE; or score another set: on=captions:dev")
            opened: AnyDataset = held_out_pairs(HELD_OUT, config.data)
        else:
            check_layout(self.options.on, "on")  # before the rendering of scenes, which self.spec may start
            spec = self.spec(config)
            if is_training_data(spec, config.data):
                raise UserError(
                    f"on={self.options.on} has the pairs that the runs train on; allowed: held_out, other sets"
                )
            opened = open_dataset(spec)
        if not isinstance(opened, Captioned):
            raise UserError(f"on={self.options.on} has no captions, and the score is retrieval")
        if (count := len(opened.images(opened.splits[0]))) < FEWEST_IMAGES:
            raise UserError(
                f"on={self.options.on} has {count} images, and below {FEWEST_IMAGES:,} noise decides: score a larger "
                "set (data.held_out, on=folder:DIR, on=captions:DIR), or keep the recipe's learning rate"
            )

    def spec(self, config: RunConfig) -> str:
        """Return the set that scores, as `clipx eval` takes it."""
        if self.options.on == HELD_OUT:
            return HELD_OUT
        config.data.evaluation = [self.options.on]
        from evaluation.during_training import own_datasets

        return own_datasets(config)[0]

    def search(self, grid: Grid, arms: list[str], values: list[float], fixed: dict[str, list[str]], pool: Pool) -> Grid:
        """Score all arms at all values, and extend the grid of an arm while its best value lies at the edge.

        `fixed`: settings of each arm that were chosen before.
        """
        wanted = [(arm, value) for arm in arms for value in values]
        for _ in range(ROUNDS):
            self.score(grid, wanted, fixed, pool)
            wanted = [(arm, value) for arm in arms if (value := grid.beyond(arm)) is not None]
            if not wanted:  # a value that is best for one arm may be the new edge of another arm's grid
                wanted = [one for one in product(arms, grid.best_of_arms()) if one not in grid.scores]
            if not wanted:
                break
        self.score(grid, [*product(arms, grid.best_of_arms())], fixed, pool)
        return grid

    def score(self, grid: Grid, wanted: list[tuple[str, float]], fixed: dict[str, list[str]], pool: Pool) -> None:
        """Train and score the runs of these arms and values that have no score yet."""
        new = [one for one in wanted if one not in grid.scores]
        calls: Calls = {}
        futures: dict[Future[float], tuple[str, float, int]] = {}
        for (arm, value), seed in product(new, range(FIRST_SEED, FIRST_SEED + self.options.seeds)):
            own = self._arguments(arm, [*fixed.get(arm, ()), f"{grid.key}={value:g}"], seed)
            others, parents = self._parents(own, pool, calls)
            arguments = [*own, *others]
            call = arguments, self.spec(compose_run(arguments))
            future = pool.submit(_train_and_score, call, parents)
            futures[future] = (arm, value, seed)
        for number, future in enumerate(as_completed(futures), 1):
            arm, value, seed = futures[future]
            scores = grid.scores.setdefault((arm, value), [math.nan] * self.options.seeds)
            scores[seed - FIRST_SEED] = future.result()
            line = f"{number}/{len(futures)} {arm} {grid.key}={value:g} seed {seed}: {future.result():.2f}"
            print(line, file=sys.stderr, flush=True)

    def _parents(self, arguments: list[str], pool: Pool, calls: Calls) -> tuple[list[str], list[Future[Any]]]:
        """Return settings that name the runs of other arms from which a run starts or learns, and the calls for them.

        Submit the calls that are missing. These runs keep the recipe's values: only the arm that is scored has others.
        """
        config, settings, found = compose_run(arguments), list[str](), list[Future[Any]]()
        for key in ("init", "teacher"):
            name = getattr(config.model, key)
            if name and name.startswith(ARM_PREFIX):
                of_other = self._arguments(name.removeprefix(ARM_PREFIX), [], config.seed)
                run = RunFolder.of(compose_run(of_other)).path
                if run not in calls:
                    calls[run] = []  # before the next line, which would not end for arms that start from each other
                    after = self._parents(of_other, pool, calls)[1]
                    calls[run].append(pool.submit(_train, of_other, after))
                settings.append(f"model.{key}={run}")
                found += calls[run]
        return settings, found


def _train(arguments: list[str]) -> Path:
    from cli.train import train  # slow: a mistyped setting is found before it

    config = compose_run(arguments)
    run = RunFolder.of(config).path
    append_output_to(run / "output.log")
    train(config)
    return run


def _train_and_score(call: tuple[list[str], str]) -> float:
    """Train a run with these arguments and score it; return R@1 in percent, NaN if it diverged."""
    arguments, spec = call
    try:
        run = _train(arguments)
    except RunDiverged:
        return math.nan
    rows = evaluate(EvalConfig(checkpoint=str(run), datasets=[spec], tasks=["retrieval"], workers=0))
    return 100 * fmean(row.value for row in rows if row.metric.endswith("recall@1"))


def _report(grids: list[Grid], chosen: dict[str, list[str]], out: Path) -> None:
    """Print the tables, the noise and the recipe's lines; write them to tuning.csv and tuning.json."""
    console = stdout_console()
    rows: list[list[object]] = []
    for grid in grids:
        title = f"{grid.name}: R@1 (%), mean of the seeds; one run's noise: {grid.noise():.2f}"
        values = sorted({value for _, value in grid.scores})
        # at an arm's own best rate, the table alone does not show whether its best tau is chosen
        last, of_arm = ("best", grid.best) if grid.rate else ("chosen", grid.chosen)
        table = empty_table(["arm", *(f"{value:g}" for value in values), last], ["arm"], title)
        for arm in grid.arms:
            known = [f"{grid.mean(arm, v):.2f}" if (arm, v) in grid.scores else "" for v in values]
            table.add_row(arm or "-", *known, f"{of_arm(arm):g}")
            rows += [[grid.name, arm, value, *grid.scores[arm, value]] for value in grid.values(arm)]
            if grid.beyond(arm) is not None:
                print(f"{arm}: the best {grid.name} lies at the edge of its grid after {ROUNDS} rounds")
        console.print(table)
    lines = [f"  {arm or 'recipe'}: [{', '.join(settings)}]" for arm, settings in chosen.items()]
    print("the recipe's lines:", *lines, sep="\n")
    seeds = max(len(row) for row in rows) - 3
    header = ["setting", "arm", "value", *(f"seed {FIRST_SEED + k}" for k in range(seeds))]
    write_text(out / "tuning.csv", csv_text([header, *rows]))
    noise = {grid.name: grid.noise() for grid in grids}
    write_text(out / "tuning.json", json.dumps({"chosen": chosen, "noise": noise}, indent=1) + "\n")
    print(out / "tuning.csv", out / "tuning.json", sep="\n")
