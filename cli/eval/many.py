"""`clipx eval RUN...`: evaluate one model, or several runs one after another or at the same time.

RUN is a run folder, a checkpoint or a folder of runs.
"""

import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path

from cli.eval import one
from cli.launcher.process_pool import Pool, append_output_to, gpus_of_each_job
from clipx.config.evaluation import EvalConfig
from clipx.errors import Fault, UserError, most_severe, one_line
from clipx.run import checkpoint as checkpoints
from clipx.run.folder import OUTCOME, RunFolder, natural_order, run_folders
from clipx.utils.plugins import load_plugins
from clipx.utils.terminal import duration
from evaluation.types import first_names


def evaluate(config: EvalConfig, arguments: list[str]) -> None:
    """Run `clipx eval`. Evaluate several runs even if one fails.

    Raises:
        UserError: wrong settings or paths; after all runs, if every failed run failed with a UserError.
        Fault: after all runs, if a run failed for another reason.
    """
    if config.model is not None and arguments:
        raise UserError(f"give one of {arguments[0]} and model={config.model}")
    runs = find_runs(arguments)
    if len(runs) < 2:
        one.evaluate(replace(config, checkpoint=runs[0]) if runs else config)
        return
    if config.out is not None:
        raise UserError(f"out={config.out} would hold the results of {len(runs)} runs: leave it out, or give one run")
    failures: dict[str, Exception] = {}
    started = time.monotonic()
    for number, (run, error) in enumerate(_outcomes([replace(config, checkpoint=run) for run in runs], config), 1):
        left = f", about {duration((time.monotonic() - started) / number * (len(runs) - number))} left"
        state = "evaluated"
        if error is not None:
            text = one_line(error)
            same = next((other for other, earlier in failures.items() if one_line(earlier) == text), "")
            state = f"failed: as {same}" if same else f"failed: {text}"
            failures[run] = error
        print(f"{number}/{len(runs)} {run} {state}{left if number < len(runs) else ''}", file=sys.stderr, flush=True)
    if len(failures) < len(runs):
        print("Each evaluated run has a results.md. To rank: clipx report compare RUN...")
    if failures:
        named = f"{len(failures)} of {len(runs)} runs failed: {', '.join(failures)}"
        raise most_severe(list(failures.values()))(f"{named}; the lines above say why")


def find_runs(arguments: list[str]) -> list[str]:
    """Return the runs and checkpoints that the arguments name, each once.

    In a folder of runs, a run with neither a checkpoint nor a recorded divergence is skipped and named in one line.

    Raises UserError: all runs of a folder would be skipped.
    """
    found, skipped = dict[Path, str](), list[str]()  # folder -> as it was given
    for path in map(Path, arguments):
        if not path.is_dir() or (path / "config.yaml").is_file() or (path / checkpoints.MANIFEST).is_file():
            found.setdefault(path.resolve(), str(path))  # also a missing path: the evaluation reports the error
            continue
        runs = sorted((p for p in run_folders(path) if (p / "config.yaml").is_file()), key=natural_order)
        usable = [run for run in runs if checkpoints.checkpoints(run) or (run / OUTCOME).is_file()]
        if not usable:
            raise UserError(f"no run with a checkpoint at or below {path}")
        found |= {run.resolve(): str(run) for run in usable if run.resolve() not in found}
        skipped += [str(run) for run in runs if run not in usable]
    if skipped:
        hint = "the command that trained a run continues it"
        print(f"skipped, no checkpoint ({hint}): {first_names(skipped)}", file=sys.stderr)
    return list(found.values())


def _outcomes(configs: list[EvalConfig], config: EvalConfig) -> Iterator[tuple[str, Exception | None]]:
    """Yield each run with its error, if any, in the order in which the evaluations end."""
    if config.jobs == 1:
        yield from ((str(each.checkpoint), _outcome(each)) for each in configs)
        return
    gpus = gpus_of_each_job(min(config.jobs, len(configs)), 0 if config.device == "cpu" else config.processes)
    with Pool(gpus) as pool:
        futures = {pool.submit(_in_worker, each): str(each.checkpoint) for each in configs}
        for future in as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, Exception):  # SystemExit
                raise error
            yield futures[future], error or future.result()


def _outcome(config: EvalConfig) -> Exception | None:
    """Evaluate a run; return the error, if any."""
    try:
        load_plugins(config.plugins)  # a process of the pool has not loaded them
        one.evaluate(config)
    except (UserError, Fault, OSError) as error:
        return error
    except Exception as error:
        traceback.print_exc()
        return Fault(one_line(error))  # not every exception can be sent to another process
    return None


def _in_worker(config: EvalConfig) -> Exception | None:
    """Evaluate in a process of the pool. Output goes to RUN/output.log."""
    run = Path(str(config.checkpoint))
    try:
        if RunFolder(run).divergence() is None:  # a diverged run may have no checkpoint
            run = checkpoints.run_of(checkpoints.resolve(run))
    except UserError as error:
        return error
    append_output_to(run / "output.log")
    return _outcome(config)
