"""Sparse factorizations: PARDISO if MKL is installed, otherwise SciPy's SuperLU."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from . import pardiso
from .analysis import NO_ANALYSES, Analyses, Analysis
from .pardiso import FactorSize
from .superlu import SuperLU

F64 = npt.NDArray[np.float64]

ONE_THREAD_ROWS, ONE_THREAD_GFLOP = 150_000, 2.0
"""A factorization below both is computed by one thread. Two threads took twice the processor time for a Swiss roll of
100,000 points (1.3 GFlop), and no less time: a solve is too short to be divided."""


class Factorization(Protocol):
    """An analysed sparse matrix: call ``factor`` once, ``solve`` any number of times, then ``release``."""

    size: FactorSize

    def factor(self) -> None:
        """Compute the factor. Raises: NotEnoughMemory, FactorizationError."""

    def solve(self, rhs: F64, transposed: bool) -> F64:
        """Solve for all columns of ``rhs`` (n, m) at once."""

    def release(self) -> None:
        """Free the memory."""


def analyse(
    matrix: csr_array, matrix_type: int, n_threads: int, key: str = "", analyses: Analyses = NO_ANALYSES,
    single: bool = False,
) -> Factorization:  # fmt: skip
    """Analyse a square CSR matrix (n, n) with sorted rows and both triangles; PARDISO, or SuperLU without MKL.

    ``single`` stores the factor of PARDISO in single precision; SuperLU ignores it.

    With the key of the matrix, an analysis in ``analyses`` is used, or a new one is kept there. A small factorization
    takes one thread for any ``n_threads``: the number follows from the matrix, so equal matrices give equal bytes.
    """
    if not pardiso.is_available():
        return SuperLU(matrix)
    earlier_analysis = analyses.load(key) if key else None
    if earlier_analysis is not None and len(earlier_analysis.permutation) != matrix.shape[0]:
        earlier_analysis = None
    triangle = matrix if matrix_type == pardiso.GENERAL else _upper(matrix)
    few_rows = matrix.shape[0] < ONE_THREAD_ROWS
    is_small = few_rows and (earlier_analysis is None or earlier_analysis.size.gflop < ONE_THREAD_GFLOP)
    factorization = pardiso.Pardiso(triangle, matrix_type, 1 if is_small else n_threads, earlier_analysis, single)
    gflop = factorization.size.gflop
    if is_small and n_threads > 1 and earlier_analysis is None and gflop >= ONE_THREAD_GFLOP:
        factorization.release()  # PARDISO cannot change the number of threads after its analysis
        factorization = pardiso.Pardiso(triangle, matrix_type, n_threads, earlier_analysis, single)
    if key and earlier_analysis is None:
        size = factorization.size._replace(gflop=gflop)  # another number of threads counts other operations
        analyses.keep(key, Analysis(size, factorization.wide, factorization.permutation))
    return factorization


def canonical(matrix: csr_array) -> csr_array:
    """The matrix in float64 with sorted, distinct entries in each row; copied only if something must change."""
    matrix = csr_array(matrix).astype(np.float64, copy=False)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _upper(matrix: csr_array) -> csr_array:
    """The upper triangle; scipy's triu converts to COO, which takes three times the memory."""
    row_numbers = np.repeat(np.arange(matrix.shape[0], dtype=matrix.indices.dtype), np.diff(matrix.indptr))
    keep = matrix.indices >= row_numbers
    counts = np.concatenate([[0], np.cumsum(np.add.reduceat(keep, matrix.indptr[:-1], dtype=np.int64))])
    indptr = counts.astype(matrix.indptr.dtype)
    return csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)
