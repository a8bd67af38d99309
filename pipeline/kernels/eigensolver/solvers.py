"""The registry of the methods: what each needs, how it runs, and what it is predicted to cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from . import costs, methods, pardiso
from .factorization import analyse, analysis_key, canonical
from .pardiso import FactorSize
from .problem import Outcome, Problem
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
    """Seconds of the whole solve."""
    basis: str
    """Source of the prediction: analysis (of the matrix), pieces (of the matrix), or entries of A."""


@dataclass(frozen=True)
class Solver:
    """A method for the lowest eigenpairs."""

    description: str
    run: Callable[[Problem], Outcome]
    predict: Callable[[Problem], Prediction]
    square: bool = False
    """Whether it needs one row of A for each point."""


def predictions(problem: Problem, names: list[str]) -> list[Prediction]:
    """Predictions for the methods ``names``, in this order.

    Raises: NotEnoughMemory, FactorizationError: the analysis of a small matrix failed.
    """
    return [SOLVERS[name].predict(problem) for name in names]


def auto_methods(factor: csr_array, skip: Mapping[str, str]) -> list[str]:
    """Methods that auto tries for A (rows, n), in their order; those with a factor are tried first if they are short.

    The LU of a square A is smaller than the Cholesky factor of M.
    """
    rows, n = factor.shape
    names = [name for name, solver in SOLVERS.items() if rows == n or not solver.square]
    if n < costs.MULTIGRID_POINTS:
        names = [name for name in names if name != "multigrid"]
    return [name for name in names if name not in skip]


def chosen(predicted: list[Prediction], patience: float) -> Prediction:
    """The method that auto starts with: the first that fits and takes at most ``patience`` seconds, else the last."""
    for prediction in predicted:
        if prediction.fits and (prediction.seconds <= patience or prediction.method.startswith("multigrid")):
            return prediction
    return predicted[-1]


def _predict_factored(problem: Problem) -> Prediction:
    return _of_factor("factored", problem, problem.factor, pardiso.GENERAL)


def _predict_shift_invert(problem: Problem) -> Prediction:
    return _of_factor("shift_invert", problem, canonical(problem.cost_matrix()), pardiso.POSITIVE_DEFINITE)


def _predict_multigrid(problem: Problem) -> Prediction:
    return _of_multigrid("multigrid", problem, 0)


def _predict_multigrid_on_m(problem: Problem) -> Prediction:
    return _of_multigrid(methods.ON_M, problem, problem.cost_matrix().nnz)


def _of_multigrid(name: str, problem: Problem, normal_entries: int) -> Prediction:
    n_bytes = costs.multigrid_size(problem.factor, problem.planned_vectors, problem.max_memory, normal_entries)[2]
    seconds = costs.multigrid_seconds(problem.factor.nnz, problem.n_threads, on_m=normal_entries > 0)
    return Prediction(name, n_bytes <= problem.max_memory, n_bytes, 0, 0.0, seconds, "entries of A")


def _of_factor(name: str, problem: Problem, matrix: csr_array, matrix_type: int) -> Prediction:
    size, basis = _factor_size(problem, matrix, matrix_type)
    if matrix_type == pardiso.GENERAL:
        n_bytes = methods.lu_size(problem, size)[0][2]
    else:
        n_bytes = costs.krylov_size(problem.factor, problem.planned_vectors, size)[2]
    seconds = costs.factor_seconds(size, problem.factor.nnz, methods.TYPICAL_BLOCKS, problem.n_threads)
    return Prediction(name, n_bytes <= problem.max_memory, n_bytes, size.nnz, size.gflop, seconds, basis)


def _factor_size(problem: Problem, matrix: csr_array, matrix_type: int) -> tuple[FactorSize, str]:
    """Size of the factor of A (GENERAL) or of M (POSITIVE_DEFINITE), and the source of the prediction."""
    pin, n_threads = problem.pin, problem.n_threads
    earlier = problem.hooks.analyses.load(analysis_key(matrix, matrix_type, pin, n_threads))
    if earlier is not None:
        return earlier.size, "an earlier analysis"
    if (size := costs.extrapolated(matrix, matrix_type, pin, n_threads)) is not None:
        return size, "pieces"
    if matrix_type == pardiso.GENERAL:
        with PinnedLU(matrix, pin, n_threads) as inverse:
            return inverse.size, "analysis"
    regular = matrix.copy()
    regular.setdiag(np.maximum(regular.diagonal(), 1.0) + 1.0)  # the analysis depends on the pattern only
    factorization = analyse(canonical(regular), pardiso.POSITIVE_DEFINITE, n_threads)
    factorization.release()
    return factorization.size, "analysis"


SOLVERS: dict[str, Solver] = {
    "factored": Solver("LU of A", methods.factored, _predict_factored, square=True),
    "multigrid": Solver("multigrid on A, without a factor", methods.multigrid, _predict_multigrid, square=True),
    "shift_invert": Solver("Cholesky factor of M", methods.shift_invert, _predict_shift_invert),
    methods.ON_M: Solver("multigrid on M, without a factor", methods.multigrid_on_m, _predict_multigrid_on_m),
}
"""In the order in which auto tries them."""
