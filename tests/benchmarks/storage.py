"""One job with its input and store on local disk, and on object stores of this machine: seconds, requests and bytes.

`python -m tests.benchmarks.storage 100000` prints the table of docs/object_storage.md. A forwarder between the program
and the service counts requests and bytes. `--race 40` prints instead how often more than one of eight writers at once
gets the answer that it has created an object: from the service, and from the program, which reads back.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import yaml

from lle.kernels.manifolds import sample
from lle.storage.objects import open_objects
from tests.benchmarks.measure import run_measured
from tests.support.object_servers import SERVERS
from tests.support.stored import winners, zarr_group
from tests.support.traffic import Traffic, counted


class Row(NamedTuple):
    """A line of the table; requests by kind."""

    place: str
    seconds: float
    requests: Counter[str]
    bytes_written: int
    bytes_read: int

    def __str__(self) -> str:
        named = ", ".join(f"{number} {kind}" for kind, number in self.requests.most_common())
        written, read = (f"{n_bytes / 1e6:.1f}" if named else "" for n_bytes in (self.bytes_written, self.bytes_read))
        return f"| {self.place} | {self.seconds:.1f} | {named} | {written} | {read} |"


def measure(place: str, n_points: int, folder: Path, cluster: dict) -> Row:
    """Run the job with input and store in one place: disk, moto, swift or azurite."""
    folder.mkdir(parents=True)
    if place == "disk":
        return _run(place, n_points, folder, cluster, str(folder / "points.zarr"), str(folder / "run.zarr"), Traffic())
    with (
        SERVERS[place](folder) as bare,
        counted(bare) as (server, traffic),
        mock.patch.dict(os.environ, server.environment),
    ):
        return _run(place, n_points, folder, cluster, server.url("points.zarr"), server.url("run.zarr"), traffic)


def _run(place: str, n_points: int, folder: Path, cluster: dict, source: str, store: str, traffic: Traffic) -> Row:
    points = sample("swiss_roll", 0, n_points, 7, 0.0, 0.0).points
    group = zarr_group(source)
    group.create_array("points", data=points, chunks=(max(1, n_points // 8), points.shape[1]))
    config = folder / "job.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "input": {"kind": "zarr", "url": source, "array": "points"},
                "output": {"store": store},
                "execution": {"block_points": max(16, n_points // 8), "cluster": cluster},
            }
        )
    )
    traffic.forget()
    cost = run_measured([sys.executable, "-m", "lle", "run", str(config)])
    return Row(place, cost.seconds, traffic.requests, traffic.sent, traffic.received)


def races(place: str, n_rounds: int, folder: Path) -> str:
    """Rounds with more than one winner: of conditional puts, and of `create`."""
    folder.mkdir(parents=True)
    with SERVERS[place](folder) as server, mock.patch.dict(os.environ, server.environment):
        objects: Any = open_objects(server.url("race"))

        def condition(name: str, me: bytes) -> bool:
            with contextlib.suppress(objects._obs.exceptions.AlreadyExistsError):
                objects._obs.put(objects._store, name, me, mode="create")
                return True
            return False

        counts = [
            sum(len(winners(act, f"{kind}{number}")) != 1 for number in range(n_rounds))
            for kind, act in (("raw", condition), ("create", objects.create))
        ]
    return f"| {place} | {counts[0]} of {n_rounds} | {counts[1]} of {n_rounds} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_points", nargs="?", type=int, default=100_000)
    parser.add_argument("--places", nargs="+", default=["disk", *SERVERS], choices=["disk", *SERVERS])
    parser.add_argument("--race", type=int, metavar="ROUNDS", help="race for objects instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.race:
            print("| service | by the service | by the program |\n|---|---|---|", flush=True)
            for place in SERVERS:
                print(races(place, arguments.race, Path(folder, place)), flush=True)
            return
    print("| place | seconds | requests | MB written | MB read |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for place in arguments.places:
            try:
                row = measure(place, arguments.n_points, Path(folder, place), {"kind": "local", "workers": 2})
            except pytest.skip.Exception as missing:
                row = f"| {place} | {missing} | | | |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
