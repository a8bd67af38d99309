"""The step that chooses the coordinates of each component among its computed eigenvectors, and the chosen vectors.

Clumps are skipped first. Then coordinates that the others predict are replaced (``kernels.quality.independent``).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..config.models import Config
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.step import WHOLE_DATA, Json, Report, Step, task
from ..kernels.quality.independent import MEASURED_POINTS, IndependentCoordinates, Replacement
from ..kernels.quality.trustworthiness import CLUMP_SHARE, participation
from ..storage import array_specs
from ..storage.store import Store

TAKEN = "_work/coordinates"
"""Bundle: `taken` (components, m), the chosen eigenvectors of each component, numbered from 0."""
SAMPLED_POINTS = 2000
MOST_PAIRS = 16
"""Eigenpairs that are computed if fewer than the requested coordinates of the first ones are no clumps."""
STREAM = 13
NAMED_ROWS = 10
GROUP_SHARE = 0.9
"""Share of the squares of a clump's vector that the points of its group hold."""

Float64 = npt.NDArray[np.float64]


def select_step(config: Config, layout: Layout, n_graph: int) -> "Step[Choices]":
    """The step after `solve`, for `embedding.coordinates: independent`."""
    n, m, d, k = layout.n_points, config.eigensolver.n_components, layout.n_features, config.neighbors.n_neighbors
    sample, n_pairs, seed = min(n, SAMPLED_POINTS), max(config.n_eigenpairs, MOST_PAIRS), config.quality.seed
    select = task(select_coordinates, n_components=m, n_graph=n_graph, n_neighbors=k, sample=sample, seed=seed)
    n_bytes = task_costs.TASK_BYTES + 8 * n * (n_pairs + 6) + sample * (24 * min(sample, MEASURED_POINTS) + 40 * d)
    n_bytes += sample * 8 * (n_pairs + 40 * (m + 1) ** 2)
    bundles = {f"{TAKEN}.npz": disk_costs.files(1, 8 * n_graph * m)}
    return Step("solve_embedding.select", select, 1, n_bytes, bundles=bundles, runs_on=WHOLE_DATA)


@dataclass(frozen=True)
class Choices(Report):
    """The choice of each component, numbered from 1."""

    components: list[Json]


def select_coordinates(
    store: Store, block_index: int, n_components: int, n_graph: int, n_neighbors: int, sample: int, seed: int
) -> Choices:
    """Choose n_components eigenvectors of each component; the report describes each choice, numbered from 1."""
    taken, records = np.empty((n_graph, n_components), np.int64), list[Json]()
    for number in range(n_graph):
        part = store.read_bundle(f"_work/eigen/{number:05d}")
        rows, vectors = part["rows"], part["vectors"]
        sizes = np.array([participation(vectors[:, [j]])[0] for j in range(vectors.shape[1])])
        spread = np.flatnonzero(sizes >= CLUMP_SHARE * len(rows))
        clumps = np.setdiff1d(np.arange(len(sizes)), spread)
        candidates = [*spread, *clumps[: max(0, n_components - len(spread))]]
        sampled = np.sort(np.random.default_rng([seed, STREAM]).permutation(len(rows))[:sample])
        points = store.gather(array_specs.POINTS.name, rows[sampled]).astype(np.float64)
        choice = IndependentCoordinates(points, vectors[sampled], n_neighbors)
        chosen, replacements = choice.choose([int(j) for j in candidates], n_components)
        taken[number] = chosen
        skipped = [int(j) for j in clumps if j not in chosen]
        records.append({
            "taken": [j + 1 for j in chosen],
            "computed": len(sizes),
            "clumps_taken": [j + 1 for j in chosen if j in clumps],
            "clumps_skipped": [_group(store, rows, vectors[:, j], j, float(sizes[j])) for j in skipped],
            "replaced": [_described(replacement) for replacement in replacements],
        })  # fmt: skip
    store.write_bundle(TAKEN, taken=taken)
    return Choices(records)


def _group(store: Store, rows: npt.NDArray[np.int64], vector: Float64, j: int, size: float) -> Json:
    """The group of points that a clump separates, and the input rows of its first points."""
    order = np.argsort(-np.abs(vector), kind="stable")
    held = np.cumsum(np.square(vector[order]))
    n_points = int(np.searchsorted(held, GROUP_SHARE * held[-1])) + 1
    inside = np.sort(rows[order[:n_points]])
    original = np.sort(store.gather(array_specs.ORIGINAL_INDEX.name, inside))
    return {
        "eigenvector": j + 1, "participation": size, "points": n_points, "rows": original[:NAMED_ROWS].tolist()
    }  # fmt: skip


def _described(replacement: Replacement) -> Json:
    return {**replacement._asdict(), "left": replacement.left + 1, "taken": replacement.taken + 1}


def taken_vectors(store: Store, number: int, part: dict[str, npt.NDArray[np.float64]], selected: bool) -> Float64:
    """The unit eigenvectors (n, m) of a component that are its coordinates; `part` is its solution."""
    return part["vectors"][:, store.read_bundle(TAKEN)["taken"][number]] if selected else part["vectors"]
