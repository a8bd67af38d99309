"""A real SLURM of one node on this machine: munged, slurmctld and slurmd in a folder of their own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "scontrol")
CONFIG = """
ClusterName=lle
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
MpiDefault=none
JobRequeue=1
KillWait=5
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why SLURM cannot be started here; empty when it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian: apt install slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "slurmctld and slurmd need root"


@contextmanager
def slurm_node(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which SLURM's commands reach it; everything is stopped at the end."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o755)
    host = socket.gethostname().split(".")[0]
    config = folder / "slurm.conf"
    ports = {"controller_port": free_port(), "node_port": free_port()}
    config.write_text(CONFIG.format(host=host, folder=folder, **ports))
    environment = {**os.environ, "SLURM_CONF": str(config), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    key = folder / "munge" / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    munge = folder / "munge"
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--socket={folder}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={munge}/pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        ],
        ["slurmctld", "-D", "-f", str(config)],
        ["slurmd", "-D", "-f", str(config), "-N", host],
    ]
    running = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.out").open("wb")
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            log.close()
        wait_until_idle(environment, folder, running)
        yield environment
        subprocess.run(["scancel", "--user=root"], env=environment, check=False, timeout=30)
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_idle(environment: dict[str, str], folder: Path, running: list[subprocess.Popen]) -> None:
    """Until the node takes jobs."""
    deadline = time.monotonic() + 60
    while True:
        command = ["sinfo", "-h", "-o", "%t"]
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if completed.stdout.strip() == "idle":
            return
        dead = [process.args[0] for process in running if process.poll() is not None]
        logs = "\n".join(path.read_text()[-1500:] for path in folder.glob("*.out"))
        assert not dead, f"{dead} ended: {logs}"
        assert time.monotonic() < deadline, f"{completed.stdout}{completed.stderr}{logs}"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
