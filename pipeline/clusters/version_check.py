"""Check that client, scheduler and workers run the same versions: results must be equal byte by byte."""

import os
import socket
from collections.abc import Mapping
from functools import cache

from distributed import Client, LocalCluster
from distributed.versions import get_versions

from ..core.errors import ConfigError
from ..core.machine import PACKAGES, source_digest

# Packages of the scheduler, and further packages that a worker computes with.
MESSAGES = ("python", "dask", "distributed", "cloudpickle", "msgpack", "tornado")
COMPUTING = tuple(name for name in (*PACKAGES, "numba") if name not in MESSAGES)
SOURCES = "sources of lle-pipeline"
SHOWN = 8


def check_versions(client: Client, where: str) -> None:
    """Raises ConfigError that lists every package whose version differs from this process's, with both versions."""
    reported = client.get_versions(packages=COMPUTING)
    own = _versions(reported["client"])
    differing = _differences(own, _versions(reported["scheduler"]), MESSAGES, "the scheduler")
    for address, worker in sorted(reported["workers"].items()):
        differing += _differences(own, _versions(worker), (*MESSAGES, *COMPUTING), f"worker {address}")
    for address, theirs in sorted(client.run(source_digest, on_error="return").items()):
        if not isinstance(theirs, OSError):  # the worker has just stopped
            their_sources = {SOURCES: theirs if isinstance(theirs, str) else "others"}
            differing += _differences({SOURCES: source_digest()}, their_sources, (SOURCES,), f"worker {address}")
    _refuse(differing, where)


@cache
def program_versions() -> dict[str, str]:
    """The versions that determine the bytes that this process computes."""
    return {**_versions(get_versions(packages=COMPUTING)), SOURCES: source_digest()}


def required_versions(client: Client) -> dict[str, str] | None:
    """The versions that each task requires of its worker: workers may join after the first check.

    None for workers of a local cluster. This process starts them with its own versions, and an edit of the source
    files meanwhile must not stop the run.
    """
    return None if isinstance(getattr(client, "cluster", None), LocalCluster) else program_versions()


def require_versions(required: dict[str, str] | None) -> None:
    """Check in a worker before it computes. Raises ConfigError as `check_versions` does."""
    if required is not None:
        who = f"the worker of process {os.getpid()} on {socket.gethostname()}"
        _refuse(
            _differences(required, program_versions(), (*MESSAGES, *COMPUTING, SOURCES), who),
            "a worker that joined later",
        )


def _refuse(differing: list[str], where: str) -> None:
    if differing:
        more = [f"and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
        raise ConfigError(
            f"{where}: versions differ:\n  " + "\n  ".join([*differing[:SHOWN], *more]) + "\nInstall the same versions "
            "on both sides (constraints.txt lists versions tested together), or use the same image"
        )


def _versions(reported: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    packages = {name: "missing" if version is None else str(version) for name, version in reported["packages"].items()}
    return {**packages, "python": ".".join(packages["python"].split(".")[:2])}


def _differences(own: dict[str, str], theirs: dict[str, str], names: tuple[str, ...], who: str) -> list[str]:
    return [
        f"{name}: {own[name]} here, {theirs.get(name, 'missing')} on {who}"
        for name in names
        if own[name] != theirs.get(name, "missing")
    ]
