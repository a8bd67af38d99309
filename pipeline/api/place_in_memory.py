"""The training set of a finished run in memory, and new rows placed among it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StoreError
from pipeline.engine import checkpoint
from pipeline.engine.plan import KDTREE_FEATURES
from pipeline.kernels.neighbors.knn import NeighborLists, brute_neighbors, kdtree_neighbors
from pipeline.kernels.out_of_sample import of_one_component, place
from pipeline.kernels.projection import project_like
from pipeline.linalg.preprocess import Transform, unit_rows
from pipeline.storage import array_specs
from pipeline.storage.store import Store

BATCH_BYTES = 16 * 2**20
BRUTE_ROWS = 1024
NEW = -2
"""No point's id, so that nothing is left out as the row itself."""


@dataclass(frozen=True)
class Training:
    """The points of a run (n, d), preprocessed, with their coordinates (n, m; NaN: none) and what weights need."""

    points: npt.NDArray[np.floating]
    embedding: npt.NDArray[np.float64]
    component: npt.NDArray[np.int32]
    transform: Transform | None
    unit: bool
    """Whether rows are divided by their lengths (neighbors.metric: cosine)."""
    method: str
    n_neighbors: int
    reg: float
    rule: str

    def place(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The coordinates (b, m) of rows (b, d) in input units, NaN where the nearest point has none.

        Raises InputError for NaN and infinity.
        """
        rows = np.asarray(rows, np.float64)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            raise InputError(
                f"input: {bad.size} of {len(rows)} rows to place hold NaN or infinity (first: row {bad[0]}); mend them "
                f"or leave them out"
            )
        queries = rows if self.transform is None else self.transform(rows)
        if self.unit:
            queries = unit_rows(queries)
        if self.method == "pca":
            return project_like(queries, self.points, self.embedding)
        lists = nearest(queries, self.points, min(self.n_neighbors, len(self.points)))
        placed = np.empty((len(rows), self.embedding.shape[1]))
        batch = max(1, BATCH_BYTES // (8 * lists.ids.shape[1] * (self.points.shape[1] + lists.ids.shape[1])))
        for start in range(0, len(rows), batch):
            part = slice(start, start + batch)
            ids = lists.ids[part]
            placed[part] = place(
                queries[part], self.points[ids], self.embedding[ids], lists.distances[part],
                of_one_component(ids, self.component[ids]), self.reg, self.rule,
            ).coordinates  # fmt: skip
        return placed


def nearest(queries: npt.NDArray[np.floating], points: npt.NDArray[np.floating], k: int) -> NeighborLists:
    """The k nearest of the points (n, d) to each query (b, d), exact, nearest first; a query may be one of them."""
    nobody, ids = np.full(len(queries), NEW), np.arange(len(points))
    if points.shape[1] <= KDTREE_FEATURES:
        return kdtree_neighbors(queries, nobody, points, ids, k)
    parts = [
        brute_neighbors(queries[start : start + BRUTE_ROWS], nobody[start : start + BRUTE_ROWS], points, ids, k)
        for start in range(0, max(1, len(queries)), BRUTE_ROWS)
    ]
    return NeighborLists(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def state_of(store: Store) -> str:
    """What tells the embedding that a store holds from that of another input or config. Raises StoreError for none."""
    record = checkpoint.recorded_steps(store).get(("solve_embedding", "write"))
    if record is None:
        raise StoreError(f"{store.url}: holds no finished embedding; fit again")
    return str(record["fingerprint"])


def read_training(store: Store, state: str) -> Training:
    """The training set of a finished run. Raises StoreError unless the store still holds the run of this state."""
    if state_of(store) != state:
        raise StoreError(
            f"{store.url}: expected the run that was fitted, found another (its input or config has changed since); "
            f"fit again, or give each estimator a store of its own"
        )
    config = store.attributes()["config"]
    rows = store.read_all(array_specs.ORIGINAL_INDEX.name)
    preprocess = config["preprocess"]
    fitted = preprocess["scale"] != "none" or preprocess["pca"] is not None
    return Training(
        store.read_all(array_specs.POINTS.name), store.read_all(array_specs.EMBEDDING.name)[rows],
        store.read_all(array_specs.COMPONENT.name)[rows],
        Transform(**store.read_bundle("_work/transform")) if fitted else None,
        config["neighbors"]["metric"] == "cosine", config["method"], config["neighbors"]["n_neighbors"],
        config["weights"]["reg"], config["weights"]["rule"],
    )  # fmt: skip
