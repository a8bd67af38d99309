"""Predict memory and time of each method for a matrix A, and the method that `auto` starts with."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from . import davidson, factor_cost, memory, methods, pardiso
from .analysis import NO_ANALYSES, Analyses, analysis_key
from .factorization import analyse, canonical
from .pardiso import FactorSize
from .pseudo_inverse import PinnedLU


class Prediction(NamedTuple):
    """Predicted memory and time of one method."""

    method: str
    fits: bool
    predicted_bytes: int
    factor_nnz: int
    """Entries of the factor; 0 for methods without a factor."""
    gflop: float
    seconds: float
    """Seconds of the whole solve; for polynomial of 1,000 products with a block, as their number is unknown."""
    basis: str
    """Source of the prediction: analysis (of the matrix), pieces (of the matrix), or entries of A."""


def predict(
    factor: csr_array, cost_matrix: csr_array | None, allowed: Collection[str], n_vectors: int, pin: int,
    max_memory: int, n_threads: int, analyses: Analyses = NO_ANALYSES,
) -> list[Prediction]:  # fmt: skip
    """Predictions for the methods in ``allowed`` that A (rows, n) permits, in the order in which auto tries them.

    Args:
        factor: A, float64.
        cost_matrix: M (n, n), for shift_invert; None omits that method.
        allowed: any of factored, multigrid, shift_invert, polynomial.
        n_vectors: number of requested pairs.
        pin: a point in the closed class of A.
        max_memory: allowed bytes.
        n_threads: threads of the solver.
        analyses: symbolic analyses of earlier runs.

    Raises:
        NotEnoughMemory, FactorizationError: the analysis of a small matrix failed.
    """
    factor, predictions = canonical(factor), []
    if "factored" in allowed and factor.shape[0] == factor.shape[1]:
        size, basis = _factor_size(factor, pardiso.GENERAL, pin, n_threads, analyses)
        predictions.append(_of_factor("factored", size, basis, factor, n_vectors, max_memory, n_threads))
    if "multigrid" in allowed and factor.shape[0] == factor.shape[1]:
        n_bytes = memory.multigrid_size(factor, n_vectors, max_memory)[2]
        seconds = factor_cost.multigrid_seconds(factor.nnz, n_threads)
        predictions.append(Prediction("multigrid", n_bytes <= max_memory, n_bytes, 0, 0.0, seconds, "entries of A"))
    if "shift_invert" in allowed and cost_matrix is not None:
        size, basis = _factor_size(canonical(cost_matrix), pardiso.POSITIVE_DEFINITE, pin, n_threads, analyses)
        predictions.append(_of_factor("shift_invert", size, basis, factor, n_vectors, max_memory, n_threads))
    if "polynomial" in allowed:
        width = davidson.block_width(n_vectors)
        n_bytes = memory.polynomial_size(factor, width, max_memory)[2]
        seconds = 1000 * factor_cost.product_seconds(factor.nnz, width, n_threads)
        predictions.append(Prediction("polynomial", n_bytes <= max_memory, n_bytes, 0, 0.0, seconds, "entries of A"))
    return predictions


def predicted_methods(factor: csr_array) -> list[str]:
    """Methods among which auto chooses for A (rows, n), in the order in which it tries them.

    The LU of a square A is smaller than the Cholesky factor of M, which is therefore left out.
    """
    rows, n = factor.shape
    if rows != n:
        return ["shift_invert", "polynomial"]
    return ["factored", *(["multigrid"] if n >= factor_cost.MULTIGRID_POINTS else []), "polynomial"]


def chosen(predictions: list[Prediction], patience: float) -> Prediction:
    """The method that auto starts with: the first that fits and takes at most ``patience`` seconds, else the last."""
    for prediction in predictions:
        if prediction.fits and (prediction.seconds <= patience or prediction.method == "multigrid"):
            return prediction
    return predictions[-1]


def _of_factor(
    method: str, size: FactorSize, basis: str, factor: csr_array, n_vectors: int, max_memory: int, n_threads: int
) -> Prediction:
    n_bytes, n_blocks = memory.krylov_size(factor, n_vectors, size)[2], methods.TYPICAL_BLOCKS
    if method == "factored" and n_bytes > max_memory:
        size, n_blocks = size.in_single(factor.nnz), methods.SINGLE_BLOCKS
        n_bytes = memory.preconditioned_size(factor, n_vectors, size)[2]
    seconds = factor_cost.factor_seconds(size, factor.nnz, n_blocks, n_threads)
    return Prediction(method, n_bytes <= max_memory, n_bytes, size.nnz, size.gflop, seconds, basis)


def _factor_size(
    matrix: csr_array, matrix_type: int, pin: int, n_threads: int, analyses: Analyses
) -> tuple[FactorSize, str]:
    """Size of the factor of A (GENERAL) or of M (POSITIVE_DEFINITE), and the source of the prediction."""
    if (earlier := analyses.load(analysis_key(matrix, matrix_type, pin, n_threads))) is not None:
        return earlier.size, "an earlier analysis"
    if (size := factor_cost.extrapolated(matrix, matrix_type, pin, n_threads)) is not None:
        return size, "pieces"
    if matrix_type == pardiso.GENERAL:
        with PinnedLU(matrix, pin, n_threads) as inverse:
            return inverse.size, "analysis"
    regular = matrix.copy()
    regular.setdiag(np.maximum(regular.diagonal(), 1.0) + 1.0)  # the analysis depends on the pattern only
    factorization = analyse(canonical(regular), pardiso.POSITIVE_DEFINITE, n_threads)
    factorization.release()
    return factorization.size, "analysis"
