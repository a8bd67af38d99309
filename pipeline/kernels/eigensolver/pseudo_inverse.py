"""The pseudo-inverse M^+ of M = A' A on vectors orthogonal to its null vector, from one sparse factorization.

Two classes compute the same operator b -> M^+ b:

- ``PinnedLU`` uses the LU of a square A. It never forms M, so the condition number is not squared, and the factor has
  about half as many entries.
- ``PinnedCholesky`` uses the Cholesky factor of M, for every method of the family. Float64 entries of M have errors
  near 1e-16. For small eigenvalues it is therefore M^+ of a slightly different matrix: accurate enough to build a
  Krylov space, but not to read eigenvalues from it.

Pinning replaces one row by a unit vector, which makes the matrix regular. A shift would have to be far above rounding
errors and far below the requested eigenvalues; from about 100,000 points on no such shift exists.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager

import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Float64
from . import pardiso
from .factorization import Analyses, Factorization, analyse
from .pardiso import FactorizationError
from .rayleigh_ritz import TINY, NullVector, multiply, remove_null, without_null

REFINED, MAX_REFINEMENTS = 1e-2, 20
"""A solve in single precision is refined until the error is predicted to be at most REFINED of the solution: mostly
once. Block Davidson corrects such errors; with more accurate solves it takes no fewer steps."""


MUCH_LARGER = 1e5
"""An LU is computed again with another pin if an entry of the left null vector is so much larger than that at the pin.
The errors of a solve grow with this ratio. It is at most 3e4 on Swiss rolls of 300 to 30,000 points; with 7e9, on
overlapping windows of a pulse wave, no digit was right."""


class PseudoInverse(AbstractContextManager["PseudoInverse"]):
    """The operator b -> M^+ b orthogonal to the null vector; a context manager that frees the memory at its end.

    The constructors only analyse the matrix: ``size`` is the memory and work that ``factor`` needs.
    """

    def __init__(self, factorization: Factorization, null: NullVector = None) -> None:
        self._factorization, self._null = factorization, null
        self.size = factorization.size

    def __exit__(self, *exception: object) -> None:
        self._factorization.release()

    def factor(self) -> None:
        """Allocate the memory and compute the factor. Raises: NotEnoughMemory, FactorizationError."""
        self._factorization.factor()

    @abstractmethod
    def apply(self, rhs: Float64) -> Float64:
        """M^+ applied to all columns of ``rhs`` (n, m), after projection onto the complement of the null vector."""


class PinnedLU(PseudoInverse):
    """M^+ = A^+ A^+', by the LU of A with row ``pin`` replaced by a unit vector.

    With an LU in ``single`` precision each solve is refined, with residuals in double precision, until its error is
    about REFINED.
    """

    def __init__(
        self, factor: csr_array, pin: int, n_threads: int, analyses: Analyses | None = None, single: bool = False
    ) -> None:
        """Analyse A (n, n), whose null space is the constant vector; ``pin`` is a point. A is kept.

        Raises NotEnoughMemory or FactorizationError if the analysis failed.
        """
        matrix = self._pinned(factor, pin)
        super().__init__(analyse(matrix, pardiso.GENERAL, n_threads, analyses, single))
        self._factor, self._n_threads, self._single = factor, n_threads, single

    def _pinned(self, factor: csr_array, pin: int) -> csr_array:
        """Set the pin: A with its row replaced by a unit vector."""
        first, past = factor.indptr[pin : pin + 2]
        columns = factor.indices[first:past]
        self._pin, self._pinned_row = pin, np.zeros(factor.shape[0])
        self._pinned_row[columns] = factor.data[first:past]
        data = factor.data.copy()
        data[first:past] = columns == pin  # zeros stay in the pattern; it is only one row
        return csr_array((data, factor.indices, factor.indptr), shape=factor.shape)

    def factor(self) -> None:
        """Compute the factor, then the left null vector u of A: A_p' v = (row p of A)', u = e_p - v.

        u is 1 at the pin. If it is much larger elsewhere, A_p is nearly singular, and the pin moves to the largest
        entry. Even a nearly singular A_p shows where that is, as in inverse iteration.
        """
        self._factorization.factor()
        solution = self._factorization.solve(self._pinned_row[:, None], True)
        sizes = np.abs(solution[:, 0])
        is_moved = MUCH_LARGER < sizes.max() < np.inf
        if is_moved:
            self._factorization.release()
            matrix = self._pinned(self._factor, int(sizes.argmax()))
            self._factorization = analyse(matrix, pardiso.GENERAL, self._n_threads, single=self._single)
            self._factorization.factor()
        if is_moved or self._single:
            solution = self._solve(self._pinned_row[:, None], transposed=True)
        left_null = -solution[:, 0]
        left_null[self._pin] += 1.0
        length = float(np.linalg.norm(left_null))
        # before scaling u is exactly 1 at the pin; a singular A_p makes the other entries very large
        if not np.isfinite(length) or length > 1e-2 / np.finfo(np.float64).eps:
            raise FactorizationError(
                f"I - W pinned at point {self._pin} is singular to rounding: groups of points have hardly any links to "
                "the others, or the neighbour graph has several closed classes (neighbors.reverse: auto leaves one)"
            )
        self._left = left_null / length

    def apply(self, rhs: Float64) -> Float64:
        half = self._solve(rhs - rhs.mean(axis=0), transposed=True)
        half -= np.outer(self._left @ half, self._left).T  # in Fortran order as the solution
        # row p of A_p only determines the mean of the solution, which is subtracted below
        solution = self._solve(half, transposed=False)
        solution -= solution.mean(axis=0)
        return solution

    def _solve(self, rhs: Float64, transposed: bool) -> Float64:
        """Solve with the pinned A or its transpose for all columns (n, m). Raises FactorizationError."""
        solution = self._factorization.solve(rhs, transposed)
        if not self._single:
            return solution
        previous, first = 1.0, True
        for _ in range(MAX_REFINEMENTS):
            residual = rhs - self._product(self._factor, solution, transposed)
            correction = self._factorization.solve(residual, transposed)
            solution += correction
            lengths = np.maximum(np.linalg.norm(solution, axis=0), TINY)
            size = float((np.linalg.norm(correction, axis=0) / lengths).max())
            if size * size / previous <= REFINED:  # the next correction, if the error decreases as before
                return solution
            if not (first or size < previous / 2):  # the first error of a rough vector can be larger than the vector
                break
            previous, first = size, False
        raise FactorizationError(
            f"an LU of A in single precision is not accurate enough: iterative refinement stopped at errors of "
            f"{size:.0e}; raise eigensolver.max_memory, so that double precision fits"
        )

    def _product(self, factor: csr_array, block: Float64, transposed: bool) -> Float64:
        """The pinned A or its transpose times a block (n, m), from A: their row at the pin differs."""
        pin = self._pin
        image = multiply(factor.T if transposed else factor, block)
        if transposed:
            image -= np.outer(self._pinned_row, block[pin])
            image[pin] += block[pin]
        else:
            image[pin] = block[pin]
        return image


class PinnedCholesky(PseudoInverse):
    """M^+ by the Cholesky factor of M with row and column ``pin`` replaced by those of the identity."""

    def __init__(
        self,
        cost_matrix: csr_array,
        pin: int,
        n_threads: int,
        null: NullVector = None,
        analyses: Analyses | None = None,
    ) -> None:
        """Analyse M (n, n), symmetric positive semidefinite, with one null vector.

        Raises NotEnoughMemory or FactorizationError if the analysis failed.
        """
        matrix = _identity_at(cost_matrix, pin)
        super().__init__(analyse(matrix, pardiso.POSITIVE_DEFINITE, n_threads, analyses), null)
        self._pin = pin

    def factor(self) -> None:
        try:
            self._factorization.factor()
        except FactorizationError as error:
            raise FactorizationError(
                "M without one row and column is not positive definite in float64: its smallest eigenvalues are below "
                "rounding errors (1e-16 of the largest), or the neighbour graph has several closed classes"
            ) from error

    def apply(self, rhs: Float64) -> Float64:
        rhs = without_null(rhs, self._null)
        rhs[self._pin] = 0.0
        return remove_null(self._factorization.solve(rhs, transposed=False), self._null)


def _identity_at(matrix: csr_array, pin: int) -> csr_array:
    """Replace row and column ``pin`` by those of the identity; the zeros stay in the pattern."""
    data = matrix.data.copy()
    first, past = matrix.indptr[pin : pin + 2]
    data[matrix.indices == pin] = 0.0
    data[first:past] = matrix.indices[first:past] == pin
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
