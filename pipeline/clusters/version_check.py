"""Client, scheduler and workers must run the same programs: results are promised byte by byte."""

import os
import socket
from functools import cache
from typing import Any

from distributed import Client, LocalCluster
from distributed.versions import get_versions

from pipeline.core.errors import ConfigError
from pipeline.core.machine import own_sources

# Those a scheduler runs, and those a worker computes with besides.
MESSAGES = ("python", "dask", "distributed", "cloudpickle", "msgpack", "tornado")
COMPUTING = (
    "lle-pipeline", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask-ml", "pypardiso", "mkl",
)  # fmt: skip
SOURCES = "sources of lle-pipeline"
SHOWN = 8


def check_versions(client: Client, where: str) -> None:
    """Raises ConfigError that lists every package whose version differs from this process's, both versions named."""
    found = client.get_versions(packages=COMPUTING)
    mine = _versions(found["client"])
    differing = _differences(mine, _versions(found["scheduler"]), MESSAGES, "the scheduler")
    for address, worker in sorted(found["workers"].items()):
        differing += _differences(mine, _versions(worker), (*MESSAGES, *COMPUTING), f"worker {address}")
    for address, theirs in sorted(client.run(own_sources, on_error="return").items()):
        if not isinstance(theirs, OSError):  # a worker that has just gone
            found_there = {SOURCES: theirs if isinstance(theirs, str) else "others"}
            differing += _differences({SOURCES: own_sources()}, found_there, (SOURCES,), f"worker {address}")
    _refuse(differing, where)


@cache
def programs() -> dict[str, str]:
    """What decides the bytes that this process computes."""
    return {**_versions(get_versions(packages=COMPUTING)), SOURCES: own_sources()}


def expected(client: Client) -> dict[str, str] | None:
    """What each task asks of its worker, since workers come late too: the programs of this process.

    None for workers that this process starts itself: they are what it is, but for files that are edited meanwhile.
    """
    return None if isinstance(getattr(client, "cluster", None), LocalCluster) else programs()


def require(wanted: dict[str, str] | None) -> None:
    """In a worker, before it computes. Raises ConfigError as `check_versions` does."""
    if wanted is not None:
        who = f"the worker of process {os.getpid()} on {socket.gethostname()}"
        _refuse(_differences(wanted, programs(), (*MESSAGES, *COMPUTING, SOURCES), who), "a worker that came late")


def _refuse(differing: list[str], where: str) -> None:
    if differing:
        more = [f"and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
        raise ConfigError(
            f"{where}: versions differ:\n  " + "\n  ".join([*differing[:SHOWN], *more]) + "\nInstall the same versions "
            "on both sides (constraints.txt names those tested together), or use the same image"
        )


def _versions(reported: dict[str, Any]) -> dict[str, str]:
    packages = {name: "missing" if version is None else str(version) for name, version in reported["packages"].items()}
    return {**packages, "python": ".".join(packages["python"].split(".")[:2])}


def _differences(mine: dict[str, str], theirs: dict[str, str], names: tuple[str, ...], who: str) -> list[str]:
    return [
        f"{name}: {mine[name]} here, {theirs.get(name, 'missing')} on {who}"
        for name in names
        if mine[name] != theirs.get(name, "missing")
    ]
