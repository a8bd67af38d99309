"""What a method for the lowest eigenpairs gets, reports and returns."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Float64, Floats
from .davidson import SubspaceState
from .factorization import Analyses
from .pardiso import FactorizationError
from .rayleigh_ritz import NO_GROWTH, Growth, NullVector, RitzPairs, Tolerances
from .shared_matrix import Matrix, SharedMatrix

WINDOW = 8
"""Steps that the rate of convergence is measured over."""


class TimeLimit:
    """The longest time of a method in seconds, by operation counts."""

    def __init__(self, seconds: float = math.inf, exact: Callable[[], float] | None = None) -> None:
        """``exact`` computes the limit, once ``seconds`` are exceeded."""
        self.seconds, self._exact = seconds, exact

    def is_exceeded_by(self, seconds: float) -> bool:
        """Whether a method that takes so long is not started, or ends."""
        if seconds > self.seconds and self._exact is not None:
            self.seconds, self._exact = self._exact(), None
        return seconds > self.seconds


OVERESTIMATE = 20
"""No estimate from pieces was more than 13 times the exact seconds (``costs``); a twentieth counts as a lower bound."""


class LongFactorization(Exception):
    """The factor fits, but takes longer than ``Problem.time_limit`` allows.

    ``seconds`` is the predicted time, an estimate if its matrix was not analysed. A method that needs less than
    ``least_seconds`` is faster, so there is no need for the analysis, which can take longer than that method.
    """

    def __init__(self, name: str, seconds: float, *, is_estimate: bool = False) -> None:
        super().__init__(
            f"{name} would take about {seconds:,.0f} s{', judged by pieces of I - W' if is_estimate else ''}"
        )
        self.seconds, self.is_estimate = seconds, is_estimate
        self.least_seconds = seconds / OVERESTIMATE if is_estimate else seconds


class LongIteration(FactorizationError):
    """An iteration would take longer than ``Problem.time_limit`` allows."""


class SolverProgress(NamedTuple):
    method: str
    phase: str
    """The current work, with the size of the problem."""
    n_solves: int
    """Solves, each for one block of vectors; 0 in the other phases."""
    vector_error: float | None
    """The estimated error of a vector, that farthest from its bound; None if it is unknown."""
    bound: float | None
    """That bound: tol, or the limit of float64 if that is larger."""
    seconds_left: float | None
    """Predicted seconds until the method ends; None if they are unknown."""
    is_forecast: bool = False
    """Whether they come from operation counts, not from the steps so far."""


def _ignore(*_: object) -> None:
    return None


class Hooks(NamedTuple):
    begin: Callable[[str], None] = _ignore
    """Called with the name of each method before it starts, so that a caller can report which method was killed."""
    load_state: Callable[[str], SubspaceState | None] = _ignore
    """Returns the last state that this method saved in an earlier run of the same problem."""
    keep_state: Callable[[str, SubspaceState, bool], None] = _ignore
    """Called with a method, its state, and whether this may be the last state before ``max_steps``."""
    progress: Callable[[SolverProgress], None] = _ignore
    """Called with the state of the method, at least after each step of an iteration."""


NO_HOOKS = Hooks()


class Problem(NamedTuple):
    """The arguments of ``solve.bottom_eigenpairs`` and of every method."""

    factor: Matrix
    """A (rows, n), float64, the stacked local factors of one weak component; its null space is the constant."""
    n_vectors: int
    """Number of pairs m, 1 .. n - 1."""
    pin: int
    """A point in the closed class of the graph of a square A, by ``connectivity.closed_point``; else any point."""
    cost_matrix: Callable[[], csr_array]
    """Loads M (n, n); called by shift_invert and by multigrid on M."""
    tolerances: Tolerances
    """Bounds on residuals and vector errors; ``bottom_eigenpairs`` computes ``largest``."""
    max_memory: int
    """Bytes for A and everything the method allocates."""
    n_threads: int
    """Threads of all libraries used here; it overrides the environment."""
    max_steps: int
    """Largest number of steps of block Davidson, each with one block of vectors."""
    is_square: bool
    """Whether A is I - W (lle). The factor of another method can have n rows by chance."""
    start: Float64 | None = None
    """(n, any) approximations to the requested vectors."""
    hooks: Hooks = NO_HOOKS
    time_limit: TimeLimit = TimeLimit()
    """A factorization that is predicted to take longer is not started. Multigrid ends if its other steps would."""
    candidates: Callable[[], Floats] = lambda: np.empty((0, 0))
    """Loads (n, c) coordinates of the points, or their leading components, for multigrid: A nearly maps them to zero.
    (0, 0) if they are unknown."""
    null: NullVector = None
    """Unit null vector (n,) of M, without zeros; None for the constant."""
    flat: bool = False
    """Whether M may have more null vectors: functions that are affine on flat neighbourhoods (ltsa, hessian)."""
    growth: Growth = NO_GROWTH
    """More pairs, computed if the first ``n_vectors`` do not suffice."""
    analyses: Analyses | None = None
    """Symbolic analyses of the matrices of this problem, or of one with other values; new ones are added."""
    on_gpu: bool = False
    """Whether cycles of multigrid run on a GPU; the other work stays on the processor."""

    @property
    def planned_vectors(self) -> int:
        """Pairs that the memory is planned for: the first number of ``growth``."""
        return max([self.n_vectors, *self.growth.counts[:1]])

    @property
    def n(self) -> int:
        """Points, the columns of A."""
        return self.factor.rows.n if isinstance(self.factor, SharedMatrix) else int(self.factor.shape[1])

    @property
    def whole_factor(self) -> csr_array:
        """A in this process, for the methods that need all its rows."""
        assert isinstance(self.factor, csr_array)
        return self.factor


@dataclass(frozen=True)
class SolverStats:
    method: str
    """dense, pca, or a name in ``solvers.SOLVERS``."""
    reason: str
    """One line: the chosen method, the reason, and the methods tried before it."""
    factor_nnz: int = 0
    """Entries of the factor; 0 for methods without a factor."""
    predicted_bytes: int = 0
    """Memory predicted before the solve, including A."""
    n_solves: int = 0
    """Vectors to which M^+ was applied."""
    n_steps: int = 0
    """Steps of block Davidson."""
    n_refinements: int = 0
    """Corrections of the vectors after the Krylov space."""
    rounding_floor: float = 0.0
    """eps lambda_max, in the unit of an eigenvalue; divided by an eigenvalue, the smallest residual in float64."""
    requested_failed: str = ""
    """Why the requested method could not factor its matrix; another method then computed the pairs."""


class Outcome(NamedTuple):
    pairs: RitzPairs
    errors: Float64
    """(m,) estimated errors of the vectors."""
    stats: SolverStats


class Watch:
    """Reports the phases and steps of one method, and predicts the seconds left.

    Close to the end an iteration divides its errors by about the same number in each step. So the rate over the last
    WINDOW steps gives the time until the errors meet their bounds. Before there is a rate, the seconds that a phase
    began with count.
    """

    def __init__(self, method: str, report: Callable[[SolverProgress], None]) -> None:
        self.method, self._report = method, report
        self._phase, self._limit, self._end = "", 0, -math.inf
        self._steps: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)

    def begin(self, phase: str, limit: int = 0, seconds: float | None = None) -> None:
        """Begin a phase of at most ``limit`` solves (0: without solves).

        ``seconds`` are predicted until the method ends; None: as predicted before.
        """
        self._phase, self._limit = phase, limit
        self._end = self._end if seconds is None else time.monotonic() + seconds
        self._steps.clear()
        self._report(SolverProgress(self.method, phase, 0, None, None, self._predicted(), is_forecast=True))

    def step(self, n_solves: int, errors: Float64, bounds: Float64) -> None:
        """Report a step: estimated errors of the vectors, and their bounds (m,)."""
        worst = int(np.argmax(errors / bounds))
        error, bound = float(errors[worst]), float(bounds[worst])
        self._steps.append((time.monotonic(), n_solves, error / bound))
        measured = self._measured()
        left, is_forecast = (self._predicted(), True) if measured is None else (measured, False)
        self._report(SolverProgress(self.method, self._phase, n_solves, error, bound, left, is_forecast))

    def _measured(self) -> float | None:
        """Seconds until the bounds or the limit of solves are reached, by the last steps; None while they are few."""
        (began, solves_before, first), (now, solves, last) = self._steps[0], self._steps[-1]
        if len(self._steps) < 2 or not 0.0 < last < math.inf:
            return None
        seconds = (now - began) / max(solves - solves_before, 1) * max(self._limit - solves, 0)
        if last < first:
            return min(seconds, max(math.log(last), 0.0) * (now - began) / math.log(first / last))
        return seconds if len(self._steps) == WINDOW else None

    def _predicted(self) -> float | None:
        """The rest of the seconds that a phase began with; None if there are none left."""
        left = self._end - time.monotonic()
        return left if left > 0 else None
