"""Distance helpers of the searches by matrix products: a shift, the rounding bound, and exact differences.

A product gives |x|^2 + |y|^2 - 2 x.y, which loses the distance of near points that are far from the origin. So
coordinates are shifted by a typical point, the products only select candidate pairs, and distances are computed from
differences of the original coordinates.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from ...core.arrays import Float64, Floats, Int64, Ints
from ..batches import batches

T = TypeVar("T")

SAMPLED = 256  # rows from which the typical point is computed
TILE_POINTS, TILE_PAIRS = 4096, 2**18  # pairs whose bounds fit the cache; does not affect results
TILE_ELEMENTS = 2**20  # coordinates of the points of a tile; does not affect results
DOUBTFUL_SHARE = 1 / 16
"""A tile with more pairs that single precision cannot decide is computed in double precision."""
UNDERFLOW = 1e-30
"""Far above what underflow changes in single precision, where the largest squares are about 1."""


def typical_point(points: Floats) -> Float64:
    """The median (d,) of each coordinate over a few evenly spaced points of (n, d); zeros if there are none.

    Unlike the mean it stays among the points if a few rows are far away, such as rows of fill values.
    """
    if not len(points):
        return np.zeros(points.shape[1])
    sampled = points[:: -(-len(points) // SAMPLED)]
    half = len(sampled) // 2
    return np.asarray(np.partition(sampled, half, axis=0)[half], np.float64)


def square_rounding(n_features: int, dtype: type[np.floating] = np.float64) -> float:
    """c such that |x|^2 + |y|^2 - 2 x.y, of points with the same shift, has an error of at most c (|x|^2 + |y|^2).

    For any order of the sums of d + 2 terms, including the rounding of the shifted coordinates to `dtype` (Higham 2002,
    section 3.1). Squared distances from float64 differences have a relative error of at most c.
    """
    return float((2 * n_features + 16) * np.finfo(dtype).eps)


class Tile(NamedTuple):
    """Bounds of the squared distances of some queries to some points, times ``scale`` squared.

    The lower bound of a pair is its score plus ``base``; the upper one is higher by its two slacks.
    """

    rows: slice
    """The r queries."""
    columns: slice
    """The c points."""
    scores: Floats
    """(r, c) in single or double precision."""
    base: Float64
    """(r,)"""
    row_slack: Float64
    """(r,)"""
    column_slack: Float64
    """(c,)"""
    highest: Floats
    """(r,) scores of pairs whose distance may be at most the limit of the query."""
    scale: float


class _Bounds:
    """Makes tiles in one precision, from queries (b, d) and their squares and limits (b,)."""

    @np.errstate(over="ignore", invalid="ignore")  # far beyond single precision
    def __init__(self, dtype: type[np.floating], queries: Float64, squares: Float64, limits: Float64) -> None:
        self.dtype, self.rounding = dtype, square_rounding(queries.shape[1], dtype)
        self.base = (1 - self.rounding) * squares - UNDERFLOW
        self.slack = 2 * (self.rounding * squares + UNDERFLOW)
        self.queries = self._operand(queries, np.ones(len(queries)))
        self.queries[:, :-1] *= -2
        self.highest = np.nextafter((limits - self.base).astype(dtype), dtype(np.inf))

    @np.errstate(over="ignore", invalid="ignore")
    def side(self, points: Float64, squares: Float64) -> Floats:
        """The points (c, d) with their squares (c,), as the right side of the product."""
        return self._operand(points, (1 - self.rounding) * squares)

    def _operand(self, points: Float64, last: Float64) -> Floats:
        operand = np.empty((len(points), points.shape[1] + 1), self.dtype)
        operand[:, :-1], operand[:, -1] = points, last
        return operand

    @np.errstate(over="ignore", invalid="ignore")
    def tile(self, rows: slice, columns: slice, side: Floats, squares: Float64, scale: float) -> Tile:
        """The tile of some queries and of the points of a ``side`` with their squares (c,)."""
        slack = 2 * self.rounding * squares
        scores = self.queries[rows] @ side.T
        return Tile(rows, columns, scores, self.base[rows], self.slack[rows], slack, self.highest[rows], scale)


def each_tile(
    queries: Floats, points: Floats, limits: Float64, evaluate: Callable[[Tile, int], T | None]
) -> Iterator[T]:
    """``evaluate`` for all pairs of a query (b, d) and a point (c, d), tile by tile; ``limits`` (b,) are squared.

    ``evaluate`` takes a tile in single precision and a number of pairs. If more pairs are undecided (near points far
    from the typical point), it returns None, and is called again with a tile in double precision and the number of all
    pairs, which must give a result.
    """
    middle = typical_point(queries)
    shifted = np.subtract(queries, middle)
    squares = np.einsum("bd,bd->b", shifted, shifted)
    largest = max(values[np.isfinite(values)].max(initial=0.0) for values in (squares, limits))
    scale = 2.0 ** -int(np.clip(np.frexp(largest)[1] // 2, -500, 500))  # so that the largest squares are near 1
    shifted *= scale
    scaled = shifted, squares * scale**2, limits * scale**2
    single, double = _Bounds(np.float32, *scaled), None
    step = max(1, min(TILE_POINTS, TILE_ELEMENTS // max(1, queries.shape[1])))
    for start in range(0, len(points), step):
        columns = slice(start, start + step)
        part = np.subtract(points[columns], middle)
        part *= scale
        part_squares = np.einsum("cd,cd->c", part, part)
        side, n_rows = single.side(part, part_squares), max(1, TILE_PAIRS // len(part))
        for top in range(0, len(queries), n_rows):
            rows = slice(top, min(top + n_rows, len(queries)))
            n_pairs = (rows.stop - top) * len(part)
            tile = single.tile(rows, columns, side, part_squares, scale)
            result = evaluate(tile, int(DOUBTFUL_SHARE * n_pairs))
            if result is None:
                double = double or _Bounds(np.float64, *scaled)
                tile = double.tile(rows, columns, double.side(part, part_squares), part_squares, scale)
                result = evaluate(tile, n_pairs)
                assert result is not None, "all pairs are allowed"
            yield result


def near_pairs(queries: Floats, points: Floats, limits: Float64) -> Iterator[tuple[Int64, Int64]]:
    """All pairs of a query (b, d) and a point (c, d) whose squared distance may be at most limits (b,), tile by tile.

    Positions (h,) of queries and of points, sorted by query. Pairs with a coordinate that is not finite are included.
    """

    @np.errstate(over="ignore", invalid="ignore")
    def select(tile: Tile, allowed: int) -> tuple[Int64, Int64] | None:
        near = np.flatnonzero(~(tile.scores > tile.highest[:, None]))  # ~ includes NaN
        rows, columns = near // len(tile.column_slack), near % len(tile.column_slack)
        upper = tile.scores.ravel()[near] + tile.base[rows] + tile.row_slack[rows] + tile.column_slack[columns]
        rows += tile.rows.start
        if np.count_nonzero(~(upper <= limits[rows] * tile.scale**2)) > allowed:
            return None
        return rows, columns + tile.columns.start

    return each_tile(queries, points, limits, select)


def pair_distances(left: Floats, rows: Ints, right: Floats, columns: Ints) -> Float64:
    """Distances (h,) of the pairs left[rows], right[columns], from differences in float64."""
    squares = np.empty(len(rows))
    for part in batches(len(rows), 8 * left.shape[1]):
        difference = np.subtract(right[columns[part]], left[rows[part]], dtype=np.float64)
        squares[part] = np.einsum("hd,hd->h", difference, difference)
    return np.sqrt(squares)
