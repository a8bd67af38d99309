"""What a sparse factor will take, from the factors of small pieces: the analysis of the whole can itself eat a machine.

Entries of the factor of a piece with s rows grow like s^p: p is near 1.1 on surfaces, 1.45 in three dimensions, 1.8 for
speech vectors in 32. Two pieces give p, and the whole follows within about 10 % on surfaces and 1.5 times elsewhere.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from pipeline.kernels import pardiso
from pipeline.kernels.factorization import canonical

PIECES = (10_000, 40_000)
MIN_ROWS = 200_000
"""Below this the analysis takes seconds and little memory on any data."""


def extrapolated_bytes(matrix: csr_array, center: int, n_threads: int) -> int | None:
    """Bytes that the LU of a square matrix (n, n) will take, from its pieces around the row ``center``.

    None where this says nothing: small matrices, no PARDISO, or fewer rows than a piece needs reached from ``center``.
    """
    if matrix.shape[0] < MIN_ROWS or not pardiso.is_available():
        return None
    reached = breadth_first_order(matrix, center, directed=True, return_predecessors=False)
    if len(reached) < PIECES[-1]:
        return None
    small, large = (_analysed_entries(matrix, np.sort(reached[:size]), n_threads) for size in PIECES)
    power = np.log(large / small) / np.log(PIECES[1] / PIECES[0])
    return int(8 * large * (matrix.shape[0] / PIECES[1]) ** power)


def _analysed_entries(matrix: csr_array, rows: Any, n_threads: int) -> int:
    piece = canonical(matrix[rows][:, rows])
    factorization = pardiso.Pardiso(piece, pardiso.GENERAL, n_threads)
    factorization.release()
    return factorization.size.nnz
