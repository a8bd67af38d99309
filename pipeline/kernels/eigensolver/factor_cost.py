"""Predict the size of a sparse factor from the factors of small pieces, and the time of each method in seconds.

The analysis of a whole matrix can itself use all memory of a machine. The entries of the factor of a piece with s rows
grow like s^p: p is near 1.1 on surfaces, 1.45 in three dimensions, 1.8 for speech vectors in 32 dimensions. Two pieces
give p. The prediction for the whole matrix is accurate to about 10 % on surfaces and to a factor of 1.5 elsewhere. The
work in operations has its own exponent. Other memory of PARDISO grows linearly with the rows.

Seconds are calculated from operation counts, not measured, so the choice of a method does not depend on the load of the
machine.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from . import pardiso
from .factorization import analyse, canonical
from .pardiso import FactorSize

PIECES = (10_000, 40_000)
BYTES_PER_ENTRY = 8
FIXED_BYTES = 20 * 2**20
MIN_GFLOP = 1e-3
"""Resolution of the work that PARDISO reports."""
MIN_ROWS = 200_000
"""Below this number of rows the analysis takes seconds and little memory on any data."""

GFLOP_PER_SECOND = 8.0
"""Speed of one thread in the numerical factorization."""
SOLVED_PER_SECOND = 1.0e8
"""Entries of a factor that one thread processes per second when it solves for a block of four columns."""
ANALYSED_PER_SECOND = 1.5e6
"""Entries of the matrix that the analysis processes per second; the ordering runs on one thread."""
PRODUCTS_PER_SECOND = 1.0e9
"""Multiplications of an entry of A with an entry of a block of vectors per second, on one thread."""
MULTIGRID_SECONDS, SETUP_SECONDS = 8e-6, 1e-6
"""Processor seconds for an entry of A: of a whole solve by multigrid, and of its setup."""
MULTIGRID_POINTS = 20_000
"""Below this number of points a factorization takes less time than multigrid on any data, so auto does not try it."""
SHORT_SECONDS, LONG_SECONDS = 2.0, 600.0
"""Factorizations up to SHORT_SECONDS are always made at once; those of M, where polynomial is slower, up to
LONG_SECONDS."""


def extrapolated(matrix: csr_array, matrix_type: int, center: int, n_threads: int) -> FactorSize | None:
    """Predicted size of the factor of a square matrix (n, n), from two pieces around the row ``center``.

    None if no prediction is possible: the matrix is small, PARDISO is missing, or too few rows are connected with
    ``center`` for a piece.
    """
    if matrix.shape[0] < MIN_ROWS or not pardiso.is_available():
        return None
    reached = breadth_first_order(matrix, center, directed=True, return_predecessors=False)
    if len(reached) < PIECES[-1]:
        return None
    small, large = (_analysed(matrix, matrix_type, np.sort(reached[:size]), n_threads) for size in PIECES)
    steps = np.log(matrix.shape[0] / PIECES[1]) / np.log(PIECES[1] / PIECES[0])
    nnz, gflop = large.nnz * (large.nnz / small.nnz) ** steps, large.gflop * (large.gflop / small.gflop) ** steps
    bytes_per_row = max(large.n_bytes - BYTES_PER_ENTRY * large.nnz - FIXED_BYTES, 0) / PIECES[1]
    n_bytes = FIXED_BYTES + BYTES_PER_ENTRY * nnz + bytes_per_row * matrix.shape[0]
    return FactorSize(int(nnz), int(n_bytes), float(gflop))


def factor_seconds(size: FactorSize, nnz: int, n_blocks: int, n_threads: int) -> float:
    """Seconds to analyse a matrix of ``nnz`` entries, factor it, and apply M^+ to ``n_blocks`` blocks of vectors.

    M^+ takes two solves with the LU of A. A solve with the Cholesky factor of M takes as long, as it reads the factor
    twice.
    """
    work = size.gflop / GFLOP_PER_SECOND + 2 * n_blocks * size.nnz / SOLVED_PER_SECOND
    return float(nnz / ANALYSED_PER_SECOND + work / n_threads)


def product_seconds(nnz: int, width: int, n_threads: int) -> float:
    """Seconds of one product of M = A' A with ``width`` vectors, A with ``nnz`` entries."""
    return 2 * nnz * width / PRODUCTS_PER_SECOND / n_threads


def multigrid_seconds(nnz: int, n_threads: int) -> float:
    """Seconds of a whole solve by multigrid for A with ``nnz`` entries; they hardly depend on the data."""
    return setup_seconds(nnz) + MULTIGRID_SECONDS * nnz / n_threads


def setup_seconds(nnz: int) -> float:
    """Seconds to set up the hierarchy for A with ``nnz`` entries, mostly on one thread."""
    return SETUP_SECONDS * nnz


def _analysed(matrix: csr_array, matrix_type: int, rows: Any, n_threads: int) -> FactorSize:
    factorization = analyse(canonical(matrix[rows][:, rows]), matrix_type, n_threads)
    factorization.release()
    size = factorization.size
    return size._replace(gflop=max(size.gflop, MIN_GFLOP))


def patience_seconds(nnz: int, n_threads: int, *, square: bool) -> float:
    """Longest factorization in seconds that is made without trying another method first, for A with ``nnz`` entries."""
    return max(SHORT_SECONDS, multigrid_seconds(nnz, n_threads)) if square else LONG_SECONDS
