"""SciPy's SuperLU: the sparse factorization for machines without MKL."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu

from ...core.errors import NotEnoughMemory
from .pardiso import FactorizationError, FactorSize

F64 = npt.NDArray[np.float64]

SUPERLU_FILL = 30
"""SuperLU first reserves this many entries for each entry of the matrix; it counts them with 32-bit integers."""


class SuperLU:
    """SciPy's SuperLU as a ``Factorization``. It has no analysis; ``size`` is the memory that it first reserves."""

    def __init__(self, matrix: csr_array) -> None:
        """Store a square CSR matrix, float64 (n, n); a symmetric matrix must have both triangles."""
        entries = SUPERLU_FILL * matrix.nnz
        self.size = FactorSize(entries, 12 * entries, float("nan"))
        self._matrix: csr_array | None = matrix
        self._factor: Any = None

    def factor(self) -> None:
        """Compute the factor.

        Raises:
            NotEnoughMemory: memory is exhausted, or the entries exceed 32-bit integers.
            FactorizationError: the matrix is singular.
        """
        assert self._matrix is not None
        try:
            self._factor = splu(self._matrix.tocsc())
        except MemoryError as error:
            raise NotEnoughMemory(
                f"SuperLU could not reserve {self.size.nnz:,} entries for a matrix of {self._matrix.shape[0]:,} rows "
                "(its integers have 32 bits)",
                advice="install pypardiso, or set eigensolver.method to polynomial",
            ) from error
        except RuntimeError as error:
            raise FactorizationError(f"SuperLU on {self._matrix.shape[0]:,} rows: {error}") from error

    def solve(self, rhs: F64, transposed: bool) -> F64:
        """Solve for all columns of ``rhs`` (n, m) at once."""
        solution: F64 = self._factor.solve(np.asarray(rhs), "T" if transposed else "N")
        return solution

    def release(self) -> None:
        """Free the memory."""
        self._matrix = self._factor = None
