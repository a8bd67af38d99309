"""Sparse factorizations: PARDISO if MKL is installed, otherwise SciPy's SuperLU.

The symbolic analysis of a matrix gives the size of its factor and its order of elimination. Nested dissection computes
the order, which takes most of the time. With a given order PARDISO repeats only the cheap part of the analysis, and
gives the same bytes as with an order that it has computed. So a solve keeps its analyses.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu

from ...core.arrays import Float64
from ...core.errors import NotEnoughMemory
from . import pardiso
from .pardiso import FactorizationError, FactorSize

SUPERLU_FILL = 30
"""SuperLU first reserves this many entries for each entry of the matrix; it counts them with 32-bit integers."""
ONE_THREAD_ROWS, ONE_THREAD_GFLOP = 150_000, 2.0
"""A factorization below both is computed by one thread. Two threads took twice the processor time for a Swiss roll of
100,000 points (1.3 GFlop), and no less time: a solve is too short to be divided."""


class Analysis(NamedTuple):
    size: FactorSize
    wide: bool
    """Whether PARDISO needs 64-bit integers."""
    permutation: npt.NDArray[np.integer[Any]]
    """(n,) order of elimination, counted from 0."""


Analyses = dict[int, Analysis]
"""Analyses of matrices that differ in their values only, by their type (GENERAL, POSITIVE_DEFINITE)."""


class SuperLU:
    """SciPy's SuperLU with the methods of ``Pardiso``.

    It has no analysis: ``size`` is what it first reserves, without the work, which is unknown.
    """

    def __init__(self, matrix: csr_array) -> None:
        """Store a square CSR matrix, float64 (n, n); a symmetric matrix must have both triangles."""
        entries = SUPERLU_FILL * matrix.nnz
        self.size = FactorSize(entries, 12 * entries, 0.0)
        self._matrix: csr_array | None = matrix
        self._factor: Any = None

    def factor(self) -> None:
        assert self._matrix is not None
        try:
            self._factor = splu(self._matrix.tocsc())
        except MemoryError as error:
            raise NotEnoughMemory(
                f"SuperLU could not reserve {self.size.nnz:,} entries for a matrix of {self._matrix.shape[0]:,} rows "
                "(its integers have 32 bits)",
                advice="install pypardiso, or set eigensolver.method to multigrid",
            ) from error
        except RuntimeError as error:
            raise FactorizationError(f"SuperLU on {self._matrix.shape[0]:,} rows: {error}") from error

    def solve(self, rhs: Float64, transposed: bool) -> Float64:
        return np.asarray(self._factor.solve(np.asarray(rhs), "T" if transposed else "N"), np.float64)

    def release(self) -> None:
        self._matrix = self._factor = None


Factorization = pardiso.Pardiso | SuperLU
"""An analysed sparse matrix: call ``factor`` once, ``solve`` any number of times, then ``release``."""


def analyse(
    matrix: csr_array, matrix_type: int, n_threads: int, analyses: Analyses | None = None, single: bool = False
) -> Factorization:
    """Analyse a square CSR matrix (n, n) with sorted rows and both triangles; PARDISO, or SuperLU without MKL.

    An analysis in ``analyses`` is used, or a new one is kept there. A small factorization takes one thread for any
    ``n_threads``: the number follows from the matrix, so equal matrices give equal bytes. With PARDISO the factor can
    be in ``single`` precision, by an analysis in double precision if there is one.
    """
    if not pardiso.is_available():
        return SuperLU(matrix)
    analyses = {} if analyses is None else analyses
    earlier_analysis = analyses.get(matrix_type)
    triangle = matrix if matrix_type == pardiso.GENERAL else _upper(matrix)
    few_rows = matrix.shape[0] < ONE_THREAD_ROWS
    is_small = few_rows and (earlier_analysis is None or earlier_analysis.size.gflop < ONE_THREAD_GFLOP)
    factorization = pardiso.Pardiso(triangle, matrix_type, 1 if is_small else n_threads, earlier_analysis, single)
    gflop = factorization.size.gflop
    if is_small and n_threads > 1 and earlier_analysis is None and gflop >= ONE_THREAD_GFLOP:
        factorization.release()  # PARDISO cannot change the number of threads after its analysis
        factorization = pardiso.Pardiso(triangle, matrix_type, n_threads, earlier_analysis, single)
    if earlier_analysis is None and not single:
        size = factorization.size._replace(gflop=gflop)  # another number of threads counts other operations
        analyses[matrix_type] = Analysis(size, factorization.wide, factorization.permutation)
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
