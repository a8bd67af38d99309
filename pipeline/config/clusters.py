"""The section execution.cluster: one model for each kind of cluster."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from .fields import Command, Int, Model, Name, Size, int_or_text

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
ADDRESS = r"(tcp|tls)://([\w.-]+|\[[\w.:%]+\]):[0-9]{1,5}"
# Values that go unquoted into the lines of a job script must stay one word: no new line, option or command.
SCRIPT_NAME = r"^\w[\w.,:@+-]*$"
SCRIPT_FOLDER = r"(~\w*/|[\w./])[\w.,:@+=/-]*"
VARIABLE = r"\$\w+|\$\{\w+\}"  # which the shell of the node expands
SCRIPT_SCRATCH = rf"(~\w*/|[\w./]|{VARIABLE})([\w.,:@+=/-]|{VARIABLE})*"


def parse_seconds(value: object) -> object:
    """Seconds of "HH:MM:SS" or "D-HH:MM:SS"; an integer unchanged (YAML reads 04:00:00 as seconds).

    >>> parse_seconds("1-02:00:05"), parse_seconds("00:30:00"), parse_seconds(90)
    (93605, 1800, 90)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError('expected a time such as "04:00:00" or "1-12:00:00" (days-hours:minutes:seconds), or seconds')
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


Seconds = Annotated[int, Field(gt=0), BeforeValidator(parse_seconds), int_or_text(exclusiveMinimum=0)]
Wait = Annotated[int, Field(ge=0), BeforeValidator(parse_seconds), int_or_text(minimum=0)]


def parse_address(value: str) -> str:
    """Check the address of a scheduler. Dask would retry a wrong address until its timeout."""
    if re.fullmatch(ADDRESS, value) is None:
        raise ValueError("expected tcp://HOST:PORT or tls://HOST:PORT, for instance tcp://10.0.0.1:8786")
    return value


def parse_folder(value: str, pattern: str = SCRIPT_FOLDER, also_allowed: str = "") -> str:
    """Check a folder that is written into the job script."""
    if re.fullmatch(pattern, value) is None:
        raise ValueError(
            f"expected a folder of letters, digits and . _ - , : @ + = /{also_allowed} only, without spaces: it is "
            f"written unquoted into the job script"
        )
    return value


Address = Annotated[
    str, AfterValidator(parse_address), Command("a scheduler may run code in this process and on its workers")
]
SbatchOption = Annotated[str, Command("they are options of sbatch")]
ShellLine = Annotated[str, Command("its lines are shell commands")]


class Tls(Model):
    """PEM files: the authority that signed the scheduler's certificate, and this client's certificate and key."""

    ca: str = Field(min_length=1, description="certificate of the authority that signed the scheduler's")
    cert: str = Field(min_length=1, description="this client's certificate")
    key: str = Field(min_length=1, description="this client's private key")


class Cluster(Model):
    """Run in this process, on worker processes of this machine, or on an existing scheduler."""

    kind: Literal["serial", "local", "address"] = Field(
        "local", description="one thread, several threads or worker processes here, or a scheduler that is running"
    )
    workers: Annotated[Int, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="local: worker processes; auto: threads of this process, or as many workers as cores and memory "
        "allow if they are expected to be faster",
    )
    memory: Size = Field("auto", description="limit of one worker; auto: its share of what is free")
    address: Address | None = Field(None, description="address of the scheduler: tcp://HOST:PORT or tls://HOST:PORT")
    tls: Tls | None = Field(None, description="PEM files for a tls:// address")
    memory_resource: Name | None = Field(
        None, min_length=1, description="resource of the workers that run whole-data steps; null: the driver runs them"
    )

    def contradictions(self) -> Iterator[str]:
        if (self.kind == "address") != (self.address is not None):
            yield "execution.cluster.address goes with kind: address; set both or neither"
        if self.memory_resource is not None and self.kind != "address":
            yield "execution.cluster.memory_resource goes with kind: address only"
        encrypted = (self.address or "").startswith("tls://")
        if encrypted != (self.tls is not None):
            yield (
                "execution.cluster.tls {ca, cert, key} goes with an address that begins with tls://; set both or "
                f"neither; the address is {self.address!r}"
            )


class KubernetesCluster(Model):
    """A DaskCluster for this run, made from the PodTemplates that k8s/ installs."""

    kind: Literal["kubernetes"] = Field(description="pods of a DaskCluster that the driver makes and deletes")
    workers: Int = Field(4, gt=0, description="worker pods")
    memory: Size = Field("auto", description="request and limit of a worker's pod; auto: from its template")
    high_memory: Size = Field(
        "auto", description="request and limit of the pod for whole-data steps, including the eigensolve"
    )
    name: Name = Field(
        "auto",
        max_length=53,
        pattern=DNS_LABEL,
        description="name of the DaskCluster; auto: that of the Job, which k8s/ puts into LLE_CLUSTER_NAME",
    )
    namespace: Name = Field("auto", pattern=DNS_LABEL, description="its namespace; auto: that of the driver")
    templates: Name = Field(
        "lle", pattern=DNS_LABEL, description="NAME of the PodTemplates NAME-scheduler, NAME-worker and NAME-memory"
    )
    idle_timeout: Seconds = Field(1800, description="the operator deletes a cluster that is idle for this long")
    start_timeout: Seconds = Field(900, description="longest wait for the scheduler and the first workers")


class SlurmCluster(Model):
    """SLURM jobs for the workers. The driver submits them from its own job, which has the memory of the eigensolve."""

    kind: Literal["slurm"] = Field(description="worker jobs that the driver submits")
    workers: Int = Field(4, gt=0, description="workers in all; rounded up to whole jobs")
    memory: Size = Field(4 * 2**30, description="memory of each worker")
    workers_per_job: Int = Field(1, gt=0, description="workers that share a job")
    partition: Name | None = Field(None, pattern=SCRIPT_NAME, description="partition of the worker jobs")
    account: Name | None = Field(None, pattern=SCRIPT_NAME, description="account that pays for the worker jobs")
    walltime: Seconds = Field(4 * 3600, description="time limit of a worker job; when it ends, a new job replaces it")
    interface: Name | None = Field(None, pattern=SCRIPT_NAME, description="network between the nodes, for instance ib0")
    directives: tuple[SbatchOption, ...] = Field(
        (), description="more options of sbatch, for instance --constraint=avx512"
    )
    prologue: tuple[ShellLine, ...] = Field((), description="shell lines that run before a worker starts")
    log_directory: Annotated[str, AfterValidator(parse_folder)] | None = Field(
        None, description="folder for the output of the worker jobs"
    )
    local_directory: (
        Annotated[str, AfterValidator(partial(parse_folder, pattern=SCRIPT_SCRATCH, also_allowed=" and $NAME"))] | None
    ) = Field(None, description="node-local scratch of the workers, for instance $TMPDIR")
    start_timeout: Seconds = Field(1800, description="longest wait for the first worker in the queue")

    def contradictions(self) -> Iterator[str]:
        if self.memory == "auto":
            yield "execution.cluster.memory: SLURM needs a size, for instance 4GiB; found 'auto'"


def _with_kind(section: object) -> object:
    return {"kind": "local", **section} if isinstance(section, dict) else section


Clusters = Annotated[Cluster | KubernetesCluster | SlurmCluster, Field(discriminator="kind")]
AnyCluster = Annotated[Clusters, BeforeValidator(_with_kind)]
