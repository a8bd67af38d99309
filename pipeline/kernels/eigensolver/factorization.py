"""The inverse of M on vectors of mean zero, from one sparse factorization.

Two ways to the same operator b -> M^+ b, for M = A' A whose null space is the constant vector:

- ``PinnedLU``: LU of A (square), never forming M, so nothing is squared and half the fill suffices.
- ``PinnedCholesky``: Cholesky of M, for every method of the family. Float64 entries of M carry errors near
  1e-16, so for small eigenvalues it is M^+ of a slightly different matrix: good for building a Krylov space, not for
  reading eigenvalues from it.

Pinning (one row replaced by a unit vector) makes the matrices regular; a shift would have to be far above rounding and
far below the wanted eigenvalues, and there is no such place from about 100,000 points on. PARDISO factors where MKL is
installed, SciPy's SuperLU elsewhere.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from ...core.errors import ConfigError, InputError, NotEnoughMemory
from . import pardiso
from .null_vector import NullVector, off_null, take_off_null
from .pardiso import FactorizationError, FactorSize

F64 = npt.NDArray[np.float64]

SUPERLU_FILL = 30
"""Entries per entry of the matrix that SuperLU reserves before it starts; its integers have 32 bits."""


class Factorization(Protocol):
    """A sparse matrix that was analysed; ``factor`` once, ``solve`` many times, ``release``."""

    size: FactorSize

    def factor(self) -> None:
        """Raises: NotEnoughMemory, FactorizationError."""

    def solve(self, right: F64, transposed: bool) -> F64:
        """All columns of ``right`` (n, m) at once."""

    def release(self) -> None:
        """Give the memory back."""


class SuperLU:
    """SciPy's SuperLU behind the same interface. It has no analysis: ``size`` is what it reserves at first."""

    def __init__(self, matrix: csr_array) -> None:
        """Take a square CSR matrix, float64 (n, n), whole even where it is symmetric."""
        entries = SUPERLU_FILL * matrix.nnz
        self.size = FactorSize(entries, 12 * entries, float("nan"))
        self._matrix: csr_array | None = matrix
        self._factor: Any = None

    def factor(self) -> None:
        """Raises: NotEnoughMemory, also where its 32-bit integers end; FactorizationError for a singular matrix."""
        assert self._matrix is not None
        try:
            self._factor = splu(self._matrix.tocsc())
        except MemoryError as error:
            raise NotEnoughMemory(
                f"SuperLU could not reserve {self.size.nnz:,} entries for a matrix of {self._matrix.shape[0]:,} rows "
                "(its integers have 32 bits); install pypardiso, or set eigensolver.method to polynomial"
            ) from error
        except RuntimeError as error:
            raise FactorizationError(f"SuperLU on {self._matrix.shape[0]:,} rows: {error}") from error

    def solve(self, right: F64, transposed: bool) -> F64:
        """All columns of ``right`` (n, m) at once."""
        solution: F64 = self._factor.solve(np.asarray(right), "T" if transposed else "N")
        return solution

    def release(self) -> None:
        """Give the memory back."""
        self._matrix = self._factor = None


def analyse(matrix: csr_array, matrix_type: int, n_threads: int) -> Factorization:
    """PARDISO or, where MKL is missing, SuperLU, for a whole square CSR matrix (n, n) with sorted rows."""
    if not pardiso.is_available():
        return SuperLU(matrix)
    return pardiso.Pardiso(matrix if matrix_type == pardiso.GENERAL else _upper(matrix), matrix_type, n_threads)


class PseudoInverse(ABC):
    """b -> M^+ b off the null vector; a context manager that gives the memory back at its end.

    The constructors only analyse: ``size`` says what ``factor`` will take.
    """

    sigma = 0.0
    """What ``apply`` inverts is M - sigma I."""

    def __init__(self, factorization: Factorization, null: NullVector = None) -> None:
        self._factorization, self._null = factorization, null
        self.size = factorization.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._factorization.release()

    def factor(self) -> None:
        """Commit the memory and factor. Raises: NotEnoughMemory, FactorizationError."""
        self._factorization.factor()

    @abstractmethod
    def apply(self, right: F64) -> F64:
        """M^+ applied to all columns of ``right`` (n, m), the null vector taken off first."""


class PinnedLU(PseudoInverse):
    """M^+ = A^+ A^+' through the LU of A with row ``pin`` replaced by a unit vector."""

    def __init__(self, factor: csr_array, pin: int, n_threads: int) -> None:
        """Analyse A (n, n), whose null space is the constant vector; ``pin`` lies in its closed class.

        Raises: InputError for a pin that is no row, or has no diagonal entry; NotEnoughMemory; FactorizationError.
        """
        _check_pin(factor, pin)
        first, past = factor.indptr[pin : pin + 2]
        columns = factor.indices[first:past]
        self._pinned_row = np.zeros(factor.shape[0])
        self._pinned_row[columns] = factor.data[first:past]
        data = factor.data.copy()
        data[first:past] = columns == pin  # the zeros stay in the pattern: one row of n
        matrix = csr_array((data, factor.indices, factor.indptr), shape=factor.shape)
        super().__init__(analyse(matrix, pardiso.GENERAL, n_threads))
        self._pin = pin

    def factor(self) -> None:
        """Factor, and solve once for the left null vector u of A: A_p' v = (row p of A)', u = e_p - v.

        Raises: NotEnoughMemory; FactorizationError also where A_p is singular, because the pin lies outside the closed
        class or because there are several.
        """
        self._factorization.factor()
        left = -self._factorization.solve(self._pinned_row[:, None], transposed=True)[:, 0]
        left[self._pin] += 1.0
        length = float(np.linalg.norm(left))
        # u is exactly 1 at the pin before it is scaled; a singular A_p blows up all the rest
        if not np.isfinite(length) or length > 1e-2 / np.finfo(np.float64).eps:
            raise FactorizationError(
                f"I - W pinned at point {self._pin} is singular: the pin must lie in the one closed class of the "
                "neighbour graph; set neighbors.reverse to auto so that there is only one"
            )
        self._left = left / length

    def apply(self, right: F64) -> F64:
        """M^+ applied to all columns of ``right`` (n, m), the null vector taken off first."""
        half = self._factorization.solve(right - right.mean(axis=0), transposed=True)
        half -= np.outer(self._left, self._left @ half)
        # row p of A_p only sets the constant that is added to the solution, and the mean takes that off
        solution = self._factorization.solve(half, transposed=False)
        solution -= solution.mean(axis=0)
        return solution


class PinnedCholesky(PseudoInverse):
    """M^+ through the Cholesky factor of M with row and column ``pin`` replaced by those of the identity."""

    def __init__(self, cost_matrix: csr_array, pin: int, n_threads: int, null: NullVector = None) -> None:
        """Analyse M (n, n), symmetric positive semidefinite, with one null vector.

        Raises: InputError for a pin that is no row, or has no diagonal entry; NotEnoughMemory; FactorizationError.
        """
        _check_pin(cost_matrix, pin)
        super().__init__(analyse(_identity_at(cost_matrix, pin), pardiso.POSITIVE_DEFINITE, n_threads), null)
        self._pin = pin

    def factor(self) -> None:
        """Raises: NotEnoughMemory; FactorizationError where M is not positive definite, in truth or by rounding."""
        try:
            self._factorization.factor()
        except FactorizationError as error:
            raise FactorizationError(
                "M without one row and column is not positive definite in float64: its least eigenvalues are below "
                "rounding (1e-16 of the largest), or the neighbour graph has several closed classes; set "
                "eigensolver.method to factored or polynomial, neighbors.reverse to auto"
            ) from error

    def apply(self, right: F64) -> F64:
        """M^+ applied to all columns of ``right`` (n, m), the null vector taken off first."""
        right = off_null(right, self._null)
        right[self._pin] = 0.0
        return take_off_null(self._factorization.solve(right, transposed=False), self._null)


class ShiftedFactor(PseudoInverse):
    """(M - sigma I)^-1 on vectors of mean zero, for a shift given by hand; sigma below the wanted eigenvalues."""

    def __init__(self, cost_matrix: csr_array, sigma: float, n_threads: int, null: NullVector = None) -> None:
        """Analyse M - sigma I (n, n).

        Raises: NotEnoughMemory, FactorizationError.
        """
        self.sigma = sigma
        shifted = cost_matrix - sigma * eye_array(cost_matrix.shape[0], format="csr")
        super().__init__(analyse(canonical(shifted), pardiso.SYMMETRIC, n_threads), null)

    def factor(self) -> None:
        """Raises: NotEnoughMemory, FactorizationError; ConfigError where eigenvalues lie below sigma."""
        self._factorization.factor()
        if not isinstance(self._factorization, pardiso.Pardiso):
            return
        below = self._factorization.n_negative - int(self.sigma > 0.0)  # the null vector lies below a positive shift
        if below > 0:
            raise ConfigError(
                f"eigensolver.sigma is {self.sigma:g}, and {below} wanted eigenvalues lie below it; a shift must be "
                "below them all: set it to 0, which pins one point instead of shifting"
            )

    def apply(self, right: F64) -> F64:
        """(M - sigma I)^-1 applied to all columns of ``right`` (n, m), the null vector taken off first."""
        solution = self._factorization.solve(off_null(right, self._null), transposed=False)
        return take_off_null(solution, self._null)


def canonical(matrix: csr_array) -> csr_array:
    """The same matrix in float64, entries sorted in each row and none twice; a copy only where it must be one."""
    matrix = csr_array(matrix).astype(np.float64, copy=False)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _check_pin(matrix: csr_array, pin: int) -> None:
    n = matrix.shape[1]
    if not 0 <= pin < n:
        raise InputError(f"the pinned point must be one of 0 .. {n - 1}, found {pin}")
    if pin not in matrix.indices[matrix.indptr[pin] : matrix.indptr[pin + 1]]:
        raise InputError(f"the pinned row must have an entry on the diagonal, row {pin} has none")


def _row_numbers(matrix: csr_array) -> npt.NDArray[Any]:
    return np.repeat(np.arange(matrix.shape[0], dtype=matrix.indices.dtype), np.diff(matrix.indptr))


def _upper(matrix: csr_array) -> csr_array:
    """The upper triangle; scipy's triu goes through coordinates, with three times the memory."""
    keep = matrix.indices >= _row_numbers(matrix)
    counts = np.concatenate([[0], np.cumsum(np.add.reduceat(keep, matrix.indptr[:-1], dtype=np.int64))])
    indptr = counts.astype(matrix.indptr.dtype)
    return csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)


def _identity_at(matrix: csr_array, pin: int) -> csr_array:
    """Row and column ``pin`` as those of the identity; the zeros stay in the pattern."""
    data = matrix.data.copy()
    first, past = matrix.indptr[pin : pin + 2]
    data[matrix.indices == pin] = 0.0
    data[first:past] = matrix.indices[first:past] == pin
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
