"""Submit runs to SLURM (launch.slurm): arrays of jobs, one job for each run, and a last job after all of them.

The jobs are a shell script that calls sbatch. It is run, or printed with launch.submit=false: what is printed is what
would run. Nothing waits for the jobs.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from clipx.config.schema import LaunchConfig, RunConfig
from clipx.errors import REQUEUE, UserError

OWN = ("launch.slurm", "launch.submit", "launch.nodes", "launch.rendezvous")  # settings that the jobs replace
SAVE = 120  # seconds before a time limit at which SLURM sends the signal to save

SUBMIT = """\
{variable}=$(sbatch --parsable{after} <<'JOBS'
#!/bin/bash
#SBATCH --job-name={name}{array} --nodes={nodes} --ntasks-per-node=1{gpus} --output={logs}/%x-{number}.out
#SBATCH --signal=USR1@{save} --requeue --open-mode=append
#SBATCH {options}
case ${{SLURM_ARRAY_TASK_ID:-0}} in
{cases}
esac
export OMP_WAIT_POLICY=PASSIVE  # as the command `clipx` does
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
for start in $(seq 0 {restarts}); do
    srun --ntasks=$SLURM_JOB_NUM_NODES ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}} \\
        {python} -P -m "$@"{nodes_of_run}
    code=$?
    [ $code -eq 138 ] && code={requeue}  # SIGUSR1 came before training
    [ $code -gt 128 ] || break  # killed, for example because memory ran out
done
[ $code -eq {requeue} ] && scontrol requeue "$SLURM_JOB_ID"  # stopped early and saved
exit $code
JOBS
)
{variable}=${{{variable}%%;*}}  # without the name of the cluster
echo "{name}: job ${variable}, {what}; output in {logs}"
"""
NODES_OF_RUN = ' launch.nodes=$SLURM_JOB_NUM_NODES "launch.rendezvous=$first:$((20000 + SLURM_JOB_ID % 10000))"'


@dataclass(frozen=True)
class Job:
    """A run on SLURM, or the report after the runs."""

    module: str  # of clipx
    arguments: list[str]
    config: RunConfig
    after: int = 0  # jobs with a smaller number must end before


def script_of(runs: Sequence[Job], last: Job | None = None, at_once: int | None = None) -> str:
    """Return the shell script that submits the runs and, after all of them, the last job, on one GPU at most.

    Runs with the same needs form an array of jobs, of which at most `at_once` run at a time.

    Raises UserError: two runs have the same folder.
    """
    if len({(job.config.name, job.config.seed) for job in runs}) < len(runs):
        raise UserError("several runs would share a directory: leave name= out")
    arrays: dict[tuple[int, int, int], list[Job]] = {}
    for job in sorted(runs, key=lambda job: job.after):
        arrays.setdefault((job.after, job.config.launch.nodes, _gpus(job.config)), []).append(job)
    logs = shlex.quote(f"{[*runs, last][0].config.runs}/slurm")  # type: ignore[union-attr]
    parts = ["#!/bin/bash", "set -e", f"mkdir -p {logs}"]
    submitted: dict[str, int] = {}  # variable -> `after`
    for (after, nodes, gpus), jobs in arrays.items():
        before = [variable for variable, level in submitted.items() if level < after]
        variable = f"runs_{len(submitted)}"
        parts.append(_submission(jobs, variable, "clipx", before, nodes, gpus, logs, at_once))
        submitted[variable] = after
    if last is not None:
        gpus = min(1, _gpus(last.config))
        parts.append(_submission([last], "report", "clipx-report", [*submitted], 1, gpus, logs, None))
    return "\n".join(parts)


def _gpus(config: RunConfig) -> int:
    return 0 if config.train.device == "cpu" else config.train.processes


def _submission(
    jobs: list[Job], variable: str, name: str, before: list[str], nodes: int, gpus: int, logs: str, at_once: int | None
) -> str:
    """Return the lines that submit one array of jobs, to start when the jobs in the variables `before` have ended."""
    launch, several = jobs[0].config.launch, len(jobs) > 1
    return SUBMIT.format(
        variable=variable,
        name=name,
        after=" --dependency=afterany" + "".join(f":${job}" for job in before) if before else "",
        array=f" --array=0-{len(jobs) - 1}" + (f"%{at_once}" if at_once else "") if several else "",
        number="%A_%a" if several else "%j",
        nodes=nodes,
        gpus=f" --gpus-per-node={gpus}" if gpus else "",
        logs=logs,
        save=SAVE,
        options=launch.slurm,
        cases="\n".join(f"{i}) set -- {_command(job)} ;;" for i, job in enumerate(jobs)),
        restarts=launch.max_restarts,
        python=shlex.quote(sys.executable),
        nodes_of_run=NODES_OF_RUN if name == "clipx" else "",
        requeue=REQUEUE,
        what=f"{len(jobs)} runs" if several else "1 run" if name == "clipx" else "after the runs",
    )


def _command(job: Job) -> str:
    return shlex.join([job.module, *(a for a in job.arguments if a.partition("=")[0] not in OWN)])


def require_slurm(launch: LaunchConfig) -> None:
    """Raise UserError if this machine cannot submit jobs."""
    if launch.submit and shutil.which("sbatch") is None:
        instead = "submit on a login node, or print the script with launch.submit=false"
        raise UserError(f"launch.slurm={launch.slurm}: SLURM is not on this machine (no sbatch on the PATH): {instead}")


def submit(script: str, launch: LaunchConfig) -> None:
    """Run the script, or print it with launch.submit=false.

    Raises UserError: SLURM is not here, or refuses a job.
    """
    require_slurm(launch)
    if not launch.submit:
        print(script, end="")
        return
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        raise UserError(f"launch.slurm={launch.slurm}: SLURM refuses the jobs: {' '.join(done.stderr.split())}")
