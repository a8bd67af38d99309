"""Sizes of a plan from those of the input: blocks, cells, samples, the search method; and seconds of common tasks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.methods import METHODS
from .plan import Layout
from .step import Report

CHUNK_BYTES = 32 * 2**20
MAX_BLOCK_POINTS = 65_536
MIN_BLOCK_POINTS = 1_024
BLOCKS_PER_WORKER = 3  # fewer leave workers idle at the end of a step
BLOCK_WORK, ROW_WORK = 2**20, 128  # least work of a block; a row of d features counts as ROW_WORK + d
CLUSTER_BLOCKS = 8  # least blocks of BLOCK_WORK that are worth the start of workers
MAX_BLOCKS = 1_000_000  # a plan of ten times as many takes gigabytes
KDTREE_FEATURES = 10
KDTREE_FEATURES_OF_MANY, KDTREE_POINTS = 5, 50_000  # with more points, trees are used only for fewer features
BRUTE_POINTS = 20_000
CELL_POINTS = 2048
MAX_CELLS = 4096
SAMPLE_PER_CELL = 40
SURFACE_FEATURES = 3
"""Data of up to this number of features count as surfaces: the factorization has little fill-in, and M few entries."""


def block_points(requested: int | str, n_rows: int, row_bytes: int) -> int:
    """Rows of a block: the requested number, or the power of two that keeps a chunk of points within 32 MiB.

    >>> block_points("auto", 10**6, 3 * 4), block_points("auto", 70_000, 784 * 4), block_points(500, 10**6, 12)
    (65536, 8192, 500)
    """
    if isinstance(requested, int):
        return min(requested, max(n_rows, 1))
    fitting = 1 << int(math.log2(max(CHUNK_BYTES // row_bytes, 1)))
    block = min(MAX_BLOCK_POINTS, max(MIN_BLOCK_POINTS, fitting))
    return min(block, max(n_rows, 1))


def block_points_for(n_workers: int, layout: Layout) -> int:
    """Rows of a block, at most the layout's, so that each worker gets BLOCKS_PER_WORKER blocks.

    Blocks are not smaller than BLOCK_WORK, and an input of one block is divided only if it is worth several workers.

    >>> roll, images = Layout(100_000, 3, "float64", 65_536), Layout(20_000, 784, "float32", 8192)
    >>> block_points_for(2, roll), block_points_for(16, roll), block_points_for(2, images)
    (16384, 8192, 2048)
    >>> block_points_for(2, Layout(10_000, 3, "float64", 10_000))
    10000
    """
    least = BLOCK_WORK // (ROW_WORK + layout.n_features_input)
    if layout.input_blocks.count == 1 and layout.n_input < CLUSTER_BLOCKS * least:
        return layout.block_points
    even = 1 << int(math.log2(max(layout.n_input // (BLOCKS_PER_WORKER * n_workers), 1)))
    useful = 1 << max(least - 1, 0).bit_length()
    return min(layout.block_points, max(even, useful, MIN_BLOCK_POINTS))


def n_cells(n_points: int) -> int:
    return min(MAX_CELLS, math.ceil(n_points / CELL_POINTS))


def max_boxes(n_cells: int, n_blocks: int) -> int:
    """Upper bound on the number of bounding boxes: one per cell, cut at block ends."""
    return n_cells + n_blocks


def sample_size(n_rows: int) -> int:
    """Input rows to sample for finding the cells: twice the required number, because some rows are dropped."""
    return min(n_rows, max(1000, 2 * SAMPLE_PER_CELL * n_cells(n_rows)))


def sampled_per_block(layout: Layout) -> int:
    """Largest number of these rows in one input block."""
    return min(layout.block_points, math.ceil(sample_size(layout.n_input) * layout.block_points / layout.n_input) + 1)


def neighbor_method(requested: str, n_points: int, n_features: int) -> str:
    """The search method: for `auto`, k-d tree for few features, brute force for few points, else NN-descent.

    In many dimensions a block of points has nearly all others within reach, so tree search takes quadratic time:
    minutes for 120,000 Gaussian points in ten dimensions, where NN-descent takes seconds.

    >>> neighbor_method("auto", 10**6, 3), neighbor_method("auto", 1797, 64), neighbor_method("auto", 70_000, 784)
    ('kdtree', 'brute', 'pynndescent')
    >>> neighbor_method("auto", 50_000, 10), neighbor_method("auto", 10**6, 10)
    ('kdtree', 'pynndescent')
    """
    if requested != "auto":
        return requested
    if n_features <= (KDTREE_FEATURES if n_points <= KDTREE_POINTS else KDTREE_FEATURES_OF_MANY):
        return "kdtree"
    return "brute" if n_points <= BRUTE_POINTS else "pynndescent"


def largest_total(counts: Sequence[Mapping[str, int]]) -> int:
    """The largest sum of counts for one target over all blocks, which is the amount in its task."""
    totals = Counter[str]()
    for count in counts:
        totals.update(count)
    return max(totals.values(), default=0)


def factor_entries(method: str, k: int, n_components: int) -> int:
    """Upper bound on the entries of the factor F per point: rows over its neighbourhood, or edges with two ends.

    >>> factor_entries("lle", 12, 2), factor_entries("ltsa", 12, 2), factor_entries("hessian", 12, 2)
    (13, 130, 130)
    """
    rows = METHODS[method].factor_rows(k, n_components)
    return 2 * rows if method == "laplacian" else rows * (k + 1)


@dataclass(frozen=True)
class FactorRows(Report):
    """Entries of a block of rows of F, and neighbourhoods that have too few points to give a row."""

    entries: int
    skipped: int


def index_dtype(n: int) -> str:
    """dtype of point ids: int32 if they fit, else int64."""
    return "int32" if n < 2**31 else "int64"


# --- processor seconds on the reference core; `python -m tests.benchmarks.expected_time` compares them with a run. The
# fill-in of a factorization and the number of tried values of `reg` depend on the data, so they are only estimates.


def search_in_tree(n_queries: int, n: int, d: int, k: int) -> float:
    """Seconds of a search for k neighbours in a tree of n points of d features."""
    return n_queries * 2.8e-7 * (k + 1) * math.pow(1.6, min(d, 40) - 3) * math.pow(n / 40_000, 0.08)


def search_among_all(n_queries: int, n: float, d: int) -> float:
    """Seconds of a search by the distances to all n points."""
    return 1e-5 * n_queries + n_queries * n * (4e-9 + 5e-11 * d)


def barycentric_weights(n: int, d: int, k: int) -> float:
    """Seconds of the weights of n points over k neighbours in d features."""
    return n * (5e-7 + 8e-9 * k * d if d < k else k**2 * (1.6e-8 + 2.6e-10 * d))
