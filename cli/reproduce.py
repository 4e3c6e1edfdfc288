"""`clipx reproduce`: every arm and seed of a recipe is trained and evaluated, then judged; restartable."""

import os
import signal
import sys
import time
import traceback
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context, set_start_method
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import torch

from cli.compose import compose_eval, compose_run, recipe
from clipx import runs
from clipx.config import RunConfig
from clipx.errors import REQUEUE, UserError
from clipx.presets import DATA
from clipx.stopping import heard

COSTS = {"chip": "H100", "share": "0.35"}  # what dry=true reckons with; about what well-fed CLIP training reaches
OVER: Event | None = None  # in the pool's processes: set once no further run is to start
SWITCH = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Plan:
    """What to run."""

    overrides: list[list[str]]  # of `clipx train`, one list a run; seed by seed, so that early results compare arms
    jobs: int  # runs at the same time
    dry: bool  # say what would be run and stop
    chip: str  # that costs are estimated for
    share: str  # of its peak
    out: Path  # of the report
    stated: list[Path]  # folders beside the runs in which programs may have left a claims.json


def reproduce(arguments: list[str]) -> None:
    """See `clipx reproduce --help`.

    Raises:
        UserError: wrong arguments before anything runs; failed runs after all others are done.
    """
    plan = make_plan(arguments)
    configs = composed(plan.overrides)
    if len({runs.directory(config) for config in configs}) < len(configs):
        raise UserError("several runs would share a directory: leave name= out")
    if plan.dry:
        from cli import cost, dry  # torch comes with them

        dry.show(configs, plan.chip, cost.read_share(plan.share), plan.jobs, plan.out)
        return
    _check_evaluations(configs)
    seats = _seats(plan.jobs, max((c.train.processes for c in configs if c.train.device != "cpu"), default=0))
    failures = _run_all(plan, configs, seats)
    done = [runs.directory(config) for config in configs if (runs.directory(config) / "log.jsonl").exists()]
    if done:
        _judge([*done, *(path for path in plan.stated if path.is_dir())], configs, plan.out)
    if failures:
        raise UserError(f"{len(failures)} of {len(configs)} runs failed: {'; '.join(failures)}")


def composed(overrides: list[list[str]]) -> list[RunConfig]:
    """The config of each run; seeds differ in nothing else, and to compose takes long."""
    known: dict[tuple[str, ...], RunConfig] = {}
    configs = []
    for one in overrides:
        (seed,) = (o for o in one if o.startswith("seed="))
        others = tuple(o for o in one if o is not seed)
        if others not in known:
            known[others] = compose_run(one)
        configs.append(replace(known[others], seed=int(seed.removeprefix("seed="))))
    return configs


def _check_evaluations(configs: list[RunConfig]) -> None:
    """Raises UserError, before days of training, where runs could not be evaluated as their recipes ask."""
    from cli.own_sets import check_evaluation

    for config in {str((c.recipe, c.data.root, c.data.evaluation)): c for c in configs}.values():
        try:
            for settings in recipe(config.recipe).evaluations if config.data.evaluation else []:
                check_evaluation(config, compose_eval(settings))
        except UserError as error:
            raise UserError(
                f"recipe={config.recipe}: {error}; or choose others: data.evaluation=[NAME:FOLDER_BELOW_DATA_ROOT,...]"
            ) from error


def _seats(jobs: int, processes: int) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each job; "" where there is at most one GPU, or one job that may have all of them.

    Args:
        processes: most of a run that is not on the CPU; 0: there is none.

    Raises:
        UserError: several jobs, each of several processes, on GPUs.
    """
    gpus = torch.cuda.device_count()
    if gpus <= 1 or jobs == 1 or not processes:
        return [""] * jobs
    if processes > 1:
        raise UserError(f"jobs={jobs} gives each run one GPU of {gpus}, but train.processes={processes}: set one to 1")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    return [visible[job % gpus] for job in range(jobs)]


def _judge(paths: list[Path], configs: list[RunConfig], out: Path) -> None:
    """The report, and in the terminal the verdicts on the recipes' claims and on what programs said of these papers."""
    from cli.claims import show
    from cli.report import report
    from evaluation.claims.table import CLAIMS

    report([*map(str, paths), f"out={out}"])
    ids = {claim for config in configs for claim in config.claims}
    papers = {claim.paper for claim in CLAIMS if claim.id in ids}
    show(paths, sorted(ids | {claim.id for claim in CLAIMS if claim.program and claim.paper in papers}))


def make_plan(arguments: list[str]) -> Plan:
    """Arguments as in `clipx reproduce --help`; those that are not its own are settings for every run."""
    own = {"recipe": "", "arms": "", "seeds": "", "jobs": "1", "dry": "false", "out": "", **COSTS}
    roots: dict[str, str] = {}
    settings = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in own:
            own[key] = value.strip("[]")
        elif equals and key in DATA:
            roots[key] = value
        elif key in ("arm", "seed"):
            meant = f"arms={value} (names, separated by commas)" if key == "arm" else "seeds=3 (how many)"
            raise UserError(f"{argument} is for clipx train; here write {meant}")
        else:
            settings.append(argument)
    if not own["recipe"]:
        raise UserError("recipe= is missing: clipx reproduce recipe=NAME[,NAME]; clipx ls recipes lists them")
    if own["dry"].lower() not in SWITCH:
        raise UserError(f"dry={own['dry']} must be true or false")
    names = own["recipe"].split(",")
    of_data = _data_roots(names, roots)
    overrides = [
        one
        for name in names
        for one in _of_recipe(name, own["arms"], own["seeds"], [*of_data.get(name, []), *settings])
    ]
    folder = next((s.removeprefix("runs=") for s in settings if s.startswith("runs=")), "runs")
    return Plan(
        overrides=overrides,
        jobs=_count("jobs", own["jobs"]),
        dry=SWITCH[own["dry"].lower()],
        chip=own["chip"],
        share=own["share"],
        out=Path(own["out"] or f"{folder}/{'+'.join(names)}-report"),
        stated=[Path(folder) / "theory", Path(folder) / "missing_objects"],
    )


def _data_roots(names: list[str], roots: dict[str, str]) -> dict[str, list[str]]:
    """Recipe -> the data.root= of its data, where `cc3m=DIR` says it."""
    if not roots:
        return {}
    data = {name: compose_run([f"recipe={name}"]).data.name for name in names}
    for key in roots:
        if key not in data.values():
            raise UserError(f"{key}={roots[key]}: no recipe here is on {key}; their data: {', '.join(data.values())}")
    return {name: [f"data.root={roots[of]}"] for name, of in data.items() if of in roots}


def _of_recipe(name: str, chosen: str, seeds: str, settings: list[str]) -> list[list[str]]:
    found = recipe(name)
    arms = chosen.split(",") if chosen else list(found.arms)
    for arm in arms:
        for override in found.arms.get(arm, []):
            key = override.partition("=")[0].lstrip("+~")
            if any(s.partition("=")[0].lstrip("+~") == key for s in settings):
                raise UserError(
                    f"{key}= cannot be set for all runs, as arm={arm} of recipe={name} sets it; for one run: "
                    f"clipx train recipe={name} arm={arm} {key}=..."
                )
    count = _count("seeds", seeds) if seeds else found.seeds
    by_arm = [[f"arm={arm}"] for arm in arms] or [[]]
    return [[f"recipe={name}", *arm, f"seed={seed}", *settings] for seed in range(count) for arm in by_arm]


def _count(key: str, value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise UserError(f"{key}={value} must be a whole number, 1 or more")
    return int(value)


def _run_all(plan: Plan, configs: list[RunConfig], seats: list[str]) -> list[str]:
    """Trains and evaluates; returns a line for each run that failed."""
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // plan.jobs)))  # inherited by the pool's processes
    failures: list[str] = []
    start = time.monotonic()
    for early in heard():  # the children are sent SIGTERM, and save
        signal.signal(early, lambda n, frame: sys.exit(REQUEUE))
    context = get_context("spawn")
    over, free = context.Event(), context.Queue()
    for seat in seats:
        free.put(seat)
    with ProcessPoolExecutor(plan.jobs, mp_context=context, initializer=_prepare, initargs=(over, free)) as pool:
        waiting: dict[Future[str], RunConfig] = {
            pool.submit(run_one, overrides): config for overrides, config in zip(plan.overrides, configs, strict=True)
        }
        try:
            for number, future in enumerate(as_completed(waiting), start=1):
                name = runs.directory(waiting[future])
                try:
                    said = future.result()
                except Exception as error:  # whatever it is, the other runs go on
                    said = f"failed: {' '.join(str(error).split()) or type(error).__name__}"
                    failures.append(f"{name} {said}")
                left = (time.monotonic() - start) / number * (len(configs) - number) / 60
                print(f"{number}/{len(configs)} {name} {said}, about {left:.0f} min left", file=sys.stderr, flush=True)
        except (KeyboardInterrupt, SystemExit):  # by a signal, or a run was stopped early: it has saved
            over.set()  # a run that the pool has handed out already cannot be cancelled
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise
    return failures


def _prepare(over: Event, free: "Queue[str]") -> None:
    """In each process of the pool. `over`: no further run is to start; `free`: GPUs of which it takes one.

    A spawned process would spawn its loaders, and each of those import torch again.
    """
    global OVER
    OVER = over
    if seat := free.get():
        os.environ["CUDA_VISIBLE_DEVICES"] = seat  # CUDA reads it at its first use, which is in a run
    set_start_method("fork", force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends this process


def run_one(overrides: list[str]) -> str:
    """Trains and evaluates one run in this process, which belongs to the pool; its output goes to RUN/output.log."""
    if OVER is not None and OVER.is_set():
        sys.exit(REQUEUE)
    from cli.evaluate import evaluate
    from cli.launch import train

    config = compose_run(overrides)
    run = runs.directory(config)
    run.mkdir(parents=True, exist_ok=True)
    with (run / "output.log").open("a") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
    start = time.monotonic()
    try:
        train(config)
        trained = time.monotonic()
        if config.data.evaluation:
            judged = run / "checkpoints" / "best" if config.train.keep_best and runs.diverged(run) is None else run
            for settings in recipe(config.recipe).evaluations:
                evaluate(compose_eval([f"checkpoint={judged}", *settings]))
    except Exception:
        traceback.print_exc()
        raise
    if (ended := runs.diverged(run)) is not None:
        return f"diverged at step {ended.step}, after {trained - start:.0f} s"
    return f"trained {trained - start:.0f} s, evaluated {time.monotonic() - trained:.0f} s"
