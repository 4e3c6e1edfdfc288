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
LAST = 1_000_000  # `after` of the report
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
        {python} -P -m "$@" launch.nodes=$SLURM_JOB_NUM_NODES \\
        launch.rendezvous=$first:$((20000 + SLURM_JOB_ID % 10000))
    code=$?
    [ $code -eq 138 ] && code={requeue}  # SIGUSR1 came before training
    [ $code -gt 128 ] || break  # killed, for example because memory ran out
done
[ $code -eq {requeue} ] && scontrol requeue "$SLURM_JOB_ID"  # stopped early and saved
exit $code
JOBS
)
{variable}=${{{variable}%%;*}}  # without the name of the cluster
echo "{name}: job ${variable}, number of runs: {runs}; output in {logs}"
"""


@dataclass(frozen=True)
class Job:
    """A run on SLURM, or the report after the runs."""

    module: str  # of clipx
    arguments: list[str]
    config: RunConfig
    after: int = 0  # starts when all jobs with a smaller number have ended

    @property
    def needs(self) -> tuple[int, str, int, int]:
        """`after`, name, nodes and GPUs of each node; the report takes one GPU at most."""
        train, is_report = self.config.train, self.after == LAST
        gpus = 0 if train.device == "cpu" else 1 if is_report else train.processes
        return self.after, "clipx-report" if is_report else "clipx", 1 if is_report else self.config.launch.nodes, gpus

    @property
    def command(self) -> str:
        """Module and arguments, quoted for the shell."""
        return shlex.join([self.module, *(a for a in self.arguments if a.partition("=")[0].lstrip("+") not in OWN)])


def script_of(jobs: Sequence[Job], at_once: int | None = None) -> str:
    """Return the shell script that submits the jobs.

    Jobs with the same needs form an array, of which at most `at_once` run at a time.

    Raises UserError: two runs have the same folder.
    """
    config = jobs[0].config
    folders = [(job.config.name, job.config.seed) for job in jobs if job.after != LAST]
    if len({*folders}) < len(folders):
        raise UserError("several runs would share a directory: leave name= out")
    arrays: dict[tuple[int, str, int, int], list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.after):
        arrays.setdefault(job.needs, []).append(job)
    logs = shlex.quote(f"{config.runs}/slurm")
    parts = ["#!/bin/bash", "set -e", f"mkdir -p {logs}"]
    for i, ((after, name, nodes, gpus), of_array) in enumerate(arrays.items()):
        before = "".join(f":$jobs_{k}" for k, (earlier, *_) in enumerate(arrays) if earlier < after)
        several, limit = len(of_array) > 1, f"%{at_once}" if at_once else ""
        part = SUBMIT.format(
            variable=f"jobs_{i}",
            name=name,
            after=f" --dependency=afterany{before}" if before else "",
            array=f" --array=0-{len(of_array) - 1}{limit}" if several else "",
            number="%A_%a" if several else "%j",
            nodes=nodes,
            gpus=f" --gpus-per-node={gpus}" if gpus else "",
            logs=logs,
            save=SAVE,
            options=config.launch.slurm,
            cases="\n".join(f"{k}) set -- {job.command} ;;" for k, job in enumerate(of_array)),
            restarts=config.launch.max_restarts,
            python=shlex.quote(sys.executable),
            requeue=REQUEUE,
            runs=len(of_array) if after != LAST else len(folders),
        )
        parts.append(part)
    return "\n".join(parts)


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
