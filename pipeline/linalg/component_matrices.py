"""The matrices of one component, read from a store's blocks: A = I - W, the local factors F, M, and its null vector."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csr_array, vstack

from ..core.arrays import Array, Float32, Float64, Int32, Int64
from ..kernels.factors.cost_matrix import local_factor
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

ALL = slice(None)
MAX_PRODUCTS = 2**28
"""Products of entries of F up to which M is computed instead of read, in about two seconds."""
MAX_COMPONENTS = 10
MIN_VARIANCE = 1e-10
"""Components with a smaller share of the largest variance are left out."""
MIN_SAMPLED, MAX_SAMPLED, SAMPLE_NUMBERS = 200, 5000, 2**20
"""Points from which principal directions are computed: as many as have SAMPLE_NUMBERS entries, within bounds."""
RANGE_NUMBERS = 2**22
"""Entries of the points that are read at a time."""
COMPARED_COMPONENTS, ROWS_OF_COMPONENT = 20, 200
CONSTANT_SHARE = 0.9
"""Share of the compared components in which a column that separates them has one value."""


def component_rows(store: Store, component: int) -> Int64:
    """The points of a component, ascending."""
    return np.flatnonzero(store.read_all(array_specs.POINT_COMPONENT.name) == component)


def in_components(
    store: Store, numbers: range, blocks: Blocks, *, is_square: bool
) -> Iterator[tuple[Int64, csr_array | None]]:
    """The points of each of these components, and its A (`is_square`) if they are several: they are read together."""
    if len(numbers) == 1:
        yield component_rows(store, numbers.start), None  # it may be large, and another process may solve it
        return
    component = store.read_all(array_specs.POINT_COMPONENT.name)
    rows = np.flatnonzero((component >= numbers.start) & (component < numbers.stop))
    factor = load_factor(store, rows, blocks) if is_square else None
    order, ends = np.argsort(component[rows], kind="stable"), np.cumsum(np.bincount(component[rows] - numbers.start))
    for inside in np.split(order, ends[:-1]):
        yield rows[inside], None if factor is None else _stacked([factor[inside]], inside)


def input_rows(store: Store) -> Int32:
    """(n,) number of input rows that are equal to each point, including its own row."""
    counts = np.zeros(store.array(array_specs.REPRESENTATIVE.name).shape[0], np.int32)
    for _, representative in store.in_blocks(array_specs.REPRESENTATIVE.name):
        np.add.at(counts, representative[representative >= 0], 1)
    return np.concatenate([counts[rows] for _, rows in store.in_blocks(array_specs.ORIGINAL_INDEX.name)])


def separating_columns(store: Store, component: Int32) -> list[int]:
    """Columns of the input with one value in nearly every component (n,), not the same in all: they separate them.

    Looks at up to ROWS_OF_COMPONENT points of each of the largest components.
    """
    sizes = np.bincount(component[component >= 0])
    if len(sizes) < 2:
        return []
    is_constant, values = [], []
    for number in np.argsort(-sizes, kind="stable")[:COMPARED_COMPONENTS]:
        points = np.flatnonzero(component == number)
        points = points[np.linspace(0, len(points) - 1, min(len(points), ROWS_OF_COMPONENT)).astype(np.int64)]
        rows = np.sort(store.gather(array_specs.ORIGINAL_INDEX.name, points))
        found = store.gather(array_specs.RAW.name, rows)
        is_constant.append(found.min(axis=0) == found.max(axis=0))
        values.append(found[0].copy())
    separates = (np.mean(is_constant, axis=0) >= CONSTANT_SHARE) & (np.ptp(values, axis=0) > 0)
    return [int(column) for column in np.flatnonzero(separates)]


def load_factor(store: Store, rows: Int64, blocks: Blocks, wanted: slice = ALL) -> csr_array:
    """A = I - W of the points `rows` (n,), ascending and closed under neighbours: its `wanted` rows (w, n)."""
    parts, own = [], rows[wanted]
    for _, part in blocks.holding(own):
        first, past = int(own[part][0]), int(own[part][-1]) + 1  # points of a small component are near each other
        indices = store.read(array_specs.NEIGHBOR_INDICES.name, first, past)
        weights = store.read(array_specs.WEIGHTS.name, first, past)
        parts.append(_selected(local_factor(indices, weights, first, blocks.n), own[part] - first))
    return _stacked(parts, rows)


def load_local_factors(store: Store, rows: Int64, blocks: Blocks) -> csr_array:
    """F of the points `rows` (n,), ascending, a union of weak components; for the methods that store rows of F."""
    inside, parts = np.zeros(blocks.n, bool), []
    inside[rows] = True
    for number, _ in blocks.holding(rows):
        block = store.read_rows(array_specs.LOCAL_FACTORS, number)
        parts.append(_selected(block, np.flatnonzero(inside[block.indices[block.indptr[:-1]]])))
    return _stacked(parts, rows)


def leading_components(
    store: Store,
    rows: Int64,
    n_points: int,
    wanted: slice = ALL,
    agreed: Callable[..., tuple[Array, ...]] = lambda *results: results,
) -> Float32:
    """Leading principal components of the points `rows` (n,), ascending, each of variance 1: (n, MAX_COMPONENTS).

    Those of the `wanted` points are returned. `agreed`: see ``Rows.agreed``.
    There are fewer if the points have fewer columns with variance. The directions are those of evenly spaced points,
    and points are read in ranges of fixed size, so the bytes do not depend on the blocks.
    """
    d = store.array(array_specs.POINTS.name).shape[1]
    n_sampled = min(len(rows), max(MIN_SAMPLED, min(MAX_SAMPLED, SAMPLE_NUMBERS // d)))
    sample = rows[np.linspace(0, len(rows) - 1, n_sampled).astype(np.int64)]
    points = store.gather(array_specs.POINTS.name, sample).astype(np.float64)
    mean = points.mean(axis=0)
    spread, directions = agreed(*np.linalg.svd((points - mean) / np.sqrt(n_sampled), full_matrices=False)[1:])
    used = spread[:MAX_COMPONENTS] > np.sqrt(MIN_VARIANCE) * spread[0]
    scaled = (directions[:MAX_COMPONENTS][used] / spread[:MAX_COMPONENTS][used, None]).T
    first, past, _ = wanted.indices(len(rows))
    components = np.empty((past - first, scaled.shape[1]), np.float32)
    ranges = Blocks(n_points, max(1, RANGE_NUMBERS // d))
    for number, part in ranges.holding(rows):
        low, high = max(part.start, first), min(part.stop, past)
        if low >= high:
            continue
        start, stop = ranges.rows(number)
        points = store.read(array_specs.POINTS.name, start, stop)[rows[part] - start]
        # of the whole range, as BLAS can round a row by its position
        projected = (points.astype(np.float64) - mean) @ scaled
        components[low - first : high - first] = projected[low - part.start : high - part.start]
    return components


def null_vector(store: Store, rows: Int64) -> Float64:
    """D^1/2 1 of the points `rows`, a unit vector: the null vector of D^-1/2 L D^-1/2, instead of the constant."""
    root = np.sqrt(store.gather(array_specs.DEGREE.name, rows))
    return np.asarray(root / np.linalg.norm(root))


def cost_matrix(store: Store, rows: Int64, blocks: Blocks, factor: csr_array, is_stored: bool) -> csr_array:
    """M of the points `rows` (n,) with the factor F (any, n): read from the store, or computed in memory.

    Small products are always computed, because the last digits of a stored M depend on the size of the blocks.
    """
    n_products = int(np.square(np.diff(factor.indptr).astype(np.int64)).sum())
    if not is_stored or n_products <= MAX_PRODUCTS:
        return product_matrix(factor)
    parts = [
        _selected(store.read_rows(array_specs.COST_MATRIX, number), rows[part] - number * blocks.size)
        for number, part in blocks.holding(rows)
    ]
    return _stacked(parts, rows)


def product_matrix(factor: csr_array) -> csr_array:
    """M = F' F in memory, for runs that do not store M. A stored M, a sum over blocks, differs by rounding."""
    product = csr_array(factor.T.tocsr() @ factor)
    product.sort_indices()
    return product


def _selected(block: csr_array, rows: Int64) -> csr_array:
    return block if len(rows) == block.shape[0] else block[rows]  # all rows without a copy


def _stacked(parts: list[csr_array], rows: Int64) -> csr_array:
    """The parts as one matrix whose columns are positions in `rows`, which contain every column with an entry."""
    matrix = csr_array(vstack(parts, format="csr"))
    if len(rows) == matrix.shape[1]:
        return matrix
    position = np.full(matrix.shape[1], -1, matrix.indices.dtype)
    position[rows] = np.arange(len(rows))
    return csr_array((matrix.data, position[matrix.indices], matrix.indptr), shape=(matrix.shape[0], len(rows)))
