"""Random changes of the config, some runs killed: a finished run leaves what a fresh run of its config leaves."""

from pathlib import Path
from unittest import mock

import numpy as np

from lle.core.errors import LleError
from lle.engine import checkpoint
from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import call, write
from tests.fuzz.mutate import choose

LIMITS = Limits(seconds=60, n_bytes=700 * 2**20)
CONFIG = (
    "input: {kind: synthetic, name: s_curve, n_points: 40}\nquality: {sample: 10, geodesic_sources: 0}\n"
    "neighbors: {n_neighbors: 8}\nweights: {reg: 1.0e-3}\neigensolver: {method: shift_invert}\n"
    "execution: {block_points: 16, cluster: {kind: serial}}\noutput: {store: none, report: false}\n"
)
CHANGES = (
    "method=lle",
    "method=modified",
    "method=ltsa",
    "method=hessian",
    "method=laplacian",
    "method=pca",
    "graph.components=connect",
    "graph.components=largest",
    "neighbors.n_neighbors=6",
    "output.cost_matrix=false",
    "eigensolver.n_components=1",
    "weights.reg=0.01",
    "weights.reg=auto",
    "input.n_points=60",
    "input.fit_sample=30",
    "preprocess.scale=standard",
    "preprocess.pca=2",
    "neighbors.metric=cosine",
    "neighbors.reverse=4",
    "neighbors.radius=0.9",
    "eigensolver.method=polynomial",
    "execution.block_points=30",
)


class Killed(LleError):
    """Stands for a kill after a marker was written."""


def prepare(shared: Path) -> None:
    """The config of all runs."""
    write(shared / "config.yaml", CONFIG)


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """One to three runs of other configs, each killed or not, then one to its end, beside a fresh one."""
    done = []
    for _ in range(int(rng.integers(1, 4))):
        change, limit = choose(rng, CHANGES), int(rng.integers(1, 40)) if rng.random() < 0.5 else 10_000
        with mock.patch.object(checkpoint, "mark_done", _killed_after(limit)):
            ended = _run(shared, own / "walked.zarr", change)
        done.append(f"{change} {'killed' if ended else 'ended'}")
    change = choose(rng, CHANGES)
    for name in ("walked.zarr", "fresh.zarr"):
        if code := _run(shared, own / name, change):
            raise BrokenRule(f"{name} ended with {code} after {done}, {change}")
    walked, fresh = contents(own / "walked.zarr"), contents(own / "fresh.zarr")
    if walked != fresh:
        names = sorted(name for name in walked.keys() | fresh.keys() if walked.get(name) != fresh.get(name))
        raise BrokenRule(f"after {done}, {change}: not as in a fresh run: {names[:20]}")
    return f"{len(done)} runs before"


def _run(shared: Path, store: Path, change: str) -> int:
    return call("run", shared / "config.yaml", "--store", store, "--set", change).code


def _killed_after(n_markers: int) -> "mock.Mock":
    written, mark_done = [0], checkpoint.mark_done

    def mark(*arguments: object) -> None:
        mark_done(*arguments)  # type: ignore[arg-type]
        written[0] += 1
        if written[0] >= n_markers:
            raise Killed("killed")

    return mock.Mock(side_effect=mark)


def contents(store: Path) -> dict[str, bytes]:
    """The files of a store by name, without the content of records and configs, which hold times and the store."""
    files = (path for path in store.rglob("*") if path.is_file())
    return {
        str(path.relative_to(store)): b"" if _is_record(path) else path.read_bytes()
        for path in files
        if path.name != "failure.json"
    }


def _is_record(path: Path) -> bool:
    is_metadata = path.name == "zarr.json" and path.parent.suffix != ".zarr" and path.parent.name != "fit"
    return path.suffix == ".json" and not is_metadata
