"""What a sparse factor will take, from the factors of small pieces, and what each route costs in seconds.

The analysis of a whole matrix can itself eat a machine. Entries of the factor of a piece with s rows grow like s^p: p
is near 1.1 on surfaces, 1.45 in three dimensions, 1.8 for speech vectors in 32. Two pieces give p, and the whole
follows within about 10 % on surfaces and 1.5 times elsewhere; the work has a power of its own, and what PARDISO holds
beside the entries grows with the rows.

Seconds are counted, not clocked: a choice between routes must not depend on what else the machine is doing.
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
LEAST_GFLOP = 1e-3
"""PARDISO counts in steps of this."""
MIN_ROWS = 200_000
"""Below this the analysis takes seconds and little memory on any data."""

GFLOP_PER_SECOND = 8.0
"""Of one thread in the numerical factorization."""
SOLVED_PER_SECOND = 1.0e8
"""Entries of a factor that one thread passes in a second when it solves for a block of four columns."""
ANALYSED_PER_SECOND = 1.5e6
"""Entries of the matrix; the ordering runs on one thread."""
PRODUCTS_PER_SECOND = 1.0e9
"""Multiplications of an entry of A with a number of a block of vectors, one thread."""
WORTH_PRODUCTS = 1000
"""Products of M: a factorization of I - W that takes longer than these is preceded by polynomials. A surface's takes as
long as 200 to 500 of them at any size, that of images as long as 4,800."""
SHORT_SECONDS, LONG_SECONDS = 2.0, 600.0
"""A factorization of the first is always made at once; one of M, where polynomials are slower, up to the second."""


def extrapolated(matrix: csr_array, matrix_type: int, center: int, n_threads: int) -> FactorSize | None:
    """What the factor of a square matrix (n, n) will take, from its pieces around the row ``center``.

    None where this says nothing: small matrices, no PARDISO, or fewer rows than a piece needs reached from ``center``.
    """
    if matrix.shape[0] < MIN_ROWS or not pardiso.is_available():
        return None
    reached = breadth_first_order(matrix, center, directed=True, return_predecessors=False)
    if len(reached) < PIECES[-1]:
        return None
    small, large = (_analysed(matrix, matrix_type, np.sort(reached[:size]), n_threads) for size in PIECES)
    steps = np.log(matrix.shape[0] / PIECES[1]) / np.log(PIECES[1] / PIECES[0])
    nnz, gflop = large.nnz * (large.nnz / small.nnz) ** steps, large.gflop * (large.gflop / small.gflop) ** steps
    beside = max(large.n_bytes - BYTES_PER_ENTRY * large.nnz - FIXED_BYTES, 0) / PIECES[1]
    n_bytes = FIXED_BYTES + BYTES_PER_ENTRY * nnz + beside * matrix.shape[0]
    return FactorSize(int(nnz), int(n_bytes), float(gflop))


def factor_seconds(size: FactorSize, nnz: int, n_blocks: int, n_threads: int) -> float:
    """Seconds to analyse a matrix of ``nnz`` entries, factor it, and apply M^+ to ``n_blocks`` blocks of vectors.

    M^+ takes two solves with the LU of A, and as long with the Cholesky factor of M, which is passed twice too.
    """
    work = size.gflop / GFLOP_PER_SECOND + 2 * n_blocks * size.nnz / SOLVED_PER_SECOND
    return float(nnz / ANALYSED_PER_SECOND + work / n_threads)


def product_seconds(nnz: int, width: int, n_threads: int) -> float:
    """Seconds of one product of M = A' A with ``width`` vectors, A with ``nnz`` entries."""
    return 2 * nnz * width / PRODUCTS_PER_SECOND / n_threads


def _analysed(matrix: csr_array, matrix_type: int, rows: Any, n_threads: int) -> FactorSize:
    factorization = analyse(canonical(matrix[rows][:, rows]), matrix_type, n_threads)
    factorization.release()
    size = factorization.size
    return size._replace(gflop=max(size.gflop, LEAST_GFLOP))


def patience_seconds(nnz: int, width: int, n_threads: int, *, square: bool) -> float:
    """Seconds up to which a factorization is made without trying polynomials, for A with ``nnz`` entries."""
    if not square:
        return LONG_SECONDS
    return max(SHORT_SECONDS, WORTH_PRODUCTS * product_seconds(nnz, width, n_threads))
