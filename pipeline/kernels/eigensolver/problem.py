"""What a method for the lowest eigenpairs gets and returns."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .analysis import NO_ANALYSES, Analyses
from .davidson import SubspaceState
from .normal_operator import NormalOperator, Operator
from .null_vector import NullVector
from .rayleigh_ritz import RitzPairs, Tolerances
from .watch import SolverProgress

F64 = npt.NDArray[np.float64]


class LongFactorization(Exception):
    """The factor fits, but takes longer than ``Problem.max_factor_seconds``; ``seconds`` is the predicted time."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name} would take about {seconds:,.0f} s")
        self.seconds = seconds


def _ignore(*_: object) -> None:
    return None


class Hooks(NamedTuple):
    """Callbacks of the caller."""

    begin: Callable[[str], None] = _ignore
    """Called with the name of each method before it starts, so that a caller can report which method was killed."""
    load_state: Callable[[], SubspaceState | None] = _ignore
    """Returns the last saved state of an earlier run of the same problem."""
    keep_state: Callable[[SubspaceState, bool], None] = _ignore
    """Called with states of block Davidson, and with whether this may be the last state before ``max_degrees``."""
    progress: Callable[[SolverProgress], None] = _ignore
    """Called with the state of the method, at least after each step of an iteration."""
    analyses: Analyses = NO_ANALYSES
    """Symbolic analyses of earlier runs."""
    operator: Callable[[csr_array, int], AbstractContextManager[Operator]] = NormalOperator
    """Creates the operator for polynomials of A, from (A, number of threads)."""


NO_HOOKS = Hooks()
NO_CANDIDATES = np.empty((0, 0))


class Problem(NamedTuple):
    """Arguments of every method."""

    factor: csr_array
    """A (rows, n)."""
    n_vectors: int
    pin: int
    cost_matrix: Callable[[], csr_array]
    """Loads M (n, n)."""
    tolerances: Tolerances
    max_memory: int
    """Bytes for A and everything the method allocates."""
    n_threads: int
    start: F64 | None
    """(n, any) approximations to the requested vectors."""
    hooks: Hooks
    max_degrees: int
    """Largest number of products of M with a block of vectors."""
    max_factor_seconds: float = float("inf")
    """Longest factorization, in predicted seconds."""
    candidates: npt.NDArray[np.floating] = NO_CANDIDATES
    """(n, c) coordinates of the points, which A nearly maps to zero; (0, 0) if they are unknown."""
    null: NullVector = None
    """Unit null vector (n,) of M; None for the constant."""
    stop_early: bool = False
    """Whether polynomial ends as soon as ``max_degrees`` is known to be too small."""
    flat: bool = False
    """Whether more null vectors are a valid result instead of an error."""

    @property
    def n(self) -> int:
        """Points, the columns of A."""
        return int(self.factor.shape[1])


@dataclass(frozen=True)
class SolverStats:
    """How the eigenpairs were computed."""

    method: str
    """dense, factored, multigrid, shift_invert or polynomial."""
    reason: str
    """One line: the chosen method, the reason, and the methods tried before it."""
    factor_nnz: int = 0
    """Entries of the factor; 0 for methods without a factor."""
    predicted_bytes: int = 0
    """Memory predicted before the solve, including A."""
    n_solves: int = 0
    """Vectors to which M^+ was applied."""
    n_degrees: int = 0
    """Products of M with a block of vectors."""
    n_refinements: int = 0
    """Corrections of the vectors after the Krylov space."""
    rounding_floor: float = 0.0
    """eps lambda_max, in the unit of an eigenvalue; divided by an eigenvalue, the smallest residual in float64."""
    requested_failed: str = ""
    """Why the requested method could not factor its matrix; another method then computed the pairs."""


class Outcome(NamedTuple):
    """The result of a method."""

    pairs: RitzPairs
    errors: F64
    """(m,) estimated errors of the vectors."""
    stats: SolverStats
