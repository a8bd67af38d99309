"""Multigrid cycles for B x = b and B' x = b, B = A or M of one component: smoothed aggregation, without a factor.

A = I - W behaves like a second-order elliptic operator, M = A' A like a fourth-order one. The near-null vectors of both
are the constant and the coordinates of the points, because the weights reconstruct each point from its neighbours.
Vanek, Mandel & Brezina 1996 (Computing 56): smoothed aggregation. Brezina, Manteuffel, McCormick, Ruge & Sanders 2010
(SIAM J. Sci. Comput. 32): for nonsymmetric matrices.

On each level P = (I - omega B) P0 and R = P0' (I - omega B); omega is 0 on levels with many entries (MOST_FILL). P0 has
the local bases of the aggregates. A cycle applies P and R as products with B, so only P0 is stored. The hierarchy of B'
is the same with B' in place of B on each level.
Numbers are float32 for A, because the outer iteration corrects rounding errors, and float64 for M, whose small
eigenvalues are below the rounding errors of float32. The bytes of a result do not depend on the number of threads.
Loads numba.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, eye_array

from ...core.arrays import Float32, Float64, Floats
from ...core.machine import return_freed_memory
from .aggregation import Aggregates, find_aggregates, find_bases
from .device import Device, DeviceAggregates, Operations
from .pardiso import FactorizationError
from .threads import Threads

COARSEST_ROWS = 1500
"""Rows of the coarsest level, which is solved densely."""
SLOWEST_COARSENING = 0.7
"""The setup fails if the next level has more than this share of the rows: they have too few neighbours."""
SMOOTHED_BASIS = 4 / 3
"""omega times the largest absolute eigenvalue of B (Vanek et al. 1996)."""
ARNOLDI_STEPS = 10
"""Steps for the spectrum of a level."""
SMOOTHED, SMOOTHED_SYMMETRIC = 0.1, 0.05
"""The smoother damps eigenvalues whose real parts are above this share of the largest absolute value."""
MIN_DIAGONAL = 0.7
"""Smallest diagonal entry that scales a row, relative to the norm of the row and of the column."""
MIN_VARIANCE = 0.9
"""Share of the variance of an aggregate that its local directions must hold to be used."""
NODES = {1: 24, 2: 10, 3: 20, 4: 36}
"""Points in an aggregate of the finest level, by the vectors q of its basis."""
COARSE_NODES = {1: 12, 2: 6, 3: 6, 4: 12}
"""Nodes in an aggregate of the other levels. Coarse rows of three and more dimensions have hundreds of entries, so few
levels take less time; on surfaces more levels need fewer steps."""
MOST_FILL = 2
"""If a level has more than MOST_FILL times the entries of the finest, P = P0, because R B P would take long. Points of
many dimensions have such levels: delay vectors of speech (1,750,000 x 32) 3.5 times the entries on 67,579 rows. The
setup takes half a minute there. With a smoothed P it had not ended after seven minutes."""
TINY = float(np.finfo(np.float32).tiny)
EPS = float(np.finfo(np.float64).eps)


class MultigridError(FactorizationError):
    """Multigrid does not work for this A, so another method has to be used."""


class Smoother(NamedTuple):
    """One step is x <- x + (first + second B) r, which multiplies errors by 1 - first B - second B^2."""

    steps: tuple[tuple[float, float], ...]
    """first and second of each step."""
    omega: float
    """Of P and R; 0 if they are not smoothed."""


class Level(NamedTuple):
    """A matrix of the hierarchy."""

    matrix: csr_array
    """(n, n), with about ones on the diagonal."""
    transposed: csr_array
    smoother: Smoother
    aggregates: Aggregates | DeviceAggregates
    """P0."""


class Hierarchy:
    """V-cycles for blocks of right-hand sides."""

    def __init__(self, matrix: csr_array, known: Float64, threads: Threads, seed: int, *, symmetric: bool) -> None:
        """Set up the hierarchy.

        Args:
            matrix: B (n, n), float32 or float64, with about ones on the diagonal.
            known: (n, 1 + c) the null vector of B, and vectors that B nearly maps to zero; c may be 0.
            threads: threads of the setup and of the cycles.
            seed: seed of the random vectors from which smoothers are chosen.
            symmetric: whether B is symmetric and positive semidefinite.

        Raises:
            MultigridError: a level has hardly fewer rows than the one before.
        """
        self._operations: Operations = threads
        levels = list[Level]()
        least_rows = min(COARSEST_ROWS, matrix.shape[0] // 4)
        width, node_rows = _local_directions(matrix, known, threads) + 1, 1
        known, max_nodes = known if width > 1 else known[:, :1], NODES[width]
        while matrix.shape[0] > least_rows:
            number, starts, rows = find_aggregates(matrix, node_rows, max_nodes, width)
            if np.diff(starts).min() < width:
                raise MultigridError(f"multigrid: a group of {np.diff(starts).min()} points has no neighbours outside")
            found = find_bases(number, starts, rows, known, width, threads)
            if found.aggregates.n_columns > SLOWEST_COARSENING * matrix.shape[0]:
                raise MultigridError(
                    f"multigrid: a level of {matrix.shape[0]:,} rows has {found.aggregates.n_columns:,} coarse rows, "
                    "so its points have too few neighbours"
                )
            known = found.candidates
            smoother = _smoother(matrix, seed, symmetric=symmetric)
            if levels and matrix.nnz > MOST_FILL * levels[0].matrix.nnz:
                smoother = smoother._replace(omega=0.0)
            level = Level(matrix, matrix, smoother, found.aggregates)
            matrix, scale = normalised(_coarse_matrix(level, threads))
            levels.append(level._replace(aggregates=_scaled(found.aggregates, scale)))
            known /= scale[:, None]
            node_rows, max_nodes = width, COARSE_NODES[width]
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
        if depth == len(self.levels):
            inverse = self._coarsest_transposed if transposed else self._coarsest
            return operations.combine(inverse, rhs, rhs, np.empty_like(rhs), (1.0, 0.0, 0.0))
        level = self.levels[depth]
        a, (smoothing, omega) = level.transposed if transposed else level.matrix, level.smoother
        first, second = smoothing[0]
        x = operations.combine(a, rhs, rhs, np.empty_like(rhs), (second, first, 0.0))
        residual = np.empty_like(rhs)
        for step in smoothing[1:]:
            self._smooth(a, rhs, x, residual, step)
        operations.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
        smoothed = residual
        if omega:
            smoothed = operations.combine(a, residual, residual, np.empty_like(rhs), (-omega, 1.0, 0.0))
        coarse = self.cycle(level.aggregates.restrict(smoothed), transposed=transposed, depth=depth + 1)
        del smoothed
        correction = level.aggregates.prolong(coarse)
        x += correction
        if omega:
            operations.combine(a, correction, correction, x, (-omega, 0.0, 1.0))
        for step in smoothing:
            self._smooth(a, rhs, x, residual, step)
        return x

    def _smooth(self, a: csr_array, rhs: Floats, x: Floats, residual: Floats, step: tuple[float, float]) -> None:
        """A step of the smoother on ``x``; ``residual`` is overwritten."""
        self._operations.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
        self._operations.combine(a, residual, residual, x, (step[1], step[0], 1.0))


def _with_transposed(level: Level) -> Level:
    return level._replace(transposed=csr_array(level.matrix.T.tocsr()))


def _bytes(level: Level) -> int:
    matrices = [level.matrix] if level.transposed is level.matrix else [level.matrix, level.transposed]
    arrays = [array for matrix in matrices for array in (matrix.data, matrix.indices, matrix.indptr)]
    return sum(int(array.nbytes) for array in (*arrays, *level.aggregates[:4]))


def _local_directions(matrix: csr_array, known: Float64, threads: Threads) -> int:
    """Directions of the near-null vectors in an aggregate: one to three, or 0 if they vary in more."""
    if known.shape[1] == 1:
        return 0
    found = find_bases(*find_aggregates(matrix, 1, NODES[3], 1), known, 1, threads)
    shares = np.average(found.shares, axis=0, weights=np.diff(found.aggregates.starts))
    enough = np.flatnonzero(shares >= MIN_VARIANCE)
    return int(enough[0]) + 1 if enough.size else 0


def _smoother(matrix: csr_array, seed: int, *, symmetric: bool) -> Smoother:
    """For a symmetric matrix a Chebyshev polynomial of degree four, in two steps.

    Otherwise the least squares of one step on the Ritz values of a few Arnoldi steps. The polynomial of two GMRES steps
    would be as good on most of the spectrum, but amplifies isolated eigenvalues at its end.
    """
    hessenberg = _arnoldi(matrix, seed)
    ritz_values = np.linalg.eigvals(hessenberg[:-1])
    radius = float(np.abs(ritz_values).max())
    if symmetric:
        high = radius + float(hessenberg[-1, -1])  # a bound on the spectrum (Zhou & Li 2011)
        middle, half = high * (1 + SMOOTHED_SYMMETRIC) / 2, high * (1 - SMOOTHED_SYMMETRIC) / 2
        inner, outer = half * np.cos(3 * np.pi / 8), half * np.cos(np.pi / 8)
        products = middle**2 - outer**2, middle**2 - inner**2
        steps = tuple((float(2 * middle / product), float(-1 / product)) for product in products)
        return Smoother(steps, SMOOTHED_BASIS / high)
    z = ritz_values[ritz_values.real > SMOOTHED * radius]
    powers = np.column_stack([z, z**2])
    first, second = np.linalg.lstsq(np.vstack([powers.real, powers.imag]), np.repeat([1.0, 0.0], len(z)))[0]
    return Smoother(((float(first), float(second)),), SMOOTHED_BASIS / radius)


def _arnoldi(matrix: csr_array, seed: int) -> Float64:
    """The Hessenberg matrix (m + 1, m) of a few Arnoldi steps from a random vector."""
    n_steps = min(ARNOLDI_STEPS, matrix.shape[0] - 1)
    vectors = np.zeros((matrix.shape[0], n_steps + 1), matrix.dtype, order="F")
    hessenberg = np.zeros((n_steps + 1, n_steps))
    start = np.random.default_rng(seed).standard_normal(matrix.shape[0])
    vectors[:, 0] = start / np.linalg.norm(start)
    for step in range(n_steps):
        image = matrix @ vectors[:, step]
        for earlier in range(step + 1):
            hessenberg[earlier, step] = np.einsum("i,i->", vectors[:, earlier], image, dtype=np.float64)
            image -= matrix.dtype.type(hessenberg[earlier, step]) * vectors[:, earlier]
        hessenberg[step + 1, step] = np.sqrt(np.einsum("i,i->", image, image, dtype=np.float64))
        vectors[:, step + 1] = image / max(hessenberg[step + 1, step], TINY)
    return hessenberg


def _coarse_matrix(level: Level, threads: Threads) -> csr_array:
    """R B P, for some aggregates at a time, because R B needs several times the memory of B."""
    b, p0, omega = level.matrix, level.aggregates.matrix(), level.smoother.omega
    if not omega:
        return threads.by_rows(lambda restriction: csr_array((restriction @ b) @ p0), csr_array(p0.T.tocsr()))
    smoothing = csr_array(eye_array(b.shape[0], dtype=b.dtype, format="csr") - b.dtype.type(omega) * b)
    prolongation = threads.by_rows(lambda rows: csr_array(rows @ p0), smoothing)
    return threads.by_rows(
        lambda restriction: csr_array((restriction @ smoothing @ b) @ prolongation), csr_array(p0.T.tocsr())
    )


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
