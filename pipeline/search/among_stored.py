"""Nearest embedded points of new rows: exact ones, or those in the nearest cells; cells are read in batches.

Rows of components that are too small to be embedded get coordinates from them too (`place_step`).
"""

from collections.abc import Generator, Iterator

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64, Floats, Int32, Int64
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.plan_sizes import max_boxes, neighbor_method, search_among_all
from ..engine.plan_sizes import n_cells as all_cells
from ..engine.step import WHOLE_DATA, Count, Report, Step, Work, task
from ..kernels.factors.lle_weights import barycenter_weights
from ..kernels.neighbors.cells import Boxes
from ..kernels.neighbors.knn import NO_POINT, TIE, NeighborLists, empty_lists, exact_neighbors, merge_into
from ..kernels.out_of_sample import PAIRS, RECALL_POINTS, Cells, of_one_component, reach_of, some_of
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store, block_of
from .kdtree_blocks import batches_of, read_boxes, rows_of, within_reach

HALO_ROWS, HALO_BYTES = 65_536, 64 * 2**20  # limits on the stored points in memory at one time

CALIBRATION_POINTS = 10_000
EXPECTED_CELLS = 5
"""Cells to search for a row in the plan. Seven tables of 7 to 784 features needed three to seven."""
PLACED, PLACED_COMPONENT = "_work/placed", -2
"""Rows of components that are too small to be embedded: their bundles, and their label in the array `component`."""
PLACE_REG = 1e-3
"""Regularisation of the weights that place them (Saul & Roweis 2003, section 6.1)."""


def halo_rows(row: int) -> int:
    """Number of training points of `row` bytes in memory at one time."""
    return max(1, min(HALO_ROWS, HALO_BYTES // row))


def nearest_points(trained: Store, points: Float64, k: int, n_embedded: int, n_cells: int = 0) -> NeighborLists:
    """The k nearest embedded training points of new points (b, d): of all, or in the n_cells nearest cells."""
    if n_cells:
        return _nearest_in_cells(trained, points, k, n_embedded, n_cells)
    stored = trained.array(array_specs.POINTS.name)
    boxes = read_boxes(trained, -(-stored.shape[0] // block_of(stored)))
    halo = halo_rows(stored.shape[1] * stored.dtype.itemsize)
    counts = _embedded_rows(trained, boxes, n_embedded)
    lists = empty_lists(len(points), k)
    unknown = np.full(len(points), NO_POINT)
    bound = reach_of(points, boxes, counts, k)
    for batch in batches_of(counts, np.flatnonzero(counts), halo):
        reach = (1 + TIE) * np.minimum(bound, lists.distances[:, -1])
        queries, used = within_reach(points, reach, boxes.low[batch], boxes.high[batch])
        if not len(queries):
            continue
        rows = rows_of(boxes, batch[used])
        if n_embedded:
            rows = rows[trained.gather(array_specs.POINT_COMPONENT.name, rows) < n_embedded]
        near_points = trained.gather(array_specs.POINTS.name, rows)
        found = exact_neighbors(points[queries], unknown[queries], near_points, rows, k)
        merge_into(lists, queries, found, unknown)
    return lists


def cells_to_search(trained: Store, rows: Int64, k: int, n_embedded: int) -> int:
    """The number of nearest cells that hold nearly all of the k nearest embedded points of some points (s,)."""
    points = trained.gather(array_specs.POINTS.name, rows).astype(np.float64)
    ids = nearest_points(trained, points, k + 1, n_embedded).ids
    is_itself = ids == rows[:, None]
    ids[~is_itself.any(axis=1), -1] = -1
    return _cells_of(trained, n_embedded).to_search(points, np.where(is_itself, -1, ids))


def _nearest_in_cells(trained: Store, points: Float64, k: int, n_embedded: int, n_cells: int) -> NeighborLists:
    cells, stored = _cells_of(trained, n_embedded), trained.array(array_specs.POINTS.name)
    halo = halo_rows(stored.shape[1] * stored.dtype.itemsize)

    def read(visited: Int64) -> Iterator[tuple[Int64, Floats]]:
        for batch in batches_of(cells.stop - cells.start, visited, halo):
            rows = np.concatenate([np.arange(cells.start[cell], cells.stop[cell]) for cell in batch])
            if n_embedded:
                rows = rows[trained.gather(array_specs.POINT_COMPONENT.name, rows) < n_embedded]
            cuts = np.searchsorted(rows, cells.start[batch[1:]])
            members = trained.gather(array_specs.POINTS.name, rows)
            yield from zip(np.split(rows, cuts), np.split(members, cuts), strict=True)

    lists = cells.nearest(points, k, n_cells, read)
    short = np.flatnonzero(lists.ids[:, -1] < 0)  # fewer than k points in these cells
    if len(short):
        lists.ids[short], lists.distances[short] = nearest_points(trained, points[short], k, n_embedded)
    return lists


def _cells_of(trained: Store, n_embedded: int) -> Cells:
    """The cells with embedded points; their rows [start, stop) hold points that are not embedded too."""
    stored = trained.array(array_specs.POINTS.name)
    boxes = read_boxes(trained, -(-stored.shape[0] // block_of(stored)))
    counts = trained.read_all(array_specs.CELL_COUNTS.name).sum(axis=0)
    stop, centers = np.cumsum(counts), trained.read_bundle("_work/cells")["centers"]
    cell_of = np.searchsorted(stop, boxes.start, side="right")
    used = np.flatnonzero(np.bincount(cell_of, _embedded_rows(trained, boxes, n_embedded), minlength=len(stop)))
    return Cells(centers[used], (stop - counts)[used], stop[used])


def _embedded_rows(trained: Store, boxes: Boxes, n_embedded: int) -> Int64:
    """How many points of each box have coordinates; a box lies in one block."""
    counts = boxes.stop - boxes.start
    if n_embedded:
        size = block_of(trained.array(array_specs.POINT_COMPONENT.name))
        for block in np.unique(boxes.start // size).tolist():
            inside = np.flatnonzero(boxes.start // size == block)
            first, past = int(boxes.start[inside[0]]), int(boxes.stop[inside[-1]])
            embedded = trained.read(array_specs.POINT_COMPONENT.name, first, past) < n_embedded
            counts[inside] = np.add.reduceat(embedded.astype(np.int64), boxes.start[inside] - first)
    return counts


def calibration_rows(n_points: int, seed: int) -> Int64:
    """The training points that are treated as new ones, to set the limits of a search."""
    chosen = np.random.default_rng([seed, 17]).choice(n_points, min(CALIBRATION_POINTS, n_points), replace=False)
    return np.sort(chosen)


def search_bytes(layout: Layout, fitted: Blocks, n_rows: int, k: int) -> int:
    """Bytes of a search of some rows among points in `fitted` blocks, which can lie in twice as many cells as planned.

    Cells are read whole, and a large one can have several times as many points as the mean.
    """
    row, d, n_cells = layout.row_bytes, layout.n_features, 2 * all_cells(layout.n_points)
    halo = halo_rows(row) + 8 * (layout.n_points // n_cells)
    n_bytes = 2 * task_costs.SCORE_BYTES + halo * (3 * row + 64) + task_costs.tree_bytes(halo, d)
    n_bytes += n_rows * (16 * d + 150 * k) + 48 * min(PAIRS, n_rows * n_cells)
    return n_bytes + max_boxes(n_cells, fitted.count) * (64 * d + 32) + 1024 * n_cells


def place_step(config: Config, layout: Layout, n_graph: int) -> Generator[Step[Report], list[Report], list[Count]]:
    """(count_cells ->) place."""
    k, blocks, d, n_cells = config.neighbors.n_neighbors, layout.blocks, layout.n_features, 0
    if neighbor_method(config.neighbors.method, blocks.n, d) == "pynndescent":
        n_bytes = task_costs.TASK_BYTES + 13 * blocks.n + search_bytes(layout, blocks, RECALL_POINTS, k)
        [counted] = yield from Step(
            "solve_embedding.count_cells",
            task(count_cells, n_graph=n_graph, n_neighbors=k),
            1,
            n_bytes,
            expected=lambda b: Count(EXPECTED_CELLS),
            runs_on=WHOLE_DATA,
            work=count_work(layout),
        )
        n_cells = counted.count
    n_bytes = task_costs.TASK_BYTES + search_bytes(layout, blocks, blocks.size, k)
    n_bytes += blocks.size * (8 * d + k * (layout.row_bytes + 8 * d))
    place = task(place_block, n_graph=n_graph, n_neighbors=k, n_cells=n_cells, blocks=blocks)
    bundles = {PLACED: disk_costs.per_point(n=blocks.n, blocks=blocks.count, numbers=2 * k)}
    step = Step("solve_embedding.place", place, blocks.count, n_bytes, bundles=bundles, expected=lambda b: Count(0))
    return (yield from step)


def count_work(layout: Layout) -> Work:
    """The time of `cells_to_search`: the exact search of some points, and the read of all."""
    n, d = layout.n_points, layout.n_features
    return Work(search_among_all(RECALL_POINTS, n, d) + n * (1.5e-6 + 1e-9 * d))


def count_cells(store: Store, block_index: int, n_graph: int, n_neighbors: int) -> Count:
    """The number of cells to search for the points whose component is not embedded, from some of them."""
    rows = np.flatnonzero(store.read_all(array_specs.POINT_COMPONENT.name) >= n_graph)
    return Count(cells_to_search(store, some_of(rows), n_neighbors, n_graph) if len(rows) else 0)


def place_block(store: Store, block_index: int, n_graph: int, n_neighbors: int, n_cells: int, blocks: Blocks) -> Count:
    """Nearest embedded points, and their weights, of the points of a block whose component is not embedded."""
    start, stop = blocks.rows(block_index)
    rows = start + np.flatnonzero(store.read(array_specs.POINT_COMPONENT.name, start, stop) >= n_graph)
    if len(rows):
        points = store.gather(array_specs.POINTS.name, rows).astype(np.float64)
        lists = nearest_points(store, points, n_neighbors, n_graph, n_cells)
        needed, positions = np.unique(np.maximum(lists.ids, 0), return_inverse=True)
        component = store.gather(array_specs.POINT_COMPONENT.name, needed)
        valid = of_one_component(lists.ids, component[positions])
        neighbors = store.gather(array_specs.POINTS.name, needed)[positions]
        weights = barycenter_weights(points, neighbors, valid, PLACE_REG, "trace").weights
        store.write_bundle(f"{PLACED}/{block_index:05d}", rows=rows, neighbors=lists.ids, weights=weights)
    return Count(len(rows))


def place_rows(store: Store, embedding: Float64, component: Int32) -> None:
    """Coordinates of the points (n, m) in small components, in place: weighted sums of those of their neighbours."""
    for name in store.objects.names(PLACED):
        part = store.read_bundle(name.removesuffix(".npz"))
        ids = part["neighbors"]
        neighbors = np.where(ids[:, :, None] >= 0, embedding[np.maximum(ids, 0)], 0.0)  # point 0 may be a NaN itself
        embedding[part["rows"]] = np.einsum("bk,bkm->bm", part["weights"], neighbors)
        component[part["rows"]] = PLACED_COMPONENT
