"""SLURM jobs for the workers, by dask-jobqueue. The scheduler runs in the driver, which has its own job."""

import contextlib
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dask
from distributed import Client
from distributed.exceptions import WorkerStartTimeoutError

from ..config.models import SlurmCluster
from ..core.errors import ConfigError, LleError
from ..core.machine import WORKER_PROFILE
from .existing_scheduler import innermost
from .version_check import check_versions

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster

SBATCH_SECONDS = 60
REPLACE_SECONDS = 10  # interval of replacing jobs that ended (cancelled, preempted, out of time)
LIFETIME_SHARE = 0.9  # workers stop before SLURM kills them, and hand over their results
LIFETIME_STAGGER = 0.05  # spread of the stops, as a share of the wall time
JOB_NAME = "lle-worker"
OWN_DASHBOARD = "127.0.0.1:0"
ENVIRONMENT = ("export NUMBA_NUM_THREADS=1", f"export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED={WORKER_PROFILE}")
COMMANDS = ("sbatch", "scancel", "squeue")


@contextlib.contextmanager
def slurm_cluster(cluster: SlurmCluster) -> Iterator[Client]:
    """A client of workers in SLURM jobs, which are cancelled at the end.

    Raises ConfigError if SLURM or the extra is missing or SLURM refuses the jobs, LleError if no job starts in time.
    """
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        raise ConfigError(
            f"execution.cluster.kind: slurm needs SLURM's commands; not found: {', '.join(missing)}. Run this on a "
            f"login or compute node, or use kind: local"
        )
    try:
        import dask_jobqueue  # an optional extra
    except ImportError:
        raise ConfigError(
            "execution.cluster.kind: slurm needs the extra slurm: run pip install '.[slurm]' in the source folder"
        ) from None
    options = job_options(cluster)
    try:
        if cluster.log_directory is not None:
            Path(str(options["log_directory"])).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"execution.cluster.log_directory: {cluster.log_directory}: {error.strerror}") from None
    with dask.config.set({"distributed.comm.timeouts.connect": "60s"}):
        try:
            jobs = dask_jobqueue.SLURMCluster(**options)
        except (RuntimeError, ValueError, OSError) as error:
            raise ConfigError(
                f"execution.cluster: the Dask scheduler for the SLURM workers cannot be started on this machine "
                f"({innermost(error)}); execution.cluster.interface is {cluster.interface}"
            ) from None
        with jobs, Client(jobs) as client:
            _try_submission(jobs.job_script())
            n_jobs = math.ceil(cluster.workers / cluster.workers_per_job)
            jobs.adapt(minimum_jobs=n_jobs, maximum_jobs=n_jobs, interval=f"{REPLACE_SECONDS}s")
            _wait_for_a_worker(client, jobs, cluster.start_timeout)
            check_versions(client, f"SLURM jobs {JOB_NAME}")
            yield client


def job_options(cluster: SlurmCluster) -> dict[str, object]:
    """Arguments of dask_jobqueue.SLURMCluster: one job holds workers_per_job processes of one thread each."""
    lifetime, minutes = int(LIFETIME_SHARE * cluster.walltime), cluster.walltime // 60
    stagger = math.ceil(LIFETIME_STAGGER * cluster.walltime)
    # The default dashboard address would listen on every network of the node.
    arguments = f"--lifetime {lifetime}s --lifetime-stagger {stagger}s --dashboard-address {OWN_DASHBOARD}"
    return {
        "queue": cluster.partition,
        "account": cluster.account,
        "cores": cluster.workers_per_job,
        "processes": cluster.workers_per_job,
        "memory": f"{int(cluster.memory) * cluster.workers_per_job}B",
        "walltime": f"{minutes // 60}:{minutes % 60:02}:{cluster.walltime % 60:02}",
        "interface": cluster.interface,
        "job_name": JOB_NAME,
        "job_extra_directives": list(cluster.directives),
        "job_script_prologue": [*ENVIRONMENT, *cluster.prologue],
        "worker_extra_args": arguments.split(),
        "log_directory": cluster.log_directory and str(Path(cluster.log_directory).expanduser()),
        "local_directory": cluster.local_directory,
        "python": sys.executable,
        "scheduler_options": {"dashboard_address": OWN_DASHBOARD},
    }


def _try_submission(script: str) -> None:
    """Let SLURM check the job script: dask-jobqueue only logs a later refusal."""
    test = ["sbatch", "--test-only"]
    try:
        result = subprocess.run(test, input=script, capture_output=True, text=True, timeout=SBATCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise LleError(
            f"SLURM did not answer `{' '.join(test)}` within {SBATCH_SECONDS} s",
            advice="look at `sinfo`, and run the same command again",
        ) from None
    if result.returncode != 0:
        raise ConfigError(f"SLURM refuses the workers' jobs: {result.stderr.strip()}\nThe script was:\n{script}")


def _wait_for_a_worker(client: Client, jobs: "SLURMCluster", seconds: int) -> None:
    """Wait for the first worker; the others join as the queue admits them."""
    try:
        client.wait_for_workers(1, timeout=seconds)
    except WorkerStartTimeoutError:
        raise LleError(
            f"no SLURM job of a worker started within {seconds} s (execution.cluster.start_timeout); `squeue --me "
            f"--start` shows the reason. The script was:\n{jobs.job_script()}"
        ) from None
