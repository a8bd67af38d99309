"""Multigrid cycles for A x = b and A' x = b, A = I - W of one component: smoothed aggregation, without a factor.

A behaves like a second-order elliptic operator, M = A' A like a fourth-order one, so the hierarchy is made for A. The
near-null vectors of A are the constant and the coordinates of the points, because the weights reconstruct each point
from its neighbours. Vanek, Mandel & Brezina 1996 (Computing 56): smoothed aggregation. Brezina, Manteuffel, McCormick,
Ruge & Sanders 2010 (SIAM J. Sci. Comput. 32): for nonsymmetric matrices.

On each level P = (I - omega A) P0 and R = P0' (I - omega A), where P0 has the local bases of the aggregates. Both are
applied as products with A, so only P0 is stored. The hierarchy of A' is the same with A' in place of A on each level.
All numbers are float32: the outer iteration corrects the rounding errors. The bytes of a result do not depend on the
number of threads. Loads numba.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .aggregation import Aggregates, find_aggregates, find_bases
from .pardiso import FactorizationError
from .threads import Threads

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

COARSEST_ROWS = 1500
"""Rows of the coarsest level, which is solved densely."""
SLOWEST_COARSENING = 0.7
"""A next level with more than this share of the rows is no hierarchy: the rows have too few neighbours."""
SMOOTHED_BASIS = 4 / 3
"""omega times the largest absolute eigenvalue of A (Vanek et al. 1996)."""
ARNOLDI_STEPS = 10
"""Steps for the spectrum of a level."""
SMOOTHED = 0.1
"""The smoother damps eigenvalues whose real parts are above this share of the largest absolute value."""
MIN_DIAGONAL = 0.7
"""Smallest diagonal entry that scales a row, relative to the norm of the row and of the column."""
MIN_VARIANCE = 0.9
"""Share of the variance of an aggregate that its local directions must hold to be used."""
NODES = {1: 24, 2: 10, 3: 20, 4: 36}
"""Points in an aggregate of the finest level, by the vectors q of its basis."""
COARSE_NODES = 6
"""Nodes in an aggregate of the other levels."""
TINY = float(np.finfo(np.float32).tiny)


class MultigridError(FactorizationError):
    """Multigrid does not work for this A, so another method has to be used."""


class Smoother(NamedTuple):
    """One step is x <- x + (first + second A) r, which multiplies errors by 1 - first A - second A^2.

    The least squares of this polynomial on the Ritz values of a few Arnoldi steps. The polynomial of two GMRES steps
    would be as good on most of the spectrum, but amplifies isolated eigenvalues at its end.
    """

    first: float
    second: float
    omega: float
    """Of P and R."""


class Level(NamedTuple):
    """A matrix of the hierarchy."""

    matrix: csr_array
    """(n, n), float32, with ones on the diagonal."""
    transposed: csr_array
    smoother: Smoother
    aggregates: Aggregates


class Hierarchy:
    """W-cycles for blocks of right-hand sides."""

    def __init__(self, factor: csr_array, candidates: npt.NDArray[np.floating], threads: Threads, seed: int) -> None:
        """Set up the hierarchy.

        Args:
            factor: A (n, n), float64, with ones on the diagonal and the constant as null vector.
            candidates: (n, c) further vectors that A nearly maps to zero, such as the coordinates of the points; c may
                be 0.
            threads: threads of the setup and of the cycles.
            seed: seed of the random vectors from which smoothers are chosen.

        Raises:
            MultigridError: a level has hardly fewer rows than the one before.
        """
        self._threads, self.levels = threads, list[Level]()
        matrix = factor.astype(np.float32)
        known = np.ones((factor.shape[0], 1 + candidates.shape[1]))
        if candidates.size:
            known[:, 1:] = candidates
        width, node_rows = _local_directions(matrix, known, threads) + 1, 1
        known, max_nodes = known if width > 1 else known[:, :1], NODES[width]
        while matrix.shape[0] > min(COARSEST_ROWS, factor.shape[0] // 4):
            found = find_bases(*find_aggregates(matrix, node_rows, max_nodes, width), known, width, threads)
            if found.aggregates.n_columns > SLOWEST_COARSENING * matrix.shape[0]:
                raise MultigridError(
                    f"multigrid: a level of {matrix.shape[0]:,} rows has {found.aggregates.n_columns:,} coarse rows, "
                    "so its points have too few neighbours"
                )
            level = Level(matrix, csr_array(matrix.T.tocsr()), _smoother(matrix, seed), found.aggregates)
            matrix, scale = _normalised(_coarse_matrix(level, threads))
            self.levels.append(level._replace(aggregates=_scaled(level.aggregates, scale)))
            known = found.candidates / scale[:, None]
            node_rows, max_nodes = width, COARSE_NODES
        inverse = _bordered_inverse(matrix, known[:, 0])
        self._coarsest, self._coarsest_transposed = csr_array(inverse), csr_array(np.ascontiguousarray(inverse.T))

    @property
    def complexity(self) -> float:
        """Entries of all levels divided by those of the first."""
        return sum(level.matrix.nnz for level in self.levels) / self.levels[0].matrix.nnz

    def cycle(self, rhs: F32, *, transposed: bool, depth: int = 0) -> F32:
        """One W-cycle for A x = rhs (n, m), or A' x = rhs, from zero."""
        threads = self._threads
        if depth == len(self.levels):
            inverse = self._coarsest_transposed if transposed else self._coarsest
            return threads.combine(inverse, rhs, rhs, np.empty_like(rhs), (1.0, 0.0, 0.0))
        level = self.levels[depth]
        a, (first, second, omega) = level.transposed if transposed else level.matrix, level.smoother
        x = threads.combine(a, rhs, rhs, np.empty_like(rhs), (second, first, 0.0))
        residual, spare = np.empty_like(rhs), np.empty_like(rhs)
        for _ in range(1 if depth == 0 else 2):
            threads.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
            threads.combine(a, residual, residual, spare, (-omega, 1.0, 0.0))
            coarse = self.cycle(level.aggregates.restrict(spare, threads), transposed=transposed, depth=depth + 1)
            correction = level.aggregates.prolong(coarse, threads)
            x += correction
            threads.combine(a, correction, correction, x, (-omega, 0.0, 1.0))
        threads.combine(a, x, rhs, residual, (-1.0, 1.0, 0.0))
        threads.combine(a, residual, residual, x, (second, first, 1.0))
        return x


def _local_directions(matrix: csr_array, known: F64, threads: Threads) -> int:
    """Directions of the near-null vectors in an aggregate: one to three, or 0 if they vary in more."""
    if known.shape[1] == 1:
        return 0
    found = find_bases(*find_aggregates(matrix, 1, NODES[3], 1), known, 1, threads)
    shares = np.average(found.shares, axis=0, weights=np.diff(found.aggregates.starts))
    enough = np.flatnonzero(shares >= MIN_VARIANCE)
    return int(enough[0]) + 1 if enough.size else 0


def _smoother(matrix: csr_array, seed: int) -> Smoother:
    """Arnoldi's method from a random vector."""
    n_steps = min(ARNOLDI_STEPS, matrix.shape[0] - 1)
    vectors = np.zeros((matrix.shape[0], n_steps + 1), np.float32, order="F")
    hessenberg = np.zeros((n_steps + 1, n_steps))
    start = np.random.default_rng(seed).standard_normal(matrix.shape[0])
    vectors[:, 0] = start / np.linalg.norm(start)
    for step in range(n_steps):
        image = matrix @ vectors[:, step]
        for earlier in range(step + 1):
            hessenberg[earlier, step] = np.einsum("i,i->", vectors[:, earlier], image, dtype=np.float64)
            image -= np.float32(hessenberg[earlier, step]) * vectors[:, earlier]
        hessenberg[step + 1, step] = np.sqrt(np.einsum("i,i->", image, image, dtype=np.float64))
        vectors[:, step + 1] = image / max(hessenberg[step + 1, step], TINY)
    ritz_values = np.linalg.eigvals(hessenberg[:n_steps])
    radius = float(np.abs(ritz_values).max())
    z = ritz_values[ritz_values.real > SMOOTHED * radius]
    powers = np.column_stack([z, z**2])
    first, second = np.linalg.lstsq(np.vstack([powers.real, powers.imag]), np.repeat([1.0, 0.0], len(z)))[0]
    return Smoother(float(first), float(second), SMOOTHED_BASIS / radius)


def _coarse_matrix(level: Level, threads: Threads) -> csr_array:
    """R A P."""
    p0 = level.aggregates.matrix()
    omega = np.float32(level.smoother.omega)
    p = p0 - omega * threads.product(level.matrix, p0)
    r = p0 - omega * threads.product(level.transposed, p0)
    return threads.product(csr_array(r.T.tocsr()), threads.product(level.matrix, csr_array(p)))


def _normalised(matrix: csr_array) -> tuple[csr_array, F64]:
    """(S matrix S, S) with a diagonal S > 0 for which the result has about ones on its diagonal.

    A row whose diagonal entry is small against the others gets less, or the scaled row would be very large.
    """
    diagonal = np.abs(matrix.diagonal().astype(np.float64))
    squares = csr_array((matrix.data.astype(np.float64) ** 2, matrix.indices, matrix.indptr), shape=matrix.shape)
    for axis in (0, 1):
        diagonal = np.maximum(diagonal, MIN_DIAGONAL * np.sqrt(np.asarray(squares.sum(axis=axis)).ravel()))
    diagonal[diagonal <= TINY] = 1.0
    scale = 1 / np.sqrt(diagonal)
    rows = np.repeat(scale, np.diff(matrix.indptr))
    data = (matrix.data * rows * scale[matrix.indices]).astype(np.float32)
    result = csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    result.sort_indices()
    return result, scale


def _scaled(aggregates: Aggregates, scale: F64) -> Aggregates:
    """P0 times the diagonal matrix ``scale``."""
    width = aggregates.basis.shape[1]
    factors = scale.reshape(-1, width)[aggregates.number]
    return aggregates._replace(basis=(aggregates.basis * factors).astype(np.float32))


def _bordered_inverse(matrix: csr_array, null: F64) -> F32:
    """G (n, n) such that x = G b solves matrix x = b for the b in its range; ``null`` (n,) is its null vector.

    The left null vector is not known, but it is not orthogonal to ``null``: the bordered matrix is regular.
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
