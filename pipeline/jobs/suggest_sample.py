"""Sample rows of an input and search their nearest neighbours among all of its rows, in two passes, without a store.

The memory does not depend on the number of rows: it holds a block of rows, and the sample with its neighbour lists.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..config.models import Config
from ..core.arrays import Bools, Float64, Floats, Int64
from ..core.errors import InputError, counted
from ..engine.plan_sizes import block_points
from ..inputs import Source
from ..kernels.graph.connectivity import neighbor_graph, weak_components
from ..kernels.neighbors.duplicates import row_hashes
from ..kernels.neighbors.knn import NeighborLists, empty_lists, exact_neighbors, select_nearest
from ..linalg.preprocess import Preparation, fit_transform

QUERY_ELEMENTS = 2**26
"""Bound on the points that search neighbours among all rows, times their features and neighbours: of wide rows these
searches would take most of the time."""
MIN_POINTS = 50

LEAST_PIECE = 8
"""Least points of a piece of the sample that trials can use, for each of its neighbours."""


class NeighborSample(NamedTuple):
    """s sampled points, and the neighbours of the first q of them among all rows, after preprocessing."""

    n_rows: int
    points: Floats
    """(s, d) distinct sampled points in random order."""
    lists: NeighborLists
    """(q, k) neighbours of the first q points among all distinct rows; ids are hashes of rows."""
    n_distinct: float
    """Distinct valid rows, estimated from the sample."""
    labels: Float64 | None = None
    """(s,) category of each sampled point, NaN for none; None if the input has no labels that are categories."""
    left_out: str = ""
    """A line about the columns that the scaling leaves out."""


def sample_neighbors(config: Config, source: Source, sample: int, k: int, seed: int) -> NeighborSample:
    """Read all rows twice: once for the sample, once for its neighbours.

    Scaling and principal components are fitted on the sample. Equal rows count once, as in a run. Raises InputError.
    """
    rng = np.random.default_rng([seed, 17])
    chosen = np.sort(rng.choice(source.n_rows, size=min(sample, source.n_rows), replace=False, shuffle=False))
    has_categories = source.labels.width == 1 and source.labels.kind == "categorical"
    parts, label_parts, n_invalid = [], [], 0
    for start, rows, valid in _blocks(source):
        own = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, start + len(rows))] - start
        own = own[valid[own]]
        parts.append(rows[own])
        if has_categories:
            label_parts.append(np.asarray(source.read_labels(start, start + len(rows)))[own])
        n_invalid += int((~valid).sum())
    if n_invalid and config.preprocess.invalid == "error":
        raise InputError(
            f"input: {counted(n_invalid, 'row')} with NaN or infinity, or with numbers whose squares overflow. Correct "
            f"them, or set preprocess.invalid: drop to leave them out"
        )
    rows = np.concatenate(parts)
    ids, first = np.unique(_ids(rows), return_index=True)
    order = rng.permutation(len(ids))
    ids, rows = ids[order], rows[first[order]]
    if len(rows) < MIN_POINTS:
        larger = "raise --sample, or " if sample < source.n_rows else ""
        raise InputError(
            f"input: the sample has {len(rows)} distinct valid rows of {source.n_rows}; at least {MIN_POINTS} are "
            f"needed; {larger}choose the parameters by hand"
        )
    scale, pca = config.preprocess.scale, config.preprocess.pca
    is_sample, names = sample < source.n_rows or config.input.fit_sample is not None, source.feature_names
    fitted = None if scale == "none" and pca is None else fit_transform(rows, scale, pca, names, is_sample)
    prepare = Preparation(fitted, config.neighbors.metric == "cosine")
    points = _prepared(prepare, rows)
    n_queries = max(MIN_POINTS, QUERY_ELEMENTS // (points.shape[1] * k))
    lists = _neighbors_among_all(source, prepare, points[:n_queries], ids[:n_queries], k)
    labels = np.concatenate(label_parts)[first[order]] if has_categories else None
    left_out = "" if fitted is None else fitted.left_out(names)
    n_distinct = source.n_rows * len(ids) / min(sample, source.n_rows)
    return NeighborSample(source.n_rows, points, lists, n_distinct, labels, left_out)


def _prepared(prepare: Preparation, rows: Floats) -> Floats:
    """The points of rows. Raises InputError for zero rows if the metric needs a direction."""
    points, zero = prepare(rows)
    if zero.any():
        raise InputError(
            "neighbors.metric: cosine compares directions, but some rows are zero after preprocessing and have "
            "no direction; leave them out, or set neighbors.metric: euclidean"
        )
    return points


def _neighbors_among_all(source: Source, prepare: Preparation, points: Floats, ids: Int64, k: int) -> NeighborLists:
    lists = empty_lists(len(points), k)
    for _, rows, valid in _blocks(source):
        block_ids, first = np.unique(_ids(rows[valid]), return_index=True)
        if not len(block_ids):
            continue
        block = _prepared(prepare, rows[valid][first])
        nearest_in_block = exact_neighbors(points, ids, block, block_ids, k)
        ids_of_both, both = (np.hstack(pair) for pair in zip(lists, nearest_in_block, strict=True))
        lists = select_nearest(ids_of_both, both, ids, k)
    return lists


def _blocks(source: Source) -> Iterator[tuple[int, Floats, Bools]]:
    """Yield (first row, rows, which of them are valid) of each block."""
    size = block_points("auto", source.n_rows, source.n_features * source.dtype.itemsize)
    for start in range(0, source.n_rows, size):
        rows = source.read(start, min(start + size, source.n_rows))
        with np.errstate(over="ignore", invalid="ignore"):
            yield start, rows, np.isfinite(np.square(rows, dtype=np.float64).sum(axis=1))


def _ids(rows: Floats) -> Int64:
    """63 bits of each row's hash. Equal rows have equal ids.

    Two different rows among ten million have the same id in one run of 200,000.
    """
    return (row_hashes(rows)[:, 0] >> np.uint64(1)).astype(np.int64)


def pieces(points: Float64, n_tried: int, k: int, n_distinct: float) -> tuple[int, Int64, int]:
    """The pieces of points (n, d), of which trials can embed the first `n_tried`, among `n_distinct` rows.

    Returns the number of pieces of their graph of k neighbours, the points (i,) of the largest one, and the least
    number of neighbours with which a graph of all rows has no more pieces.

    All points count as one piece if the largest has too few for trials. A graph of random points is connected from
    about c log n neighbours on (Balister et al. 2005, Advances in Applied Probability 37), so sampled points have fewer
    neighbours here than among all rows. Else a sample could be connected by chance, and its rows in pieces.
    """
    every = np.arange(len(points))
    ids = exact_neighbors(points, every, points, every, k).ids
    number, component = weak_components(neighbor_graph(ids))
    share, fewest = min(1.0, np.log(len(points)) / np.log(n_distinct)), k
    while fewest > 1 and weak_components(neighbor_graph(ids[:, : int(share * (fewest - 1))]))[0] <= number:
        fewest -= 1
    inside = np.flatnonzero(component[:n_tried] == 0)  # component 0 is the largest
    is_enough = len(inside) >= LEAST_PIECE * k
    return (number, inside, fewest) if is_enough else (1, every[:n_tried], fewest)
