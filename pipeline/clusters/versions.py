"""Client, scheduler and workers must run the same programs: results are promised byte by byte."""

from typing import Any

from distributed import Client

from pipeline.errors import ConfigError

# Those a scheduler runs, and those a worker computes with besides.
MESSAGES = ("python", "dask", "distributed", "cloudpickle", "msgpack", "tornado")
COMPUTING = (
    "lle-pipeline", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask-ml", "pypardiso", "mkl",
)  # fmt: skip
SHOWN = 8


def check_versions(client: Client, where: str) -> None:
    """Raises ConfigError that lists every package whose version differs from this process's, both versions named."""
    found = client.get_versions(packages=COMPUTING)
    mine = _versions(found["client"])
    differing = _differences(mine, _versions(found["scheduler"]), MESSAGES, "the scheduler")
    for address, worker in sorted(found["workers"].items()):
        differing += _differences(mine, _versions(worker), (*MESSAGES, *COMPUTING), f"worker {address}")
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
