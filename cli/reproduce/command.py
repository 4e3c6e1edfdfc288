"""clipx reproduce recipe=NAME[,NAME] [arms=a,b] [seeds=N] [first_seed=0|100] [jobs=N] [dry=true] [out=DIR] [...]
clipx reproduce recipe=NAME[,NAME] scale=AXIS[,AXIS] [...]

Trains and evaluates every arm of a recipe with every seed, jobs=N runs at a time (default: one on each GPU), and
writes a report. Run the same command again to resume; finished runs are skipped. arms=a,b takes the arms that a
recipe has. Recipes on several data sets take one folder per data set: cc3m=DIR mscoco=DIR.
scale=samples|data|width|batch runs the same arms and seeds at each value that the recipe lists for this axis, and
compares them at every value as clipx report compare does.
Seeds below 100 decide verdicts; first_seed=100 trains seeds 100 to 107, which replicate them.
Claims are judged at looks=, by default 3, 5 and 8 seeds: seeds=N trains the seeds of the next look.
launch.slurm='SBATCH_OPTIONS' submits the runs to SLURM, at most jobs=N at a time, and the report after them, and
returns; launch.submit=false prints the jobs instead. report=true writes only the report.
dry=true only lists the runs with estimated GPU-hours and disk space, for device=H100 (or A100-40, A100,
H200, L40S, RTX4090) at share=0.2 of its peak FLOP/s.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from cli.exit_codes import exit_code_of
from cli.launcher.process_pool import Pool, append_output_to, gpus_of_each_job
from cli.launcher.slurm import LAST, Job, require_slurm, script_of, submit
from cli.report.claims import print_verdicts, run_time
from cli.report.compare import compare_runs
from cli.reproduce.plan import Plan, PlannedRun, composed, designs_of, make_plan, parents_first
from cli.settings.arguments import key_of, split_config_dir
from cli.settings.compose import compose_eval, compose_run
from cli.settings.recipes import recipe
from clipx.config.schema import RunConfig
from clipx.errors import REQUEUE, Fault, RunDiverged, UserError, most_severe, one_line
from clipx.run.folder import RESULTS, TIMING, RunFolder
from clipx.run.log_writers import check_wandb
from clipx.utils.files import write_text
from clipx.utils.interrupts import handled_signals
from clipx.utils.lock import hold
from clipx.utils.registry import one_of
from clipx.utils.terminal import duration
from evaluation.claims.design import Design, refuse_another, store
from evaluation.claims.evidence import Seeds
from evaluation.claims.table import CLAIMS
from evaluation.runs import reader


def reproduce(arguments: list[str]) -> None:
    """Run `clipx reproduce`. If a run fails, the other runs continue.

    Raises:
        UserError: before any run, if the arguments are wrong or an evaluation set is missing; after all runs, if every
            failed run failed with a UserError.
        Fault: after all runs, if a run was killed or failed for another reason.
    """
    plan = make_plan(arguments)
    configs = composed(plan.overrides)
    if len({RunFolder.of(config).path for config in configs}) < len(configs):
        raise UserError("several runs would share a directory: leave name= out")
    runs = [PlannedRun(overrides, config) for overrides, config in zip(plan.overrides, configs, strict=True)]
    for config in configs:
        for claim in config.claims:
            one_of(claim, [known.id for known in CLAIMS], f"recipe={config.recipe}: claims")
    designs = designs_of(plan)
    for design in designs:
        refuse_another(plan.runs, design)
    if plan.options.dry:
        from cli.reproduce.cost import print_costs  # imports torch

        print_costs(configs, plan.options, plan.options.jobs or len(_gpus(None, configs)), plan.out)
        return
    for mode in {config.log.wandb for config in configs}:
        check_wandb("log.wandb", mode)
    submits = configs[0].launch.slurm is not None and not plan.options.report
    if submits:
        require_slurm(configs[0].launch)
    _check_evaluations(configs)
    if missing := {config.recipe for config in configs if not config.data.evaluation}:
        print(f"not evaluated, because data.evaluation is empty: {', '.join(sorted(missing))}", file=sys.stderr)
    gpus = [] if submits or plan.options.report else _gpus(plan.options.jobs, configs)
    doing, instead = f"the experiment of {plan.out} is being reproduced", "wait for it or stop it, or set another out="
    with hold(plan.out / "reproduce.lock", doing, instead):
        if submits:
            _submit(plan, runs, designs, arguments)
        else:
            _reproduce(plan, runs, designs, gpus)


def _submit(plan: Plan, runs: list[PlannedRun], designs: list[Design], arguments: list[str]) -> None:
    """Submit a job for each unfinished run and, after them, one that writes the report.

    A run that starts from another run waits for it.
    """
    from cli.reproduce.cost import state_of

    folders = [f"--config-dir={folder}" for folder in split_config_dir(sys.argv)[0]]
    depth: dict[Path, int] = {}
    for run in parents_first(runs):
        depth[run.folder] = max((depth[parent] + 1 for parent in run.parents if parent in depth), default=0)
    left = [run for run in runs if state_of(run.config) != "finished"]
    jobs = [Job("cli.reproduce.command", [*run.overrides, *folders], run.config, depth[run.folder]) for run in left]
    report = ["reproduce", *(a for a in arguments if key_of(a) != "report"), *folders, "report=true"]
    jobs.append(Job("cli.main", report, runs[0].config, LAST))
    if runs[0].config.launch.submit:
        for design in designs:
            store(plan.runs, design)
    submit(script_of(jobs, plan.options.jobs), runs[0].config.launch)


def _reproduce(plan: Plan, runs: list[PlannedRun], designs: list[Design], gpus: list[str]) -> None:
    """Train, evaluate and write the report; raise the errors that `reproduce` lists."""
    configs = [run.config for run in runs]
    for design in designs:
        store(plan.runs, design)
    if plan.options.report:
        failures = _of_other_processes(runs)
    else:
        _stop_on_signals()
        with Pool(gpus) as pool:
            failures = _run_all(pool, runs, len(gpus))
    reportable = [run.folder for run in runs if _can_be_reported(run.folder)]
    if reportable:
        of_programs = [plan.runs / name for name in ("theory", "missing_objects", "bench")]  # with a claims.json each
        _report([*reportable, *(path for path in of_programs if any(path.rglob("claims.json")))], configs, plan)
        if plan.options.scale:
            try:
                compare_runs(reportable, plan.out, plan.command)
            except UserError as error:  # for example, too few methods after failed runs
                print(error)
    if failures:
        named = "; ".join(f"{folder} failed: {one_line(error)}" for folder, error in failures.items())
        count = f"{len(failures)} of {len(runs)} runs failed"
        raise most_severe(list(failures.values()))(f"{count}: {named}")


def _check_evaluations(configs: list[RunConfig]) -> None:
    """Raise UserError, before any training, if runs cannot be evaluated as their recipes require."""
    from evaluation.during_training import check_evaluation

    for config in {str((c.recipe, c.data.root, c.data.evaluation)): c for c in configs}.values():
        try:
            for settings in evaluations_of(config):
                check_evaluation(config, compose_eval(settings))
        except UserError as error:
            instead = "or choose other sets: data.evaluation=[NAME:FOLDER_BELOW_DATA_ROOT,...]"
            raise UserError(f"recipe={config.recipe}: {error}; name their folder, sets=DIR, {instead}") from error


def evaluations_of(config: RunConfig) -> list[list[str]]:
    """Return the overrides of each call of `clipx eval` after a run; no interpolation if it has no start weights."""
    found = recipe(config.recipe).evaluations if config.data.evaluation else []
    if config.model.init or config.model.image.pretrained:
        return found
    return [settings for settings in found if not any(key_of(o) == "interpolate" for o in settings)]


def _can_be_reported(run: Path) -> bool:
    """Return True if a report can show the run, even a failed one; an untrained model (train.samples=0) has no log."""
    return (run / "log.jsonl").exists() or (run / RESULTS).exists()


def _report(paths: list[Path], configs: list[RunConfig], plan: Plan) -> None:
    """Write the report, and print the verdicts on the recipes' claims.

    Also print the verdicts on claims of the same papers that other commands test, such as `clipx theory`.
    """
    from evaluation.report.writer import write_report

    written = write_report(paths, plan.out, command=plan.command)
    print(written.html, written.markdown, written.csv, sep="\n")
    ids = {claim for config in configs for claim in config.claims}
    papers = {claim.paper for claim in CLAIMS if claim.id in ids}
    if ids:  # a user's recipe may have no claims
        print_verdicts(paths, sorted(ids | {claim.id for claim in CLAIMS if claim.program and claim.paper in papers}))


def _of_other_processes(runs: list[PlannedRun]) -> dict[Path, Exception]:
    """Return the runs that other processes have not finished, with an error: with SLURM, each run is a job."""
    from cli.reproduce.cost import state_of

    return {
        run.folder: Fault(f"{state}, not finished; {run.folder}/output.log says why")
        for run in runs
        if (state := state_of(run.config)) != "finished"
    }


def _gpus(jobs: int | None, configs: list[RunConfig]) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each job on this machine, as gpus_of_each_job."""
    on_gpus = [config.train.processes for config in configs if config.train.device != "cpu"]
    return gpus_of_each_job(jobs, max(on_gpus, default=0))


def _stop_on_signals() -> None:
    """Let a signal raise SystemExit; a pool then sends SIGTERM to its processes, and each run saves and stops."""
    for number in handled_signals():
        signal.signal(number, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends this process, and the runs with it
    sys.exit(REQUEUE)


def _run_all(pool: Pool, runs: list[PlannedRun], jobs: int) -> dict[Path, Exception]:
    """Train and evaluate these runs, `jobs` at a time. Return the errors of those that failed."""
    failures, left = dict[Path, Exception](), Counter(run.arm for run in runs)
    known: dict[str, dict[str, Seeds]] = {}  # recipe -> arm -> seed -> run
    futures: dict[Future[str], PlannedRun] = {}
    by_folder: dict[Path, Future[str]] = {}
    for run in parents_first(runs):
        parents = [by_folder[parent] for parent in run.parents if parent in by_folder]
        future = by_folder[run.folder] = pool.submit(run_one, run.overrides, after=parents)
        futures[future] = run
    for done, future in enumerate(as_completed(futures), start=1):
        run, folder = futures[future], futures[future].folder
        try:
            # a run stopped by a signal or by train.max_minutes was saved; its SystemExit ends all runs
            message = future.result()
            if _can_be_reported(folder):
                of_recipe = known.setdefault(run.config.recipe, {})
                of_recipe.setdefault(run.config.arm, {})[run.config.seed] = reader.read(folder)
        except BrokenProcessPool:  # killed, for example when the system ran out of memory
            progress = f"{folder}/output.log shows its progress; run the same command to resume"
            failures[folder] = Fault(f"its process was killed; {progress}")
            message = f"failed: {failures[folder]}"
        except Exception as error:
            failures[folder] = error
            message = f"failed: {one_line(error)}"
        left[run.arm] -= 1
        took = run_time(left, known, jobs)
        time_left = f", about {duration(took)} left" if took else ""
        print(f"{done}/{len(runs)} {folder} {message}{time_left}", file=sys.stderr, flush=True)
    return failures


def run_one(overrides: list[str]) -> str:
    """Train and evaluate one run in this process, with output to RUN/output.log. Return how it ended, in words."""
    from cli.eval.one import evaluate
    from cli.train import train

    config = compose_run(overrides)
    run = RunFolder.of(config)
    if run.is_evaluated and not run.checkpoints:
        run.refuse_changes(config)
        return "is evaluated; it has no checkpoints any more"
    append_output_to(run.path / "output.log")
    start, before = time.monotonic(), run.checkpoints[-1:]
    # results do not depend on these
    like_training = {"processes": config.train.processes, "workers": config.data.workers, "device": config.train.device}
    try:
        with suppress(RunDiverged):  # the evaluation records it
            train(config)
        trained = time.monotonic()
        for settings in evaluations_of(config):
            given = set(map(key_of, settings))
            same = [f"{key}={value}" for key, value in like_training.items() if key not in given]
            evaluate(replace(compose_eval([*same, *settings]), checkpoint=str(run.path)))  # a path may need quotes
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, UserError | Fault):
            raise
        raise Fault(one_line(error)) from None  # not every exception can be pickled and sent to the parent
    end = time.monotonic()
    # the file marks the run as evaluated
    if run.checkpoints[-1:] != before or not run.is_evaluated:
        write_text(run.path / TIMING, json.dumps({"evaluation_seconds": round(end - trained, 1)}) + "\n")
    if (ended := run.divergence()) is not None:
        return f"diverged at step {ended.step}, after {trained - start:.0f} s"
    return f"trained {trained - start:.0f} s, evaluated {end - trained:.0f} s"


def main() -> None:
    """Train a run with these settings as a job of SLURM, on each of its machines; the first one evaluates it."""
    from cli.train import train

    _stop_on_signals()
    is_first, settings = os.environ.get("SLURM_PROCID", "0") == "0", split_config_dir(sys.argv[1:])[1]
    sys.exit(exit_code_of(lambda: print(run_one(settings)) if is_first else train(compose_run(settings))))


if __name__ == "__main__":
    main()
