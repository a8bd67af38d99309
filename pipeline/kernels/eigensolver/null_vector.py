"""The null vector of M, which the eigensolver removes from all its vectors.

For all methods but one it is the constant, so removing it means subtracting the mean. For Laplacian eigenmaps, written
as a symmetric problem, it is D^1/2 1. The solver represents it by a unit vector (n,) without zeros, or by None for the
constant.
"""

import numpy as np
import numpy.typing as npt
import scipy.linalg

F64 = npt.NDArray[np.float64]
NullVector = F64 | None


def without_null(block: F64, null: NullVector) -> F64:
    """The block (n, m) projected onto the complement of the null vector."""
    if null is None:
        return np.asarray(block - block.mean(axis=0))
    return np.asarray(block - np.outer(null, null @ block))


def remove_null(block: F64, null: NullVector) -> F64:
    """As ``without_null``, but in place."""
    block -= block.mean(axis=0) if null is None else np.outer(null, null @ block)
    return block


def complement(n: int, null: NullVector) -> F64:
    """An orthonormal basis (n, n - 1) of the complement of the null vector, in Fortran order."""
    if null is None:
        return np.asfortranarray(scipy.linalg.helmert(n).T)
    return np.asfortranarray(scipy.linalg.qr(null[:, None], mode="full")[0][:, 1:])
