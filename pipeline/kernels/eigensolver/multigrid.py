"""Multigrid cycles for B x = b and B' x = b, B = A or M of one component: smoothed aggregation, without a factor.

A = I - W behaves like a second-order elliptic operator, M = A' A like a fourth-order one. The near-null vectors of both
are the constant and the coordinates of the points, because the weights reconstruct each point from its neighbours.
Vanek, Mandel & Brezina 1996 (Computing 56): smoothed aggregation. Brezina, Manteuffel, McCormick, Ruge & Sanders 2010
(SIAM J. Sci. Comput. 32): for nonsymmetric matrices.

On each level P = (I - omega B) P0 and R = P0' (I - omega B), unless R B P has too many entries (MOST_FILL). P0 has
the local bases of the aggregates. A cycle applies P and R as products with B, so only P0 is stored. The hierarchy of B'
has the transposed matrices, so a cycle for B' is the transposed one for B.
Numbers are float32 for A, because the outer iteration corrects rounding errors, and float64 for M, whose small
eigenvalues are below the rounding errors of float32. The bytes of a result do not depend on the number of threads.
Loads numba.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, eye_array

from ...core.arrays import Float32, Float64, Floats, Ints
from ...core.machine import return_freed_memory
from .aggregation import Aggregates, find_aggregates, find_bases
from .device import Device, DeviceAggregates, Operations
from .pardiso import FactorizationError
from .rows import Rows
from .shared_matrix import Matrix, SharedMatrix, n_rows, rows_of
from .shared_setup import aggregates_by_cut, coarse_rows, normalised_rows, sampled_entries
from .smoother import Smoother, smoother_of
from .threads import Threads

COARSEST_ROWS = 1500
"""Rows of the coarsest level, which is solved densely."""
GATHERED_ROWS = 100_000
"""A level of several processes with at most this number of rows is copied to each of them, with all levels below."""
SLOWEST_COARSENING = 0.7
"""The setup fails if the next level has more than this share of the rows: they have too few neighbours."""
MIN_DIAGONAL = 0.7
"""Smallest diagonal entry that scales a row, relative to the norm of the row and of the column."""
MIN_VARIANCE = 0.9
"""Share of the variance of an aggregate that its local directions must hold to be used."""
NODES = {1: 24, 2: 10, 3: 20, 4: 36}
"""Points in an aggregate of the finest level, by the vectors q of its basis."""
COARSE_NODES = {1: 12, 2: 6, 3: 6, 4: 12}
"""Nodes in an aggregate of the other levels. Coarse rows of three and more dimensions have hundreds of entries, so few
levels take less time; on surfaces more levels need fewer steps."""
MOST_FILL, MOST_SHARED_FILL, SAMPLE_STEP = 1.5, 0.9, 32
"""For A: if P0 of the finest level has constants only, and R B P0 more than MOST_FILL times the entries of B, P = P0
there. On a coarser level that has more entries, and on all levels below a finest one of this kind, also R = P0'; if
memory is scarce, also on the finest one. For rows in several processes the bound of the finest level is
MOST_SHARED_FILL, and holds for any P0: R B P needs further rows of other processes. One row of SAMPLE_STEP of R B P0 is
computed to know the entries. Fill with P0 and with P, and an eigensolve of two vectors (2026-11-28):

- ten dimensions, 300,000 points: 1.6, 5.5; 55 processor seconds and 0.5 GiB with P0, 79 and 0.7 with P
- delay vectors of speech, 1,748,000 x 32: 1.2, 3.5; 519 and 2.9 with P0, 414 and 3.7 with P
- cube of four dimensions, 600,000 points: 1.8, 3.5; 183 and 1.2 with P0, 138 and 1.4 with P
- surfaces 0.4, 0.5; cubes of three dimensions 0.8, 1.3. A roll took 25 steps with P0, 5 with P."""
SMOOTHED_FILL = 2.0
"""Entries of R B P relative to those of R B P0: 1.4 to 2.2, more in many dimensions."""
TINY = float(np.finfo(np.float32).tiny)
EPS = float(np.finfo(np.float64).eps)


class MultigridError(FactorizationError):
    """Multigrid does not work for this A, so another method has to be used."""


class Level(NamedTuple):
    """A matrix of the hierarchy."""

    matrix: Matrix
    """(n, n), with about ones on the diagonal."""
    transposed: Matrix
    smoother: Smoother
    aggregates: Aggregates | DeviceAggregates
    """P0."""


class Hierarchy:
    """V-cycles for blocks of right-hand sides."""

    def __init__(
        self,
        matrix: Matrix,
        known: Float64,
        threads: Threads,
        *,
        symmetric: bool,
        fits: Callable[[float], bool] = lambda fill: True,
    ) -> None:
        """Set up the hierarchy.

        Args:
            matrix: B (n, n), float32 or float64, with about ones on the diagonal.
            known: (n, 1 + c) the null vector of B, and vectors that B nearly maps to zero; c may be 0. For a shared
                matrix the rows of this process.
            threads: threads of the setup and of the cycles.
            symmetric: whether B is symmetric and positive semidefinite.
            fits: whether the memory of this process allows a second level with this share of the entries that it has
                of B. If not, P of the finest level is not smoothed, and if this does not suffice, R neither.

        Raises:
            MultigridError: a level has hardly fewer rows than the one before.
        """
        self._operations: Operations = threads
        levels = list[Level]()
        least_rows = min(COARSEST_ROWS, n_rows(matrix) // 4)
        width, node_rows = _local_directions(matrix, known, threads) + 1, 1
        known, max_nodes = known if width > 1 else known[:, :1], NODES[width]
        self._gathered: tuple[int, Rows] | None = None
        while True:
            if levels and isinstance(matrix, SharedMatrix) and matrix.rows.n <= max(GATHERED_ROWS, least_rows):
                self._gathered, known = (len(levels), matrix.rows), np.concatenate(matrix.rows.group.gather(known))
                matrix = matrix.gathered()
            if n_rows(matrix) <= least_rows:
                break
            aggregates, known = _next_aggregates(matrix, known, node_rows, max_nodes, width, threads)
            smoother = smoother_of(matrix, symmetric=symmetric)
            if not levels:
                fill = 0.0 if symmetric else _fill(matrix, aggregates, smoother, threads)
                is_dense = fill > (MOST_SHARED_FILL if isinstance(matrix, SharedMatrix) else MOST_FILL)
                is_dense |= not _fits(matrix, aggregates, SMOOTHED_FILL * fill, fits)
            if is_dense or (levels and matrix.nnz > MOST_FILL * levels[0].matrix.nnz):
                r_is_smoothed = not levels and _fits(matrix, aggregates, fill, fits)
                smoother = smoother._replace(omega_p=0.0, omega_r=smoother.omega_r if r_is_smoothed else 0.0)
            coarse, scale = _coarse_matrix(matrix, aggregates, smoother, threads)
            levels.append(Level(matrix, matrix, smoother, _scaled(aggregates, scale)))
            matrix = coarse
            known /= scale[:, None]
            node_rows, max_nodes = width, COARSE_NODES[width]
        assert isinstance(matrix, csr_array)
        # the setup needs most memory before this, for the products of the finest level
        self.levels = levels if symmetric else [_with_transposed(level) for level in levels]
        self.n_bytes = sum(map(_bytes, self.levels))  # those of the coarsest level do not grow with the points
        return_freed_memory()  # the setup leaves as much as the hierarchy has
        inverse = _symmetric_inverse(matrix, known[:, 0]) if symmetric else _bordered_inverse(matrix, known[:, 0])
        self._coarsest, self._coarsest_transposed = csr_array(inverse), csr_array(np.ascontiguousarray(inverse.T))

    def move(self, device: Device) -> None:
        """Make later cycles run on a device."""
        self._operations = device
        for depth, (matrix, transposed, smoother, aggregates) in enumerate(self.levels):
            moved = device.matrix(matrix)
            moved_transposed = moved if transposed is matrix else device.matrix(transposed)
            self.levels[depth] = Level(moved, moved_transposed, smoother, device.aggregates(aggregates))
        self._coarsest = device.matrix(self._coarsest)
        self._coarsest_transposed = device.matrix(self._coarsest_transposed)

    @property
    def complexity(self) -> float:
        """Entries of all levels divided by those of the first."""
        return sum(level.matrix.nnz for level in self.levels) / self.levels[0].matrix.nnz

    def cycle(self, rhs: Floats, *, transposed: bool, depth: int = 0) -> Floats:
        """One V-cycle for B x = rhs (n, m), or B' x = rhs, from zero; ``rhs`` has the type of B."""
        operations = self._operations
        if self._gathered and depth == self._gathered[0] and (rows := self._gathered[1]).n != len(rhs):
            rhs = np.concatenate(rows.group.gather(rhs))
            return self.cycle(rhs, transposed=transposed, depth=depth)[rows.start : rows.stop]
        if depth == len(self.levels):
            inverse = self._coarsest_transposed if transposed else self._coarsest
            return operations.combine(inverse, rhs, rhs, np.empty_like(rhs), (1.0, 0.0, 0.0))
        level = self.levels[depth]
        smoothing, omega_r, omega_p = level.smoother
        a = level.matrix
        if transposed:
            a, omega_r, omega_p = level.transposed, omega_p, omega_r
        first, second = smoothing[0]
        x = operations.combine(a, rhs, rhs, np.empty_like(rhs), (second, first, 0.0))
        residual = np.empty_like(rhs)
        for step in smoothing[1:]:
            self._smooth(a, rhs, x, residual, step)
        operations.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
        smoothed = residual
        if omega_r:
            smoothed = operations.combine(a, residual, residual, np.empty_like(rhs), (-omega_r, 1.0, 0.0))
        coarse = self.cycle(level.aggregates.restrict(smoothed), transposed=transposed, depth=depth + 1)
        del smoothed
        correction = level.aggregates.prolong(coarse)
        x += correction
        if omega_p:
            operations.combine(a, correction, correction, x, (-omega_p, 0.0, 1.0))
        for step in smoothing:
            self._smooth(a, rhs, x, residual, step)
        return x

    def _smooth(self, a: Matrix, rhs: Floats, x: Floats, residual: Floats, step: tuple[float, float]) -> None:
        """A step of the smoother on ``x``; ``residual`` is overwritten."""
        self._operations.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
        self._operations.combine(a, residual, residual, x, (step[1], step[0], 1.0))


def _with_transposed(level: Level) -> Level:
    matrix = level.matrix
    transposed = matrix.T if isinstance(matrix, SharedMatrix) else csr_array(matrix.T.tocsr())
    return level._replace(transposed=transposed)


def _bytes(level: Level) -> int:
    matrices = [level.matrix] if level.transposed is level.matrix else [level.matrix, level.transposed]
    local = [each.local if isinstance(each, SharedMatrix) else each for each in matrices]
    arrays = [array for matrix in local for array in (matrix.data, matrix.indices, matrix.indptr)]
    return sum(int(array.nbytes) for array in (*arrays, *level.aggregates[:4]))


def _aggregates(matrix: Matrix, node_rows: int, max_nodes: int, width: int) -> tuple[Ints, Ints, Ints]:
    if isinstance(matrix, SharedMatrix):
        return aggregates_by_cut(matrix, node_rows, max_nodes, width)
    return find_aggregates(matrix, node_rows, max_nodes, width)


def _next_aggregates(
    matrix: Matrix, known: Float64, node_rows: int, max_nodes: int, width: int, threads: Threads
) -> tuple[Aggregates, Float64]:
    """The aggregates of a level, and the near-null vectors of the next one."""
    number, starts, rows = _aggregates(matrix, node_rows, max_nodes, width)
    shared = rows_of(matrix)
    smallest = min(int(part[0]) for part in shared.group.gather(np.array([np.diff(starts).min()])))
    if smallest < width:
        raise MultigridError(f"multigrid: a group of {smallest} points has no neighbours outside")
    found = find_bases(number, starts, rows, known, width, threads)
    if (n_columns := shared.total(found.aggregates.n_columns)) > SLOWEST_COARSENING * n_rows(matrix):
        raise MultigridError(
            f"multigrid: a level of {n_rows(matrix):,} rows has {n_columns:,} coarse rows, so its points have too "
            "few neighbours"
        )
    return found.aggregates, found.candidates


def _local_directions(matrix: Matrix, known: Float64, threads: Threads) -> int:
    """Directions of the near-null vectors in an aggregate: one to three, or 0 if they vary in more."""
    if known.shape[1] == 1:
        return 0
    found = find_bases(*_aggregates(matrix, 1, NODES[3], 1), known, 1, threads)
    weights = np.diff(found.aggregates.starts).astype(np.float64)
    if isinstance(matrix, SharedMatrix):
        firsts = [int(found.aggregates.number[first]) for first, _ in matrix.rows.cuts(known)]
        total = matrix.rows.sum(np.add.reduceat(np.column_stack([found.shares * weights[:, None], weights]), firsts))
        shares = total[:3] / total[3]
    else:
        shares = np.average(found.shares, axis=0, weights=weights)
    enough = np.flatnonzero(shares >= MIN_VARIANCE)
    return int(enough[0]) + 1 if enough.size else 0


def _coarse_matrix(b: Matrix, aggregates: Aggregates, smoother: Smoother, threads: Threads) -> tuple[Matrix, Float64]:
    """(S R B P S, S) with the diagonal S of ``normalised``, (n_columns,)."""
    if isinstance(b, SharedMatrix):
        return normalised_rows(coarse_rows(b, aggregates, smoother, threads), MIN_DIAGONAL, TINY)
    p0 = aggregates.matrix()
    return normalised(_product(b, p0, csr_array(p0.T.tocsr()), smoother, threads))


def _fill(b: Matrix, aggregates: Aggregates, smoother: Smoother, threads: Threads) -> float:
    """Entries of R B P0 relative to B, estimated from some rows; see MOST_FILL. 0 if it is not needed."""
    half = smoother._replace(omega_p=0.0)
    if isinstance(b, SharedMatrix):
        return sampled_entries(b, aggregates, half, threads, SAMPLE_STEP) / b.nnz
    if aggregates.basis.shape[1] > 1:
        return 0.0
    p0 = aggregates.matrix()
    sample = csr_array(p0.T.tocsr())[::SAMPLE_STEP]
    entries = _product(b, p0, sample, half, threads).nnz * aggregates.n_columns / sample.shape[0]
    return float(entries / b.nnz)


def _fits(b: Matrix, aggregates: Aggregates, fill: float, fits: Callable[[float], bool]) -> bool:
    """Whether the memory of each process allows a next level with ``fill`` times the entries of B."""
    if not isinstance(b, SharedMatrix):
        return fits(fill)
    if b.rows.total(aggregates.n_columns) <= GATHERED_ROWS:  # then each process has all its entries
        fill *= b.nnz / b.local.nnz
    return b.rows.total(int(not fits(fill))) == 0


def _product(b: csr_array, p0: csr_array, p0_rows: csr_array, smoother: Smoother, threads: Threads) -> csr_array:
    """R B P for rows ``p0_rows`` of P0', for some at a time, because R B needs several times the memory of B."""
    omega, prolongation = max(smoother.omega_r, smoother.omega_p), p0
    if omega:
        smoothing = csr_array(eye_array(b.shape[0], dtype=b.dtype, format="csr") - b.dtype.type(omega) * b)
        prolongation = threads.by_rows(lambda rows: csr_array(rows @ p0), smoothing)
    if smoother.omega_r and smoother.omega_p:
        return threads.by_rows(lambda rows: csr_array((rows @ smoothing @ b) @ prolongation), p0_rows)
    # P0' (I - omega B) B P0 = P0' B (I - omega B) P0
    return threads.by_rows(lambda rows: csr_array((rows @ b) @ prolongation), p0_rows)


def normalised(matrix: csr_array) -> tuple[csr_array, Float64]:
    """(S matrix S, S) with a diagonal S > 0 for which the result has about ones on its diagonal.

    If the diagonal entry of a row is small against the others, it stays below one: else the scaled row would be very
    large.
    """
    diagonal = np.abs(matrix.diagonal().astype(np.float64))
    squares = csr_array((np.square(matrix.data, dtype=np.float64), matrix.indices, matrix.indptr), shape=matrix.shape)
    for axis in (0, 1):
        diagonal = np.maximum(diagonal, MIN_DIAGONAL * np.sqrt(np.asarray(squares.sum(axis=axis)).ravel()))
    del squares
    diagonal[diagonal <= TINY] = 1.0
    scale = 1 / np.sqrt(diagonal)
    factors = scale.astype(matrix.dtype)
    data = np.repeat(factors, np.diff(matrix.indptr))
    data *= factors[matrix.indices]
    data *= matrix.data
    result = csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    result.sort_indices()
    return result, scale


def _scaled(aggregates: Aggregates, scale: Float64) -> Aggregates:
    """P0 times the diagonal matrix ``scale``."""
    width = aggregates.basis.shape[1]
    factors = scale.reshape(-1, width)[aggregates.number]
    return aggregates._replace(basis=(aggregates.basis * factors).astype(np.float32))


def _symmetric_inverse(matrix: csr_array, null: Float64) -> Float64:
    """The inverse (n, n) of a symmetric positive semidefinite matrix; eigenvalues near zero count as rounding errors.

    ``null`` (n,) gets the eigenvalue one. M of exactly flat data has further null vectors, which must not be lost.
    """
    unit = null / np.linalg.norm(null)
    values, vectors = np.linalg.eigh(matrix.toarray() + np.outer(unit, unit))
    return np.ascontiguousarray((vectors / np.maximum(values, len(values) * EPS * values[-1])) @ vectors.T)


def _bordered_inverse(matrix: csr_array, null: Float64) -> Float32:
    """G (n, n) such that x = G b solves matrix x = b for the b in its range; ``null`` (n,) is its null vector.

    The left null vector is not needed: unless it is orthogonal to ``null``, the bordered matrix is regular.
    """
    n, unit = matrix.shape[0], null / np.linalg.norm(null)
    bordered = np.zeros((n + 1, n + 1))
    bordered[:n, :n] = matrix.toarray()
    bordered[:n, n] = bordered[n, :n] = unit
    try:
        inverse = np.linalg.inv(bordered)
    except np.linalg.LinAlgError as error:
        raise MultigridError("multigrid: the coarsest matrix is singular") from error
    return np.ascontiguousarray(inverse[:n, :n], dtype=np.float32)
