"""Eigenpairs of M = A' A in a subspace, computed without forming M, and bounds on their errors.

Eigenvalues are squares of singular values of A Q. They keep digits that are lost in a float64 product with M: the
relative error of ||A v||^2 is about eps sqrt(lambda_max / lambda), that of v' M v about eps lambda_max / lambda.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgeqrf
from scipy.sparse import csc_array, csr_array

from ...core.arrays import Float64
from .rows import ALL_ROWS, Rows
from .shared_matrix import Matrix, rows_of

NullVector = Float64 | None
"""The null vector of M, a unit vector (n,) without zeros; None for the constant. It is the constant for all methods but
Laplacian eigenmaps: written as a symmetric problem, their null vector is D^1/2 1."""

COLUMNS_AT_ONCE = 8
ROWS_AT_ONCE = 1_000_000
"""Rows of A Q for one QR factorization; the next rows are appended to its triangle (Demmel et al. 2012, TSQR)."""
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
RESIDUAL_FLOOR = 8.0
"""Smallest bound on residuals, in units of eps lambda_max / lambda. Measured: 0.1 to 1.3 for corrected vectors, up to
1.7 for polynomial."""
VECTOR_FLOOR = 100.0
"""Smallest bound on vector errors, in units of eps sqrt(lambda_max / lambda). Measured: 0.01 to 2 for corrected
vectors, up to 80 on curves."""
NULL_FLOOR = 100.0
"""Singular values of A below this times eps times the largest count as zero."""
UNSETTLED = 0.01
"""Largest relative change of an eigenvalue in a step that counts as no change."""
BOUND_STEPS = 12
"""Lanczos steps for the bound on the largest eigenvalue."""


class RitzPairs(NamedTuple):
    """Approximate eigenpairs of M, eigenvalues ascending."""

    values: Float64
    """(m,) ||A v||^2."""
    vectors: Float64
    """(n, m) orthonormal columns."""

    def lowest(self, n_wanted: int) -> "RitzPairs":
        """The first ``n_wanted`` pairs, as views."""
        return RitzPairs(self.values[:n_wanted], self.vectors[:, :n_wanted])


class Growth(NamedTuple):
    """More pairs than requested, which an iteration computes in the same space if the first ones do not suffice."""

    counts: tuple[int, ...]
    """Numbers of pairs, ascending."""
    suffice: Callable[[Float64], bool]
    """Whether no more pairs than the vectors (n, c) are needed."""

    def wanted(self, n_found: int, most: int, vectors: Callable[[], Float64]) -> int:
        """The number of pairs to compute after ``n_found`` of them, at most ``most``; ``n_found`` if these suffice.

        >>> Growth((10, 16), lambda vectors: False).wanted(2, 12, lambda: np.ones((5, 2)))
        10
        """
        larger = [count for count in self.counts if n_found < count <= most]
        return n_found if not larger or self.suffice(vectors()) else larger[0]


NO_GROWTH = Growth((), lambda vectors: True)


class Tolerances(NamedTuple):
    """Bounds on the errors of eigenpairs: tol, or the limit of float64 if that is larger."""

    tol: float
    largest: float = 1.0
    """Upper bound on the eigenvalues of M."""

    def vector_bounds(self, values: Float64) -> Float64:
        """Bounds on the errors of the vectors, (m,)."""
        ratio = self.largest / np.maximum(values, TINY)
        return np.maximum(self.tol, VECTOR_FLOOR * EPS * np.sqrt(ratio))

    def met_by_vectors(self, errors: Float64, values: Float64) -> bool:
        return bool((errors <= self.vector_bounds(values)).all())

    def met_by_residuals(self, residuals: Float64, values: Float64) -> bool:
        """Whether the residuals ||M v - lambda v|| / lambda are small enough."""
        ratio = self.largest / np.maximum(values, TINY)
        return bool((residuals <= np.maximum(self.tol, RESIDUAL_FLOOR * EPS * ratio)).all())

    def settled(self, previous_values: Float64, values: Float64) -> bool:
        """Whether the last step changed no eigenvalue, or one has become zero.

        The eigenvalue of a second null vector decreases step by step, so it would be plausible before it reaches zero.
        """
        unchanged = np.abs(previous_values - values) <= UNSETTLED * values
        return bool(unchanged.all()) or self.has_null_vector(values)

    def has_null_vector(self, values: Float64) -> bool:
        """Whether the lowest eigenvalue is zero within rounding errors of float64, so M has a second null vector."""
        return bool(values[0] <= (NULL_FLOOR * EPS) ** 2 * self.largest)


def largest_eigenvalue(factor: Matrix) -> float:
    """An upper bound on the largest eigenvalue of M = A' A, a few per cent above it (Zhou & Li 2011).

    It is the largest Ritz value after BOUND_STEPS Lanczos steps plus the norm of the last residual.
    """
    rows = rows_of(factor)
    vector = rows.random((factor.shape[1],))
    vector /= np.sqrt(rows.dot(vector, vector))
    previous, length, transposed = np.zeros_like(vector), 0.0, factor.T
    diagonal, off = [], []
    for _ in range(min(BOUND_STEPS, rows.count(vector))):
        image = transposed @ (factor @ vector) - length * previous
        diagonal.append(float(rows.dot(vector, image)))
        image -= diagonal[-1] * vector
        length = float(np.sqrt(rows.dot(image, image)))
        off.append(length)
        if length <= EPS * diagonal[0]:
            break
        previous, vector = vector, image / length
    tridiagonal = np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1] + off[-1])


def rayleigh_ritz(factor: Matrix, basis: Float64, n_wanted: int) -> RitzPairs:
    """The ``n_wanted`` <= k lowest Ritz pairs of M = A' A for A (rows, n), by the singular values of A Q.

    The columns of ``basis`` Q (n, k) are orthonormal and of mean zero.
    """
    triangle = (
        _triangle(factor, basis) if isinstance(factor, csr_array) else factor.rows.triangle(multiply(factor, basis))
    )
    singular, right_vectors = rows_of(factor).agreed(*np.linalg.svd(triangle)[1:])
    lowest = right_vectors[::-1][:n_wanted]
    return RitzPairs(singular[::-1][:n_wanted] ** 2, np.ascontiguousarray(rows_of(factor).times(basis, lowest.T)))


def _triangle(factor: csr_array, basis: Float64) -> Float64:
    """R (k, k) of a QR factorization of A Q, for some rows of A at a time."""
    triangle = np.empty((0, basis.shape[1]))
    for first in range(0, factor.shape[0], ROWS_AT_ONCE):
        image = multiply(factor if factor.shape[0] <= ROWS_AT_ONCE else factor[first : first + ROWS_AT_ONCE], basis)
        stacked = np.asfortranarray(np.vstack([triangle, image])) if first else image
        # qr of scipy and numpy would copy the tall matrix several times; only the small triangle is needed
        triangle = np.triu(dgeqrf(stacked, overwrite_a=True)[0][: basis.shape[1]])
    return triangle


def multiply(matrix: Matrix | csc_array, block: Float64) -> Float64:
    """matrix @ block for a block (n, k) in any memory order; a few columns at a time, as scipy copies to C order."""
    out = np.empty((matrix.shape[0], block.shape[1]), order="F")
    for first in range(0, block.shape[1], COLUMNS_AT_ONCE):
        part = np.ascontiguousarray(block[:, first : first + COLUMNS_AT_ONCE])
        out[:, first : first + COLUMNS_AT_ONCE] = matrix @ part
    return out


def residual_vectors(factor: Matrix, pairs: RitzPairs) -> Float64:
    """M v - lambda v, (n, m), computed as A' (A v) - lambda v."""
    residuals = multiply(factor.T, multiply(factor, pairs.vectors))
    residuals -= pairs.vectors * pairs.values
    return residuals


def residual_norms(factor: Matrix, pairs: RitzPairs) -> Float64:
    """||M v - lambda v|| / lambda, (m,)."""
    return rows_of(factor).lengths(residual_vectors(factor, pairs)) / np.maximum(pairs.values, TINY)


def fix_signs(vectors: Float64, rows: Rows = ALL_ROWS) -> Float64:
    """Multiply columns by -1 where needed, so that the first entry of largest absolute value in each is positive.

    >>> fix_signs(np.array([[1.0, 2.0], [-3.0, 2.0]]))
    array([[-1.,  2.],
           [ 3.,  2.]])
    """
    return vectors * np.where(rows.largest(vectors) < 0.0, -1.0, 1.0)


def without_null(block: Float64, null: NullVector, rows: Rows = ALL_ROWS) -> Float64:
    """The block (n, m) projected onto the complement of the null vector."""
    if null is None:
        return np.asarray(block - rows.mean(block))
    return np.asarray(block - np.outer(null, rows.dot(null, block)))


def remove_null(block: Float64, null: NullVector) -> Float64:
    """As ``without_null``, but in place."""
    block -= block.mean(axis=0) if null is None else np.outer(null, null @ block)
    return block


def complement(n: int, null: NullVector) -> Float64:
    """An orthonormal basis (n, n - 1) of the complement of the null vector, in Fortran order."""
    if null is None:
        return np.asfortranarray(scipy.linalg.helmert(n).T)
    return np.asfortranarray(scipy.linalg.qr(null[:, None], mode="full")[0][:, 1:])
