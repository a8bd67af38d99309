"""What each route would take for a matrix A, before any is run: the choice that `auto` is going to begin with."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from . import davidson, factor_cost, methods, pardiso
from .factorization import PinnedLU, analyse, canonical
from .pardiso import FactorSize


class Prediction(NamedTuple):
    """One route as foreseen."""

    method: str
    fits: bool
    predicted_bytes: int
    factor_nnz: int
    """Entries of the factor, 0 without one."""
    gflop: float
    seconds: float
    """Of the whole route; of 1,000 products with a block of vectors where their number cannot be known before."""
    basis: str
    """analysis of the matrix, or of pieces of it."""


def predict(
    factor: csr_array, cost_matrix: csr_array | None, allowed: Collection[str], n_vectors: int, pin: int,
    max_memory: int, n_threads: int,
) -> list[Prediction]:  # fmt: skip
    """Those of the routes ``allowed`` that are open to A (rows, n), in the order in which auto tries them.

    Args:
        factor: A, float64.
        cost_matrix: M (n, n), for shift_invert; None leaves that out.
        allowed: any of factored, shift_invert, polynomial.
        n_vectors: wanted pairs.
        pin: a point in the closed class of A.
        max_memory: bytes allowed.
        n_threads: threads the solver will have.

    Raises: NotEnoughMemory, FactorizationError where the analysis of a small matrix ends in one.
    """
    factor, found = canonical(factor), []
    if "factored" in allowed and factor.shape[0] == factor.shape[1]:
        size, basis = _square_size(factor, pin, n_threads)
        found.append(_of_factor("factored", size, basis, factor, n_vectors, max_memory, n_threads))
    if "shift_invert" in allowed and cost_matrix is not None:
        size, basis = _symmetric_size(canonical(cost_matrix), pin, n_threads)
        found.append(_of_factor("shift_invert", size, basis, factor, n_vectors, max_memory, n_threads))
    if "polynomial" in allowed:
        width = davidson.block_width(n_vectors)
        n_bytes = methods.davidson_size(factor, width, max_memory)[2]
        seconds = 1000 * factor_cost.product_seconds(factor.nnz, width, n_threads)
        found.append(Prediction("polynomial", n_bytes <= max_memory, n_bytes, 0, 0.0, seconds, "entries of A"))
    return found


def chosen(predictions: list[Prediction], patience: float) -> Prediction:
    """The route auto begins with: the first that fits and takes ``patience`` seconds or less, else the last."""
    for prediction in predictions:
        if prediction.fits and prediction.seconds <= patience:
            return prediction
    return predictions[-1]


def _of_factor(
    method: str, size: FactorSize, basis: str, factor: csr_array, n_vectors: int, max_memory: int, n_threads: int
) -> Prediction:
    n_bytes = methods.krylov_size(factor, n_vectors, size)[2]
    seconds = factor_cost.factor_seconds(size, factor.nnz, methods.TYPICAL_BLOCKS, n_threads)
    return Prediction(method, n_bytes <= max_memory, n_bytes, size.nnz, size.gflop, seconds, basis)


def _square_size(factor: csr_array, pin: int, n_threads: int) -> tuple[FactorSize, str]:
    size = factor_cost.extrapolated(factor, pardiso.GENERAL, pin, n_threads)
    if size is not None:
        return size, "pieces"
    with PinnedLU(factor, pin, n_threads) as inverse:
        return inverse.size, "analysis"


def _symmetric_size(cost_matrix: csr_array, pin: int, n_threads: int) -> tuple[FactorSize, str]:
    size = factor_cost.extrapolated(cost_matrix, pardiso.POSITIVE_DEFINITE, pin, n_threads)
    if size is not None:
        return size, "pieces"
    regular = cost_matrix.copy()
    regular.setdiag(np.maximum(regular.diagonal(), 1.0) + 1.0)  # only the pattern counts
    factorization = analyse(canonical(regular), pardiso.POSITIVE_DEFINITE, n_threads)
    factorization.release()
    return factorization.size, "analysis"
