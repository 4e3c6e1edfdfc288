"""A SLURM cluster of two nodes on this machine: slurmctld and two slurmd on the loopback.

The programs come from Debian's packages, which `make test-slurm` unpacks into .slurm/; nothing on the system changes.
The daemons run as the current user. No key is needed, because messages are not signed (auth/none), and no line in
/etc/hosts, because the names of the nodes are addresses of the loopback.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.ports import free_ports

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".slurm"
NODES = ("127.0.0.1", "127.0.0.2")
LIMIT = 1800.0  # seconds; importing torch in several processes takes minutes on a busy machine
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")  # states of jobs
CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmctldDebug=debug
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName={nodes[0]} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=16000
NodeName={nodes[1]} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=16000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Cluster:
    """A running cluster. SLURM's commands find it through `environment`."""

    folder: Path  # configuration, logs, state
    environment: dict[str, str]

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Run a command, for example of SLURM, and return its output."""
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def job(self, number: str, field: str) -> str:
        """Return a field of a job as `scontrol show job` prints it, for example JobState."""
        found = re.search(rf"\b{field}=(\S+)", self.run("scontrol", "show", "job", number))
        assert found
        return found[1]

    def wait_for(self, number: str, condition: Callable[[], object], missing: str) -> None:
        """Wait until a condition is true; raise AssertionError if the job ends before."""

        def reached() -> bool:
            ended = self.job(number, "JobState") in ENDED
            if condition():
                return True
            assert not ended, f"{missing}, but job {number} ended:\n{Path(self.job(number, 'StdOut')).read_text()}"
            return False

        wait_for(reached, missing, self.folder)

    def wait_for_state(self, number: str, state: str) -> None:
        """Wait until a job has a state, for example PENDING; raise AssertionError if it ends in another state."""
        self.wait_for(number, lambda: self.job(number, "JobState") == state, f"job {number} is not {state}")

    def start_requeued(self, number: str, **changes: str) -> None:
        """Start a requeued job in 5 seconds, with changed settings; SLURM would wait for two minutes.

        Do not start it at once: a node refuses a job in the second in which it revoked the job's credential.
        """
        self.wait_for_state(number, "PENDING")
        settings = [f"{key}={value}" for key, value in changes.items()]
        self.run("scontrol", "update", f"jobid={number}", *settings, "StartTime=now+5seconds")


def wait_for(condition: Callable[[], object], missing: str, logs: Path, limit: float = LIMIT) -> None:
    """Wait until a condition is true. Raise AssertionError with the ends of the logs after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            tails = [f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(logs.glob("*.log"))]
            raise AssertionError("\n".join([missing, *tails]))
        time.sleep(0.05)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster with idle nodes; cancel its jobs and stop it at the end."""
    libraries = next(INSTALLED.glob("root/usr/lib/*/slurm-wlm"))
    programs = INSTALLED / "root/usr/sbin"
    user = subprocess.run(["id", "--user", "--name"], capture_output=True, text=True, check=True).stdout.strip()
    config = CONFIG.format(ports=free_ports(3), user=user, plugins=libraries, folder=folder, nodes=NODES)
    (folder / "slurm.conf").write_text(config)
    (folder / "state").mkdir()
    path = [str(INSTALLED / "root/usr/bin"), os.environ["PATH"]]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))},
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": os.pathsep.join(path),
        "LD_LIBRARY_PATH": f"{libraries.parent}:{libraries}",
        "PYTHONPATH": str(ROOT),
        "CLIPX_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    cluster = Cluster(folder, environment)
    stepd = ["-d", str(programs / "slurmstepd-wlm")]
    commands = [[str(programs / "slurmctld-wlm"), "-D"]]
    commands += [[str(programs / "slurmd-wlm"), "-D", "-N", node, *stepd] for node in NODES]
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(daemon(command, folder, environment))
        stack.callback(cancel_all, cluster)
        wait_for(lambda: states(cluster) == ["idle", "idle"], "the nodes are not idle", folder, limit=120)
        yield cluster


@contextmanager
def daemon(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a daemon; end it also if this process is killed."""
    with (folder / "daemons.log").open("ab") as output:
        command = ["setpriv", "--pdeathsig", "TERM", *command]
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def cancel_all(cluster: Cluster) -> None:
    """Cancel all jobs and wait until their processes have ended."""
    for number in cluster.run("squeue", "--noheader", "--format=%i").split():
        cluster.run("scancel", number)
    wait_for(lambda: not cluster.run("squeue", "--noheader"), "jobs were not cancelled", cluster.folder)


def states(cluster: Cluster) -> list[str]:
    """Return the state of each node; [] if slurmctld does not answer yet."""
    try:
        return cluster.run("sinfo", "--noheader", "--Node", "--format=%t").split()
    except AssertionError:
        return []
