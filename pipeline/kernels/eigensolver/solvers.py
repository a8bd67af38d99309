"""The registry of the methods: what each needs, how it runs, and what it is predicted to cost."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from scipy.sparse import csr_array

from ...core.errors import NotEnoughMemory
from . import costs, methods, pardiso
from .factorization import canonical
from .pardiso import FactorizationError, FactorSize
from .problem import Outcome, Problem
from .pseudo_inverse import PinnedCholesky, PinnedLU, PseudoInverse

SOLVERS: dict[str, Callable[[Problem], Outcome]] = {
    "factored": methods.factored,
    "multigrid": methods.multigrid,
    "shift_invert": methods.shift_invert,
    methods.ON_M: partial(methods.multigrid, on_m=True),
}
"""In the order in which auto tries them; the LU of a square A is smaller than the Cholesky factor of M."""
SQUARE = ("factored", "multigrid")
"""Methods that need one row of A for each point."""


class Prediction(NamedTuple):
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


def auto_methods(problem: Problem, skip: Mapping[str, str]) -> list[str]:
    """Methods that auto tries, in their order; a long factorization is put off (``solve``)."""
    names = [name for name in SOLVERS if problem.is_square or name not in SQUARE]
    if problem.n < costs.MULTIGRID_POINTS:
        names = [name for name in names if name != "multigrid"]
    return [name for name in names if name not in skip]


def chosen(predicted: list[Prediction], patience: float) -> Prediction:
    """The method that auto starts with: the first that fits and takes at most ``patience`` seconds, else the last."""
    for prediction in predicted:
        if prediction.fits and (prediction.seconds <= patience or prediction.method.startswith("multigrid")):
            return prediction
    return predicted[-1]


def exact_seconds(problem: Problem, name: str) -> float:
    """Seconds of a method with a factor, by the analysis of the whole matrix; infinite if the factor does not fit.

    A factor that does not fit by its pieces is not analysed.
    """
    try:
        for by_pieces in (True, False):
            prediction = prediction_of(problem, name, by_pieces=by_pieces)
            if not prediction.fits:
                return math.inf
    except (MemoryError, NotEnoughMemory, FactorizationError):
        return math.inf
    return prediction.seconds


def prediction_of(problem: Problem, name: str, *, by_pieces: bool = True) -> Prediction:
    """The prediction for a method, for large matrices without their analysis if ``by_pieces``.

    Raises NotEnoughMemory or FactorizationError if the analysis of a matrix failed.
    """
    factor, m, allowed, n_threads = problem.whole_factor, problem.planned_vectors, problem.max_memory, problem.n_threads
    if name.startswith("multigrid"):
        on_m = name == methods.ON_M
        n_bytes = costs.multigrid_size(factor, m, allowed, problem.cost_matrix().nnz if on_m else 0)[2]
        seconds = costs.multigrid_seconds(factor.nnz, n_threads, on_m=on_m)
        return Prediction(name, n_bytes <= allowed, n_bytes, 0, 0.0, seconds, "entries of A")
    if name == "factored":
        size, basis = _factor_size(problem, factor, pardiso.GENERAL, by_pieces)
        n_bytes = methods.lu_size(problem, size)[0][2]
    else:
        size, basis = _factor_size(problem, canonical(problem.cost_matrix()), pardiso.POSITIVE_DEFINITE, by_pieces)
        n_bytes = costs.krylov_size(factor, m, size)[2]
    seconds = costs.factor_seconds(size, factor.nnz, n_threads)
    return Prediction(name, n_bytes <= allowed, n_bytes, size.nnz, size.gflop, seconds, basis)


def _factor_size(problem: Problem, matrix: csr_array, matrix_type: int, by_pieces: bool) -> tuple[FactorSize, str]:
    """Size of the factor of A (GENERAL) or of M (POSITIVE_DEFINITE), and the source of the prediction."""
    pin, n_threads, analyses = problem.pin, problem.n_threads, problem.analyses
    if analyses and matrix_type in analyses:
        return analyses[matrix_type].size, "analysis"
    if by_pieces and (size := costs.extrapolated(matrix, matrix_type, pin, n_threads)) is not None:
        return size, "pieces"
    kept = None if by_pieces else analyses
    pinned: PseudoInverse = (
        PinnedLU(matrix, pin, n_threads, kept)
        if matrix_type == pardiso.GENERAL
        else PinnedCholesky(matrix, pin, n_threads, problem.null, kept)
    )
    with pinned:
        return pinned.size, "analysis"
