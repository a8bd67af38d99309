"""The null vector of M that the eigensolver leaves out.

For all methods but one it is the constant, and leaving it out is taking off the mean. The Laplacian eigenmap, written
as a symmetric problem, has D^1/2 1 instead. So the solver takes a unit vector (n,) without zeros, or None for the
constant, and everything it does with it is here.
"""

import numpy as np
import numpy.typing as npt
import scipy.linalg

F64 = npt.NDArray[np.float64]
NullVector = F64 | None


def off_null(block: F64, null: NullVector) -> F64:
    """The block (n, m) without its parts along the null vector."""
    if null is None:
        return np.asarray(block - block.mean(axis=0))
    return np.asarray(block - np.outer(null, null @ block))


def take_off_null(block: F64, null: NullVector) -> F64:
    """The same in place, where the block may be overwritten."""
    block -= block.mean(axis=0) if null is None else np.outer(null, null @ block)
    return block


def complement(n: int, null: NullVector) -> F64:
    """An orthonormal basis (n, n - 1) of what is orthogonal to the null vector, in Fortran order."""
    if null is None:
        return np.asfortranarray(scipy.linalg.helmert(n).T)
    return np.asfortranarray(scipy.linalg.qr(null[:, None], mode="full")[0][:, 1:])
