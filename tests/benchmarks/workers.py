"""One eigensolve with its rows on Dask workers of this machine: seconds, memory, messages; a model for more workers.

    python -m tests.benchmarks.workers STORE [--workers 1 2 4] [--model 16 64] [--memory GIB]

STORE needs the weights of a run of method lle; `eigensolver: {method: multigrid, max_memory: 1MiB}` ends a run there.
The model: processor seconds of one worker divided by the workers, and its messages one after the other: a sum
over all rows takes log2(workers), other exchanges as many as in the largest run. A message takes the time that is
measured between two workers. The cores of the model have the speed of these.
"""

import argparse
import contextlib
import hashlib
import math
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from distributed import Client, LocalCluster

from lle.core.arrays import Array
from lle.core.group import Group
from lle.core.machine import available_cores
from lle.engine.worker_group import run_in_group
from lle.kernels.eigensolver.rows import cut_bounds
from lle.linalg.component_solve import SolveJob, state_name
from lle.linalg.shared_solve import solve_rows
from lle.linalg.solver_checkpoint import delete_state
from lle.storage import array_specs
from lle.storage.blocks import Blocks
from lle.storage.store import Store

PINGS = 500


class Counts(NamedTuple):
    """Calls of one rank: sums over all rows, other exchanges, messages of these, and all bytes sent."""

    gathers: int
    exchanges: int
    messages: int
    n_bytes: int


class Row(NamedTuple):
    """A measured solve; `counts` are those of the rank with most messages."""

    n_workers: int
    seconds: float
    processor_seconds: float
    peak_bytes: int
    n_steps: int
    counts: Counts
    digest: str


class CountedGroup:
    """A group that counts the calls of this rank."""

    def __init__(self, group: Group) -> None:
        self._group, self.rank, self.size, self.counts = group, group.rank, group.size, Counts(0, 0, 0, 0)

    def exchange(self, parts: Mapping[int, Array], sources: Collection[int]) -> dict[int, Array]:
        self._add(0, 1, len(parts), sum(part.nbytes for part in parts.values()))
        return self._group.exchange(parts, sources)

    def gather(self, part: Array) -> list[Array]:
        self._add(1, 0, 0, part.nbytes * (self.size - 1))
        return self._group.gather(part)

    def _add(self, *more: int) -> None:
        self.counts = Counts(*(old + new for old, new in zip(self.counts, more, strict=True)))


def counted_solve(group: Group, job: SolveJob, max_bytes: int) -> tuple[int, int, float, Counts]:
    """(steps, largest memory of a rank, processor seconds of all ranks, counts); see ``solve_rows``."""
    counted, before = CountedGroup(group), time.process_time()
    spectrum, peak = solve_rows(counted, job, max_bytes)
    seconds = sum(float(part[0]) for part in group.gather(np.array([time.process_time() - before])))
    counts = max(Counts(*part.tolist()) for part in group.gather(np.array(counted.counts)))
    return spectrum.stats.n_steps, peak, seconds, counts


def ping(group: Group) -> float:
    """Seconds of a message of 64 bytes to one other rank."""
    started = time.perf_counter()
    for _ in range(PINGS):
        group.gather(np.zeros(8))
    return (time.perf_counter() - started) / PINGS


@contextlib.contextmanager
def workers(n_workers: int, memory: int) -> Iterator[Client]:
    """A client of workers with this memory limit in bytes."""
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, memory_limit=memory, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def measured(url: str, n_workers: int, memory: int) -> Row:
    """A solve of the first component."""
    store = Store(url)
    n_points = int((store.read_all(array_specs.POINT_COMPONENT.name) == 0).sum())
    blocks = Blocks(n_points, store.array(array_specs.WEIGHTS.name).chunks[0])
    job = SolveJob(url, 0, "lle", 2, "multigrid", 1e-8, blocks, memory, 60, False, (), 12, False, True)
    with workers(n_workers, memory) as client:
        started, n_cuts = time.perf_counter(), len(cut_bounds(n_points)) - 1
        n_steps, peak, processor, counts = run_in_group(client, counted_solve, (job, memory), n_cuts)
    delete_state(store, state_name(job))
    return Row(n_workers, time.perf_counter() - started, processor, peak, n_steps, counts, _digest(store))


def _digest(store: Store) -> str:
    """Of the vectors that the ranks have stored; they are deleted."""
    digest = hashlib.sha256()
    for name in sorted(name.removesuffix(".npz") for name in store.objects.names("_work/eigen") if "part-" in name):
        digest.update(store.read_bundle(name)["vector"].tobytes())
        store.delete_bundle(name)
    return digest.hexdigest()[:8]


def modelled(processor_seconds: float, n_workers: int, counts: Counts, message_seconds: float, cores: int) -> float:
    """Seconds of a solve by the model.

    >>> modelled(640.0, 64, Counts(1000, 2000, 4000, 0), 0.0005, 64)
    15.0
    """
    messages = counts.gathers * math.ceil(math.log2(n_workers)) + min(
        counts.messages, counts.exchanges * (n_workers - 1)
    )
    return processor_seconds / min(n_workers, cores) + messages * message_seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--model", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--memory", type=float, default=4.0, help="limit of a worker in GiB")
    options = parser.parse_args(arguments)
    print("| workers | steps | seconds | processor seconds | GiB | sums, exchanges | MB sent | vectors | model |")
    print("|---|---|---|---|---|---|---|---|---|")
    memory, first = int(options.memory * 2**30), None
    with workers(2, memory) as client:
        message = run_in_group(client, ping)
    for n_workers in options.workers:
        row = measured(str(options.store), n_workers, memory)
        first = first or row
        model = modelled(first.processor_seconds, n_workers, row.counts, message, available_cores())
        counts = f"{row.counts.gathers:,}, {row.counts.exchanges:,} | {row.counts.n_bytes / 1e6:,.0f}"
        print(
            f"| {n_workers} | {row.n_steps} | {row.seconds:.0f} | {row.processor_seconds:.0f} "
            f"| {row.peak_bytes / 2**30:.2f} | {counts} | {row.digest} | {model:.0f} |",
            flush=True,
        )
    for n_workers in options.model:
        model = modelled(first.processor_seconds, n_workers, row.counts, message, n_workers)
        print(f"| {n_workers} | | | | | | | | {model:.0f} |")
    print(f"\nA message between two workers took {1000 * message:.2f} ms.")


if __name__ == "__main__":
    main()
