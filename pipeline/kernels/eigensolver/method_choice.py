"""What each route would take for a matrix A, before any is run: the choice that `auto` is going to begin with."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pipeline.kernels import chebyshev, forecast, pardiso, routes
from pipeline.kernels.factorization import PinnedLU, analyse, canonical
from pipeline.kernels.pardiso import FactorSize


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
    factor: csr_array, cost_matrix: csr_array | None, methods: Collection[str], n_vectors: int, pin: int,
    max_memory: int, n_threads: int,
) -> list[Prediction]:  # fmt: skip
    """Those of the routes ``methods`` that are open to A (rows, n), in the order in which auto tries them.

    Args:
        factor: A, float64.
        cost_matrix: M (n, n), for shift_invert; None leaves that out.
        methods: any of factored, shift_invert, chebyshev.
        n_vectors: wanted pairs.
        pin: a point in the closed class of A.
        max_memory: bytes allowed.
        n_threads: threads the solver will have.

    Raises: NotEnoughMemory, FactorizationError where the analysis of a small matrix ends in one.
    """
    factor, found = canonical(factor), []
    if "factored" in methods and factor.shape[0] == factor.shape[1]:
        size, basis = _square_size(factor, pin, n_threads)
        found.append(_of_factor("factored", size, basis, factor, n_vectors, max_memory, n_threads))
    if "shift_invert" in methods and cost_matrix is not None:
        size, basis = _symmetric_size(canonical(cost_matrix), pin, n_threads)
        found.append(_of_factor("shift_invert", size, basis, factor, n_vectors, max_memory, n_threads))
    if "chebyshev" in methods:
        width = chebyshev.block_width(n_vectors)
        _, n_bytes = routes.filter_size(factor, width, max_memory)
        seconds = 1000 * forecast.filter_seconds(factor.nnz, width, n_threads)
        found.append(Prediction("chebyshev", n_bytes <= max_memory, n_bytes, 0, 0.0, seconds, "entries of A"))
    return found


def chosen(predictions: list[Prediction], patience: float) -> Prediction:
    """The route auto begins with: the first that fits and takes ``patience`` seconds or less, else filters."""
    for prediction in predictions:
        if prediction.fits and prediction.seconds <= patience:
            return prediction
    return predictions[-1]


def _of_factor(
    method: str, size: FactorSize, basis: str, factor: csr_array, n_vectors: int, max_memory: int, n_threads: int
) -> Prediction:
    n_bytes = routes.krylov_size(factor, n_vectors, size)[2]
    seconds = forecast.factor_seconds(size, factor.nnz, routes.TYPICAL_BLOCKS, n_threads)
    return Prediction(method, n_bytes <= max_memory, n_bytes, size.nnz, size.gflop, seconds, basis)


def _square_size(factor: csr_array, pin: int, n_threads: int) -> tuple[FactorSize, str]:
    size = forecast.extrapolated(factor, pardiso.GENERAL, pin, n_threads)
    if size is not None:
        return size, "pieces"
    with PinnedLU(factor, pin, n_threads) as inverse:
        return inverse.size, "analysis"


def _symmetric_size(cost_matrix: csr_array, pin: int, n_threads: int) -> tuple[FactorSize, str]:
    size = forecast.extrapolated(cost_matrix, pardiso.POSITIVE_DEFINITE, pin, n_threads)
    if size is not None:
        return size, "pieces"
    regular = cost_matrix.copy()
    regular.setdiag(np.maximum(regular.diagonal(), 1.0) + 1.0)  # only the pattern counts
    factorization = analyse(canonical(regular), pardiso.POSITIVE_DEFINITE, n_threads)
    factorization.release()
    return factorization.size, "analysis"
