"""Eigenproblems as the program makes them, M formed on demand, for the tests of the eigensolver."""

from typing import Any

from scipy.sparse import csr_array

from lle.kernels.eigensolver.problem import Problem
from lle.kernels.eigensolver.rayleigh_ritz import Tolerances
from lle.kernels.eigensolver.solve import Spectrum, bottom_eigenpairs
from lle.kernels.graph.connectivity import closed_point
from tests.support.sampled_factors import gram

PLENTY = 2**34


def problem(A: csr_array, m: int, **changed: Any) -> Problem:
    """The eigenproblem of A; ``changed`` are other arguments of ``Problem``, pin None as if not given."""
    if changed.get("pin") is None:
        changed["pin"] = closed_point(A) if A.shape[0] == A.shape[1] else 0
    arguments = {"tolerances": Tolerances(1e-8), "max_memory": PLENTY, "n_threads": 1, "max_steps": 60}
    is_square = A.shape[0] == A.shape[1] and not changed.get("flat") and changed.get("null") is None
    return Problem(A, m, is_square=is_square, cost_matrix=lambda: gram(A), **(arguments | changed))


def solve(A: csr_array, m: int, method: str, skip: dict[str, str] | None = None, **changed: Any) -> Spectrum:
    """The m lowest pairs of A' A."""
    return bottom_eigenpairs(problem(A, m, **changed), method, skip or {})
