"""Place new points in the embedding of a finished run, one block of new rows at a time.

Neighbours are exact if those of the run are. Then the bounding boxes of the training points' cells limit the distance
of the k-th neighbour, and only cells within that distance are read, a batch at a time. Otherwise each row is searched
in its nearest cells, as many as a sample of the training points needs for a recall of 0.99. Results are written to a
separate store, in the arrays of a run's embedding.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.arrays import Bools, Float64, Floats, Int64
from ..core.errors import NAMED_ROWS
from ..engine import task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import barycentric_weights, n_cells, neighbor_method, search_among_all, search_in_tree
from ..engine.step import Json, Report, Resource, Step, Work, task
from ..inputs import open_source
from ..kernels.batches import BATCH_BYTES
from ..kernels.neighbors.cells import TREE_FEATURES
from ..kernels.neighbors.knn import NeighborLists
from ..kernels.out_of_sample import RECALL_POINTS, Neighborhood, distance_ratio, place, some_of
from ..linalg.alignment import principal_map
from ..linalg.preprocess import Preparation, summable
from ..search.among_stored import (
    CALIBRATION_POINTS,
    EXPECTED_CELLS,
    calibration_rows,
    cells_to_search,
    count_work,
    nearest_points,
    search_bytes,
)
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store, read_elsewhere

USUAL_SHARE = 0.999
"""Share of the training points below the default limit of the distance ratio; new points above the limit are far."""


@dataclass(frozen=True)
class Placement:
    """How new points are read, prepared and placed. `n_embedded` weak components have coordinates; 0: all."""

    source: Json
    dtype: str
    transform: bool
    unit: bool
    n_neighbors: int
    reg: float
    rule: str
    n_embedded: int
    n_cells: int
    """Nearest cells in which a row is searched; 0: exact search."""
    far_as_nan: bool
    is_projection: bool
    """Whether rows are projected onto the principal components of the run; else placed by their neighbours."""


class Fit(NamedTuple):
    """What the placing of rows depends on: a finished fit in the store `url`, or a planned one.

    `layout` has the sizes of its points. `n_embedded` weak components have coordinates; 0: all.
    """

    config: Json
    layout: Layout
    input_dtype: str
    n_coordinates: int
    state: Json
    url: str = ""
    reg: float = 0.0
    n_embedded: int = 0


@dataclass(frozen=True)
class Job:
    """New rows to place: their fit, how they are read, and the limit of their distance ratio (None: calibrated)."""

    fit: Fit
    source: Json
    source_state: Json
    max_ratio: float | None = None
    far_as_nan: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the neighbours of the run, and so those of new rows, are exact."""
        method, layout = self.fit.config["neighbors"]["method"], self.fit.layout
        return neighbor_method(method, layout.n_points, layout.n_features) != "pynndescent"

    def placement(self, n_cells: int) -> Placement:
        config = self.fit.config
        return Placement(
            self.source,
            self.fit.input_dtype,
            transform=config["preprocess"]["scale"] != "none" or config["preprocess"]["pca"] is not None,
            unit=config["neighbors"]["metric"] == "cosine",
            n_neighbors=config["neighbors"]["n_neighbors"],
            reg=self.fit.reg,
            rule=config["weights"]["rule"],
            n_embedded=self.fit.n_embedded,
            n_cells=n_cells,
            far_as_nan=self.far_as_nan,
            is_projection=config["method"] == "pca",
        )


def steps(job: Job, layout: Layout) -> Steps:
    """(calibrate ->) embed. `layout` has the new rows as n_input, the training points as n_points."""
    limit, cells = job.max_ratio, 0
    if limit is None or not job.is_exact:
        [calibrated] = yield from calibrate_step(job, layout)
        limit, cells = calibrated.limit if limit is None else limit, calibrated.n_cells
    yield from embed_step(job, layout, limit, cells)
    return layout


@dataclass(frozen=True)
class Calibration(Report):
    """The default limit of the distance ratio, and the number of cells to search for each row (0: exact search)."""

    limit: float
    n_cells: int


@dataclass(frozen=True)
class PlacedRows(Report):
    """Counts of a block of new rows, the limit of their distance ratio, and the state of their files."""

    far: int
    invalid: int
    coincident: int
    mixed: int
    limit: float
    first_invalid: list[int]
    state: str | None = None


def calibrate_step(job: Job, layout: Layout) -> Step[Calibration]:
    fit, exact, sample = job.fit, job.is_exact, min(CALIBRATION_POINTS, layout.n_points)
    k, seed, n_embedded = fit.config["neighbors"]["n_neighbors"], fit.config["quality"]["seed"], fit.n_embedded
    drawn = task(calibrate, n_neighbors=k, seed=seed, n_embedded=n_embedded, exact=exact, run=fit.url)
    n_bytes = task_costs.TASK_BYTES + layout.k_max * (120 * sample + 48 * fit.layout.block_points)
    n_bytes += 13 * layout.n_points if n_embedded else 0
    n_bytes += 0 if exact else search_bytes(layout, fit.layout.blocks, RECALL_POINTS, k)
    return Step(
        "transform.calibrate",
        drawn,
        1,
        n_bytes,
        version=2,
        input_state=fit.state,
        expected=lambda b: Calibration(1.0, 0 if exact else EXPECTED_CELLS),
        work=Work() if exact else count_work(layout),
    )


def embed_step(job: Job, layout: Layout, limit: float, cells: int) -> Step[PlacedRows]:
    blocks, fit, m, placement = layout.input_blocks, job.fit, job.fit.n_coordinates, job.placement(cells)
    embed = task(embed_block, placement=placement, max_ratio=limit, blocks=blocks, run=fit.url)
    row, row_in = layout.row_bytes, layout.n_features_input * np.dtype(placement.dtype).itemsize
    d, k, k_max = layout.n_features, placement.n_neighbors, layout.k_max
    read = min(layout.n_points, blocks.size * k) * (row + 8 * m + 16 * k_max + 64)
    read += 3 * fit.layout.block_points * max(row, 8 * m, 8 * k_max)
    n_bytes = task_costs.TASK_BYTES + 6 * BATCH_BYTES + search_bytes(layout, fit.layout.blocks, blocks.size, k)
    n_bytes += read + blocks.size * (3 * row_in + 16 * d + 8 * m)
    ratio = array_specs.DISTANCE_RATIO.sized(blocks)
    return Step(
        "transform.embed",
        embed,
        blocks.count,
        n_bytes,
        arrays=(array_specs.EMBEDDING.sized(blocks, m), array_specs.COMPONENT.sized(blocks), ratio),
        version=5,
        input_state={**fit.state, "source": job.source_state},
        expected=lambda b: PlacedRows(0, 0, 0, 0, limit, []),
        work=Work(parallel=_seconds(layout, k, cells)),
    )


def _seconds(layout: Layout, k: int, cells: int) -> float:
    n, fitted, d = layout.n_input, layout.n_points, layout.n_features
    searched = min(fitted, cells * fitted / n_cells(fitted)) if cells else fitted
    search = search_in_tree(n, fitted, d, k) if d <= TREE_FEATURES else search_among_all(n, searched, d)
    boxes = n * n_cells(fitted) * (2.5e-10 * d if cells else 8e-8 + 1.5e-8 * d)
    read = layout.input_blocks.count * fitted * (1.5e-6 + 1e-9 * d)
    return search + boxes + read + barycentric_weights(n, d, k) + n * (5e-7 + 4e-9 * k * d)


def calibrate(
    store: Store, block_index: int, n_neighbors: int, seed: int, n_embedded: int, exact: bool, run: Resource[str]
) -> Calibration:
    """Treats sampled training points as new ones. The limit is the quantile USUAL_SHARE of their distance ratios."""
    trained, k = Store(run), n_neighbors
    with read_elsewhere(trained):
        if n_embedded:
            embedded = np.flatnonzero(trained.read_all(array_specs.POINT_COMPONENT.name) < n_embedded)
            chosen = embedded[calibration_rows(len(embedded), seed)]
        else:
            chosen = calibration_rows(trained.array(array_specs.POINTS.name).shape[0], seed)
        ids = trained.gather(array_specs.NEIGHBOR_INDICES.name, chosen)[:, :k].astype(np.int64)
        distances = trained.gather(array_specs.NEIGHBOR_DISTANCES.name, chosen)[:, :k]
        listed, positions = np.unique(np.maximum(ids, 0), return_inverse=True)
        ratios = _ratios(trained, ids, distances, listed, positions)
        cells = 0 if exact else cells_to_search(trained, some_of(chosen), k, n_embedded)
    return Calibration(float(np.quantile(ratios, USUAL_SHARE)), cells)


def _ratios(trained: Store, ids: Int64, distances: Floats, listed: Int64, positions: Int64) -> Float64:
    """Distance ratio (b,) of points with these neighbours (b, k), which are at `positions` of the points `listed`."""
    of_listed = trained.gather(array_specs.NEIGHBOR_DISTANCES.name, listed)[:, : ids.shape[1]]
    return distance_ratio(distances, of_listed, positions, ids >= 0)


def embed_block(
    store: Store, block_index: int, placement: Placement, max_ratio: float, blocks: Blocks, run: Resource[str]
) -> PlacedRows:
    """Write coordinates, component and distance ratio of a block of new rows; NaN and -1 for invalid rows."""
    start, stop = blocks.rows(block_index)
    trained, how, k = Store(run), placement, placement.n_neighbors
    with read_elsewhere(trained):
        opened = open_source(**how.source)
        points, valid = read_new(trained, opened.read(start, stop), how.dtype, how.transform, how.unit)
        lists = nearest_points(trained, points, k, how.n_embedded, how.n_cells)
        coordinates, component, ratio, coincident, mixed = _embed(trained, points, lists, how.reg, how.rule)
        if how.is_projection:
            coordinates[~coincident] = principal_map(trained)(points[~coincident])
    far = (ratio > max_ratio) & ~coincident  # a training point has its own coordinates, so it is never far
    if how.far_as_nan:
        coordinates[far] = np.nan
    _write(store, array_specs.EMBEDDING, start, valid, coordinates, np.nan)
    _write(store, array_specs.COMPONENT, start, valid, component, -1)
    _write(store, array_specs.DISTANCE_RATIO, start, valid, ratio, np.nan)
    invalid, state = np.flatnonzero(~valid) + start, opened.state(start, stop)
    n_far, n_coincident, first = int(far.sum()), int(coincident.sum()), invalid[:NAMED_ROWS].tolist()
    return PlacedRows(n_far, len(invalid), n_coincident, mixed, max_ratio, first, state)


def _write(
    store: Store, spec: array_specs.ArraySpec, start: int, valid: Bools, values: Floats | Int64, missing: float
) -> None:
    out = np.full((len(valid), *values.shape[1:]), missing, store.array(spec.name).dtype)
    out[valid] = values
    store.write(spec.name, start, out)


def read_new(trained: Store, rows: Floats, dtype: str, transform: bool, unit: bool) -> tuple[Float64, Bools]:
    """(valid rows as the run would have stored them, which rows are valid).

    Rows are first rounded to the dtype of the run's input, so that a training point from a file of another dtype is
    recognised as the same point.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rows = rows.astype(dtype)
        valid = np.isfinite(np.square(rows, dtype=np.float64).sum(axis=1))
        points = rows.astype(np.float64)
        points[~valid] = 0.0
        prepared, zero = Preparation.of_run(trained, transform, unit)(points)
        valid &= ~zero & summable(prepared)
    return np.ascontiguousarray(prepared[valid], np.float64), np.asarray(valid)


def _embed(
    trained: Store, points: Float64, lists: NeighborLists, reg: float, rule: str
) -> tuple[Float64, Int64, Float64, Bools, int]:
    """Coordinates (b, m), component (b,), distance ratio (b,), and whether each new point is a training point (b,).

    The last result is the number of points with neighbours in several components.
    """
    listed, positions = np.unique(np.maximum(lists.ids, 0), return_inverse=True)
    neighbors = trained.gather(array_specs.POINTS.name, listed)
    rows, order = np.unique(trained.gather(array_specs.ORIGINAL_INDEX.name, listed), return_inverse=True)
    embedded = trained.gather(array_specs.EMBEDDING.name, rows)[order]
    component = trained.gather(array_specs.COMPONENT.name, rows)[order].astype(np.int64)
    ratio = _ratios(trained, *lists, listed, positions)
    placed = place(points, lists, Neighborhood(neighbors, embedded, component, positions), reg, rule)
    mixed = int((placed.used != (lists.ids >= 0)).any(axis=1).sum())
    return placed.coordinates, component[positions[:, 0]], ratio, placed.coincident, mixed
