"""`clipx reproduce`: every arm and seed of a recipe is trained and evaluated, then judged; restartable."""

import os
import signal
import sys
import time
import traceback
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import torch

from cli.reproduce.plan import Plan, composed, make_plan
from cli.reproduce.process_pool import Pool
from cli.settings.compose import compose_eval, compose_run, recipe
from clipx.config.schema import RunConfig
from clipx.errors import REQUEUE, Fault, UserError, one_line
from clipx.run import checkpoint, directory
from clipx.training.stop_signals import handled_signals


def reproduce(arguments: list[str]) -> None:
    """See `clipx reproduce --help`.

    Raises:
        UserError: wrong arguments before anything runs; runs that failed by their input, after all others are done.
        Fault: runs that failed by themselves, or were killed, after all others are done.
    """
    plan = make_plan(arguments)
    configs = composed(plan.overrides)
    if len({directory.directory(config) for config in configs}) < len(configs):
        raise UserError("several runs would share a directory: leave name= out")
    if plan.dry:
        from cli.reproduce import dry_run

        dry_run.show(configs, plan.chip, plan.share, plan.jobs, plan.out)
        return
    _check_evaluations(configs)
    seats = _seats(plan.jobs, max((c.train.processes for c in configs if c.train.device != "cpu"), default=0))
    failures = _run_all(plan, configs, seats)
    done = [run for config in configs if _has_something_to_report(run := directory.directory(config))]
    if done:
        _judge([*done, *(path for path in plan.stated if path.is_dir())], configs, plan.out)
    if failures:
        kind = UserError if all(isinstance(error, UserError) for error in failures.values()) else Fault
        named = "; ".join(f"{run} {_in_words(error)}" for run, error in failures.items())
        raise kind(f"{len(failures)} of {len(configs)} runs failed: {named}")


def _check_evaluations(configs: list[RunConfig]) -> None:
    """Raises UserError, before days of training, where runs could not be evaluated as their recipes ask."""
    from evaluation.during_training import check_evaluation

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


def _has_something_to_report(run: Path) -> bool:
    """An untrained model (train.samples=0) has no log, and may have results."""
    return (run / "log.jsonl").exists() or (run / "results.jsonl").exists()


def _judge(paths: list[Path], configs: list[RunConfig], out: Path) -> None:
    """The report, and in the terminal the verdicts on the recipes' claims and on what programs said of these papers."""
    from cli.report.claims import show
    from cli.report.command import report
    from evaluation.claims.table import CLAIMS

    report([*map(str, paths), f"out={out}"])
    ids = {claim for config in configs for claim in config.claims}
    papers = {claim.paper for claim in CLAIMS if claim.id in ids}
    show(paths, sorted(ids | {claim.id for claim in CLAIMS if claim.program and claim.paper in papers}))


@dataclass(frozen=True)
class Ended:
    """How a run went."""

    words: str
    seconds: float | None  # that it took; None where nothing was left to train


def _run_all(plan: Plan, configs: list[RunConfig], seats: list[str]) -> dict[Path, Exception]:
    """Trains and evaluates; returns what went wrong, by run: whatever it is, the other runs go on."""
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // plan.jobs)))  # inherited by the pool's processes
    for early in handled_signals():  # the pool's processes are sent SIGTERM, and save
        signal.signal(early, lambda n, frame: sys.exit(REQUEUE))
    failures: dict[Path, Exception] = {}
    took: list[float] = []
    with Pool(seats) as pool:
        waiting = {
            pool.submit(run_one, overrides): directory.directory(config)
            for overrides, config in zip(plan.overrides, configs, strict=True)
        }
        for number, future in enumerate(as_completed(waiting), start=1):
            run = waiting[future]
            try:
                ended = future.result()  # SystemExit where it was stopped early and has saved: so are the others
            except Exception as error:
                failures[run] = _killed(run) if isinstance(error, BrokenProcessPool) else error
                words = _in_words(failures[run])
            else:
                took += [] if ended.seconds is None else [ended.seconds]
                words = ended.words
            left = _left(took, len(configs) - number, len(seats))
            print(f"{number}/{len(configs)} {run} {words}{left}", file=sys.stderr, flush=True)
    return failures


def _killed(run: Path) -> Fault:
    """By the system for want of memory, say."""
    return Fault(f"its process was killed; {run}/output.log says how far it came, the same command resumes it")


def _in_words(error: Exception) -> str:
    return f"failed: {' '.join(str(error).split()) or type(error).__name__}"


def _left(took: list[float], runs_left: int, jobs: int) -> str:
    """An estimate by the runs that were trained in this call; nothing before the first."""
    return f", about {sum(took) / len(took) * runs_left / jobs / 60:.0f} min left" if took else ""


def run_one(overrides: list[str]) -> Ended:
    """Trains and evaluates one run in this process, which belongs to the pool; its output goes to RUN/output.log."""
    from cli.eval import evaluate
    from cli.train import train

    config = compose_run(overrides)
    run = directory.directory(config)
    run.mkdir(parents=True, exist_ok=True)
    with (run / "output.log").open("a") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
    start, before = time.monotonic(), checkpoint.checkpoints(run)[-1:]
    # as many processes and readers as in training; what is measured does not depend on them
    like_training = [f"processes={config.train.processes}", f"workers={config.data.workers}"]
    try:
        train(config)
        trained = time.monotonic()
        for settings in recipe(config.recipe).evaluations if config.data.evaluation else []:
            evaluate(compose_eval([f"checkpoint={run}", *like_training, *settings]))
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, UserError | Fault):
            raise
        raise Fault(one_line(error)) from None  # not every exception can be sent to the parent
    end = time.monotonic()
    seconds = None if checkpoint.checkpoints(run)[-1:] == before else end - start
    if (ended := directory.read_divergence(run)) is not None:
        return Ended(f"diverged at step {ended.step}, after {trained - start:.0f} s", seconds)
    return Ended(f"trained {trained - start:.0f} s, evaluated {end - trained:.0f} s", seconds)
