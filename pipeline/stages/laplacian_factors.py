"""The rows of the factor F of the Laplacian eigenmap: one for each edge of the symmetrised neighbour graph.

Steps: measure_links (if t is auto) -> request -> send -> edges -> degrees -> solve. The name of the stage is
local_factors, as for the other methods.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ..config.models import Config
from ..core.errors import InputError, counted
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import FactorRows, index_dtype
from ..engine.row_exchange import exchange, exchanged, positions_of, receive_rows
from ..engine.step import WHOLE_DATA, Report, Step, Work, task
from ..kernels.factors.laplacian import LaplacianEdges, degrees, edge_factor, heat_scale, own_edges, partial_degrees
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

BATCH_LINKS = 2**22


def steps(config: Config, layout: Layout) -> Steps:
    """measure_links -> request -> send -> edges -> degrees -> solve."""
    n, k, blocks = layout.n_points, layout.k_max, layout.blocks
    t = None if config.weights.edges == "binary" else config.weights.t
    if t == "auto":
        measure, n_bytes = task(measure_links, blocks=blocks), task_costs.TASK_BYTES + 48 * blocks.size * k
        reports = yield from Step(
            "local_factors.measure_links",
            measure,
            blocks.count,
            n_bytes,
            expected=lambda b: Links(1, 1.0, 1.0),
            version=2,
        )
        mean = sum(report.squared for report in reports) / sum(report.links for report in reports)
        digits, exponent = math.frexp(mean)  # the last digits depend on the size of the blocks
        rounded = math.ldexp(round(digits * 2**30), exponent - 30)
        t = heat_scale(rounded, max(report.largest for report in reports))
        if not 0 < t < 0.1 * float(np.finfo(np.float32).max) ** 2:
            raise InputError(
                f"weights.t: auto uses the mean squared distance of neighbours in float32. It is {t:.2g}, outside of "
                f"the range of float32 distances; scale the data (preprocess.scale: standard), or set weights.edges: "
                f"binary"
            )
    row = k * np.dtype(index_dtype(n)).itemsize
    received = yield from exchange("local_factors", layout, array_specs.NEIGHBOR_INDICES.name, row)
    weigh, n_bytes = task(weigh_block, t=t, blocks=blocks), received + 16 * BATCH_LINKS + 200 * blocks.size * k
    edges = {"_work/edges": disk_costs.files(blocks.count, 48 * n * k)}
    yield from Step(
        "local_factors.edges", weigh, blocks.count, n_bytes, bundles=edges, deletes=exchanged(blocks.count), version=2
    )
    add = task(add_degrees, t=t, blocks=blocks)
    n_bytes = task_costs.TASK_BYTES + 56 * n + 150 * blocks.size * k
    yield from Step(
        "local_factors.degrees", add, 1, n_bytes, arrays=(array_specs.DEGREE.sized(blocks),), runs_on=WHOLE_DATA
    )
    solved = yield from Step(
        "local_factors.solve",
        task(solve_block, blocks=blocks),
        blocks.count,
        task_costs.TASK_BYTES + 240 * blocks.size * k,
        bundles={array_specs.LOCAL_FACTORS: disk_costs.sparse_rows(n=n * k, blocks=blocks.count, entries=2 * n * k)},
        deletes=("_work/edges",),
        work=Work(parallel=n * k**2 * (8e-8 + 3e-10 * layout.n_features)),
        expected=lambda b: FactorRows(2 * blocks.size * k, 0),
    )
    return replace(layout, factor_entries=max(report.entries for report in solved))


@dataclass(frozen=True)
class Links(Report):
    links: int
    squared: float
    largest: float


def measure_links(store: Store, block_index: int, blocks: Blocks) -> Links:
    """Number of links of a block's points to neighbours, and the sum and the maximum of their squared distances."""
    start, stop = blocks.rows(block_index)
    linked = store.read(array_specs.NEIGHBOR_INDICES.name, start, stop) >= 0
    squared = np.square(store.read(array_specs.NEIGHBOR_DISTANCES.name, start, stop)[linked].astype(np.float64))
    return Links(int(linked.sum()), float(squared.sum()), float(squared.max(initial=0.0)))


def weigh_block(store: Store, block_index: int, t: float | None, blocks: Blocks) -> Report:
    """Write the edges that the points of a block own, with their weights and their contributions to the degrees."""
    start, stop = blocks.rows(block_index)
    indices = store.read(array_specs.NEIGHBOR_INDICES.name, start, stop)
    squared = np.square(store.read(array_specs.NEIGHBOR_DISTANCES.name, start, stop).astype(np.float64))
    listed, lists = receive_rows(store, block_index, array_specs.NEIGHBOR_INDICES.name, blocks, indices)
    batch, parts = max(1, BATCH_LINKS // indices.shape[1] ** 2), []
    for first in range(0, stop - start, batch):
        part = slice(first, first + batch)
        positions = positions_of(indices[part], listed, start, stop)  # empty slots give no edge
        rows = np.arange(start, stop)[part]
        parts.append(own_edges(rows, indices[part], squared[part], lists[positions], t))
    edges = LaplacianEdges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    ids, sums = partial_degrees(edges)
    store.write_bundle(f"_work/edges/{block_index:05d}", **edges._asdict(), ids=ids, sums=sums)
    return Report()


def add_degrees(store: Store, block_index: int, t: float | None, blocks: Blocks) -> Report:
    """Write the degrees of all points. Raises InputError if the heat kernel makes the degree of a point zero."""
    sums = np.zeros((4, blocks.n))
    for number in range(blocks.count):
        part = store.read_bundle(f"_work/edges/{number:05d}")
        sums[:, part["ids"]] += part["sums"]
    degree = degrees(sums)
    n_isolated = int((degree < np.sqrt(np.finfo(np.float64).tiny)).sum())
    if n_isolated:
        raise InputError(
            f"weights.t is {t:g}, and exp(-d^2 / t) is zero in float64 for all edges of "
            f"{counted(n_isolated, 'point')}. Set it to auto, or raise weights.t, or set weights.edges: binary"
        )
    store.write(array_specs.DEGREE.name, 0, degree)
    return Report()


def solve_block(store: Store, block_index: int, blocks: Blocks) -> FactorRows:
    start, _ = blocks.rows(block_index)
    part = store.read_bundle(f"_work/edges/{block_index:05d}")
    edges = LaplacianEdges(part["rows"], part["neighbors"], part["weights"])
    degree = store.gather(array_specs.DEGREE.name, part["ids"])
    row_degrees, neighbor_degrees = (
        degree[np.searchsorted(part["ids"], side)] for side in (edges.rows, edges.neighbors)
    )
    rows = edge_factor(edges, row_degrees, neighbor_degrees, blocks.n)
    store.write_rows(array_specs.LOCAL_FACTORS, block_index, start, rows)
    return FactorRows(2 * len(edges.rows), 0)
