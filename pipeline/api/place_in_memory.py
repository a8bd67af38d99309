"""Out-of-sample coordinates in memory: load the training set of a finished run and embed new rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..core.arrays import Bools, Float64, Floats, Int32
from ..core.errors import InputError, StoreError
from ..engine import checkpoint
from ..engine.plan_sizes import neighbor_method
from ..engine.step import Json
from ..kernels.neighbors.knn import NO_POINT, empty_lists, exact_neighbors
from ..kernels.out_of_sample import Cells, Neighborhood, place, some_of
from ..linalg.alignment import principal_map
from ..linalg.preprocess import Preparation, Transform, summable
from ..linalg.reg_step import reg_of_run
from ..search.among_stored import PLACED_COMPONENT, calibration_rows
from ..storage import array_specs
from ..storage.store import Store, fitted_store
from .array_input import is_chunked, is_dask, row_blocks
from .python_errors import python_errors

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Training:
    """The preprocessed points (n, d) of a run, their coordinates (n, m; NaN: none), and the settings of the weights."""

    points: Floats
    rows: Floats
    """The same rows (n, d) in input units; the same array as points if there was no preprocessing."""
    embedding: Float64
    component: Int32
    prepare: Preparation
    method: str
    n_neighbors: int
    reg: float
    rule: str
    names: Sequence[str] | None = None
    """Of the columns of a table, for messages."""
    cells: Cells | None = None
    """Of the points, if their neighbours are approximate: then rows are searched in `n_cells` nearest cells."""
    n_cells: int = 0
    projection: Transform | None = None
    """Onto the principal components of pca."""

    @python_errors()
    def place(self, rows: npt.NDArray[np.generic], first: int = 0) -> Float64:
        """The coordinates (b, m) of rows (b, d) in input units; NaN if the nearest point has none.

        ``first``: the number of the first row, for messages.
        Raises ValueError for NaN, infinity, distances that overflow, and zero rows with neighbors.metric: cosine.
        """
        numbers = np.asarray(rows, np.float64)
        _require(np.isfinite(numbers), "hold NaN or infinity", self.names, first=first)
        queries, zero = self.prepare(numbers)
        _require(~zero, "are zero after preprocessing and have no direction for neighbors.metric: cosine", first=first)
        if self.projection is not None:
            return self.projection(queries)
        numbers = np.asarray(queries, np.float64)
        return self._from_neighbors(numbers, self.points, self.embedding, self.component, "input", self.cells)

    def place_array(self, X: Any) -> Any:
        """`place` for a NumPy or Zarr array (b, d), or lazily for a Dask array."""
        if not is_chunked(X):
            return self.place(X)
        if is_dask(X):
            rows, m = X.rechunk({1: -1}), self.embedding.shape[1]

            def place_block(block: Floats, block_info: dict[int, Json]) -> Float64:
                return self.place(block, block_info[0]["array-location"][0][0])

            return rows.map_blocks(place_block, dtype=np.float64, chunks=(rows.chunks[0], (m,)), meta=np.empty((0, 0)))
        placed, first = list[Float64](), 0
        for block in row_blocks(X):
            placed.append(self.place(block, first))
            first += len(block)
        return np.concatenate(placed)

    def place_back(self, coordinates: Float64) -> Float64:
        """The rows (b, d) in input units for coordinates (b, m): `place` with the roles of the two spaces exchanged.

        Raises InputError for another number of columns, NaN and infinity.
        """
        if coordinates.ndim != 2 or coordinates.shape[1] != self.embedding.shape[1]:
            m, shape = self.embedding.shape[1], coordinates.shape
            raise InputError(f"coordinates: expected shape (b, {m}), found shape {shape}")
        _require(np.isfinite(coordinates), "hold NaN or infinity", about="coordinates")
        solved = np.isfinite(self.embedding).all(axis=1)
        embedding, rows, component = self.embedding[solved], self.rows[solved], self.component[solved]
        if self.method == "pca":
            affine = np.column_stack([embedding, np.ones(len(embedding))])
            map_ = np.linalg.lstsq(affine, rows.astype(np.float64), rcond=None)[0]
            return np.asarray(np.column_stack([coordinates, np.ones(len(coordinates))]) @ map_)
        return self._from_neighbors(coordinates, embedding, rows, component, "coordinates")

    def _from_neighbors(
        self, queries: Float64, points: Floats, values: Floats, component: Int32, about: str, cells: Cells | None = None
    ) -> Float64:
        """The values (b, m) of queries (b, d), by the weights of the points (n, d) near them with values (n, m)."""
        largest = np.abs(queries).max(initial=0.0)
        problem = f"are so far away, with numbers up to {largest:.1e}, that their distances overflow"
        _require(summable(queries), problem, about=about)
        ids, k = np.arange(len(points)), min(self.n_neighbors, len(points))
        lists, short = empty_lists(len(queries), k), np.arange(len(queries))
        if cells is not None:
            lists = cells.nearest(queries, k, self.n_cells, lambda visited: cells.members(visited, points))
            short = np.flatnonzero(lists.ids[:, -1] < 0)  # fewer than k points in these cells
        if len(short):
            exact = exact_neighbors(queries[short], np.full(len(short), NO_POINT), points, ids, k)
            lists.ids[short], lists.distances[short] = exact
        return place(
            queries, lists, Neighborhood(points, values, component, lists.ids), self.reg, self.rule
        ).coordinates


def _require(
    is_good: Bools, problem: str, names: Sequence[str] | None = None, about: str = "input", first: int = 0
) -> None:
    """Raises InputError with the first row that is not good; is_good: of rows (b,) or of their numbers (b, d)."""
    bad = np.flatnonzero(~is_good.reshape(len(is_good), -1).all(axis=1))
    if bad.size:
        column = int(np.argmin(is_good[bad[0]]))
        place = f", column {column if names is None else repr(names[column])}" if is_good.ndim == 2 else ""
        raise InputError(
            f"{about}: {bad.size} of {len(is_good)} rows{f' from row {first} on' * bool(first)} {problem} (first: row "
            f"{first + bad[0]}{place}, counted from 0); correct or remove them"
        )


def state_of(store: Store) -> str:
    """The fingerprint of the stored embedding. It changes with input and config. Raises StoreError if there is none."""
    record = checkpoint.step_record(fitted_store(store), "solve_embedding.write")
    if record is None:
        raise StoreError(f"{store.url}: holds no finished embedding; fit again")
    return record.fingerprint


def _fitted(url: str, state: str) -> Store:
    """The store of the fitted rows. Raises StoreError if it is gone, or holds an embedding of another fingerprint."""
    store = Store(url)
    if not store.is_run():
        raise StoreError(f"{url}: expected the store of the fitted run, found nothing; fit again")
    if state_of(store) != state:
        raise StoreError(
            f"{store.url}: expected the fitted run, found another one (its input or config has changed since); "
            f"fit again, or use a separate store for each estimator"
        )
    return fitted_store(store)


def read_graph(url: str, state: str) -> "csr_array[np.float32]":
    """Distances (n_input, n_input) from each input row to its neighbours; none for rows that were dropped.

    A row that equals an earlier one has the neighbours of the earlier one. Raises StoreError if the stored embedding
    has another fingerprint.
    """
    from scipy.sparse import csr_array

    store = _fitted(url, state)
    original = store.read_all(array_specs.ORIGINAL_INDEX.name)
    representative = store.read_all(array_specs.REPRESENTATIVE.name)
    ids = store.read_all(array_specs.NEIGHBOR_INDICES.name)
    point_of = np.full(len(representative), -1, np.int64)
    point_of[original] = np.arange(len(original))
    point = np.where(representative >= 0, point_of[representative], -1)
    listed = (ids >= 0)[point] & (point >= 0)[:, None]
    starts = np.concatenate([[0], np.cumsum(listed.sum(axis=1))])
    columns = original[ids[point][listed]].astype(np.int32 if len(point) < 2**31 else np.int64)
    distances = store.read_all(array_specs.NEIGHBOR_DISTANCES.name)[point][listed]
    graph = csr_array((distances, columns, starts), shape=(len(point), len(point)))
    graph.sort_indices()
    return graph


def read_training(url: str, state: str) -> Training:
    """The training set of a finished run. Raises StoreError if the stored embedding has another fingerprint."""
    store = _fitted(url, state)
    config = store.attributes()["config"]
    rows = store.read_all(array_specs.ORIGINAL_INDEX.name)
    component = store.read_all(array_specs.COMPONENT.name)[rows]
    solved = component != PLACED_COMPONENT  # placed rows have coordinates of others, so no row is placed by theirs
    rows = rows[solved]
    preprocess = config["preprocess"]
    has_transform = preprocess["scale"] != "none" or preprocess["pca"] is not None
    unit = config["neighbors"]["metric"] == "cosine"
    points = store.read_all(array_specs.POINTS.name)[solved]
    cells, n_cells, k = None, 0, config["neighbors"]["n_neighbors"]
    method = neighbor_method(config["neighbors"]["method"], len(solved), points.shape[1])
    if method == "pynndescent" and config["method"] != "pca":
        cells, some = _cells_of(store, solved), some_of(calibration_rows(len(points), config["quality"]["seed"]))
        sample, ids = points[some].astype(np.float64), np.arange(len(points))
        n_cells = cells.to_search(sample, exact_neighbors(sample, some, points, ids, k).ids)
    return Training(
        points,
        store.read_all(array_specs.RAW.name)[rows] if has_transform or unit else points,
        store.read_all(array_specs.EMBEDDING.name)[rows],
        component[solved],
        Preparation.of_run(store, has_transform, unit),
        config["method"],
        k,
        reg_of_run(store, config),
        config["weights"]["rule"],
        (store.attributes().get("columns") or {}).get("features"),
        cells,
        n_cells,
        principal_map(store) if config["method"] == "pca" else None,
    )


def _cells_of(store: Store, solved: Bools) -> Cells:
    """The cells of the points (n,) that are solved, with their rows among these."""
    counts = store.read_all(array_specs.CELL_COUNTS.name).sum(axis=0)
    used, start = np.unique(np.repeat(np.arange(len(counts)), counts)[solved], return_index=True)
    return Cells(store.read_bundle("_work/cells")["centers"][used], start, np.append(start[1:], solved.sum()))
