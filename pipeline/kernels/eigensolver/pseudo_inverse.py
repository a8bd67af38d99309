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

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ...core.errors import InputError
from . import pardiso
from .factorization import NO_ANALYSES, Analyses, Factorization, analyse, analysis_key
from .pardiso import FactorizationError
from .rayleigh_ritz import NullVector, remove_null, without_null

F64 = npt.NDArray[np.float64]


class PseudoInverse(ABC):
    """The operator b -> M^+ b orthogonal to the null vector; a context manager that frees the memory at its end.

    The constructors only analyse the matrix: ``size`` is the memory and work that ``factor`` needs.
    """

    def __init__(self, factorization: Factorization, null: NullVector = None) -> None:
        self._factorization, self._null = factorization, null
        self.size = factorization.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._factorization.release()

    def factor(self) -> None:
        """Allocate the memory and compute the factor. Raises: NotEnoughMemory, FactorizationError."""
        self._factorization.factor()

    @abstractmethod
    def apply(self, rhs: F64) -> F64:
        """M^+ applied to all columns of ``rhs`` (n, m), after projection onto the complement of the null vector."""


class PinnedLU(PseudoInverse):
    """M^+ = A^+ A^+', by the LU of A with row ``pin`` replaced by a unit vector."""

    def __init__(self, factor: csr_array, pin: int, n_threads: int, analyses: Analyses = NO_ANALYSES) -> None:
        """Analyse A (n, n), whose null space is the constant vector; ``pin`` is in its closed class.

        Raises:
            InputError: ``pin`` is not a row number, or its row has no diagonal entry.
            NotEnoughMemory, FactorizationError: the analysis failed.
        """
        _check_pin(factor, pin)
        first, past = factor.indptr[pin : pin + 2]
        columns = factor.indices[first:past]
        self._pinned_row = np.zeros(factor.shape[0])
        self._pinned_row[columns] = factor.data[first:past]
        data = factor.data.copy()
        data[first:past] = columns == pin  # zeros stay in the pattern; it is only one row
        matrix = csr_array((data, factor.indices, factor.indptr), shape=factor.shape)
        key = analysis_key(factor, pardiso.GENERAL, pin, n_threads)
        super().__init__(analyse(matrix, pardiso.GENERAL, n_threads, key, analyses))
        self._pin = pin

    def factor(self) -> None:
        """Compute the factor, then the left null vector u of A: A_p' v = (row p of A)', u = e_p - v."""
        self._factorization.factor()
        left_null = -self._factorization.solve(self._pinned_row[:, None], transposed=True)[:, 0]
        left_null[self._pin] += 1.0
        length = float(np.linalg.norm(left_null))
        # before scaling u is exactly 1 at the pin; a singular A_p makes the other entries very large
        if not np.isfinite(length) or length > 1e-2 / np.finfo(np.float64).eps:
            raise FactorizationError(
                f"I - W pinned at point {self._pin} is singular: the pin must lie in the one closed class of the "
                "neighbour graph; set neighbors.reverse to auto so that there is only one"
            )
        self._left = left_null / length

    def apply(self, rhs: F64) -> F64:
        half = self._factorization.solve(rhs - rhs.mean(axis=0), transposed=True)
        half -= np.outer(self._left @ half, self._left).T  # in Fortran order as the solution
        # row p of A_p only determines the mean of the solution, which is subtracted below
        solution = self._factorization.solve(half, transposed=False)
        solution -= solution.mean(axis=0)
        return solution


class PinnedCholesky(PseudoInverse):
    """M^+ by the Cholesky factor of M with row and column ``pin`` replaced by those of the identity."""

    def __init__(
        self,
        cost_matrix: csr_array,
        pin: int,
        n_threads: int,
        null: NullVector = None,
        analyses: Analyses = NO_ANALYSES,
    ) -> None:
        """Analyse M (n, n), symmetric positive semidefinite, with one null vector.

        Raises:
            InputError: ``pin`` is not a row number, or its row has no diagonal entry.
            NotEnoughMemory, FactorizationError: the analysis failed.
        """
        _check_pin(cost_matrix, pin)
        key = analysis_key(cost_matrix, pardiso.POSITIVE_DEFINITE, pin, n_threads)
        matrix = _identity_at(cost_matrix, pin)
        super().__init__(analyse(matrix, pardiso.POSITIVE_DEFINITE, n_threads, key, analyses), null)
        self._pin = pin

    def factor(self) -> None:
        try:
            self._factorization.factor()
        except FactorizationError as error:
            raise FactorizationError(
                "M without one row and column is not positive definite in float64: its smallest eigenvalues are below "
                "rounding errors (1e-16 of the largest), or the neighbour graph has several closed classes"
            ) from error

    def apply(self, rhs: F64) -> F64:
        rhs = without_null(rhs, self._null)
        rhs[self._pin] = 0.0
        return remove_null(self._factorization.solve(rhs, transposed=False), self._null)


def _check_pin(matrix: csr_array, pin: int) -> None:
    n = matrix.shape[1]
    if not 0 <= pin < n:
        raise InputError(f"the pinned point must be in 0 .. {n - 1}, found {pin}")
    if pin not in matrix.indices[matrix.indptr[pin] : matrix.indptr[pin + 1]]:
        raise InputError(f"the pinned row must have an entry on the diagonal, row {pin} has none")


def _identity_at(matrix: csr_array, pin: int) -> csr_array:
    """Replace row and column ``pin`` by those of the identity; the zeros stay in the pattern."""
    data = matrix.data.copy()
    first, past = matrix.indptr[pin : pin + 2]
    data[matrix.indices == pin] = 0.0
    data[first:past] = matrix.indices[first:past] == pin
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
