"""Progress of an eigensolver method: its products, the worst residual, and the seconds left."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

WINDOW = 8
"""Steps that the rate of convergence is measured over."""


class SolverProgress(NamedTuple):
    """The state of a method."""

    method: str
    phase: str
    """The current work, with the size of the problem."""
    n_products: int
    """Products of M, or solves with its factor, each with one block of vectors; 0 in the other phases."""
    residual: float | None
    """The residual farthest from its bound; None if it is unknown."""
    bound: float | None
    """That bound: tol, or the limit of float64 if that is larger."""
    seconds_left: float | None
    """Predicted seconds of this phase; None if they are unknown."""


class Watch:
    """Reports the phases and steps of one method, and predicts the seconds left.

    Close to the end an iteration with a constant preconditioner divides its errors by a constant in each step. The
    rate over the last WINDOW steps therefore gives the time until the errors meet their bounds.
    """

    def __init__(self, method: str, report: Callable[[SolverProgress], None]) -> None:
        self.method, self._report = method, report
        self._phase, self._limit = "", 0
        self._steps: deque[tuple[float, int, float]] = deque(maxlen=WINDOW)

    def begin(self, phase: str, limit: int = 0, seconds: float | None = None) -> None:
        """A phase begins, of at most ``limit`` products (0: of no products), and of about ``seconds``."""
        self._phase, self._limit = phase, limit
        self._steps.clear()
        self._report(SolverProgress(self.method, phase, 0, None, None, seconds))

    def step(self, n_products: int, residuals: F64, bounds: F64, other_ratio: float = 0.0) -> None:
        """Report a step: residuals and bounds (m,); ``other_ratio`` is the largest ratio of other errors to bounds."""
        ratios = residuals / bounds
        worst = int(np.argmax(ratios))
        self._steps.append((time.monotonic(), n_products, float(max(ratios[worst], other_ratio))))
        self._report(
            SolverProgress(
                self.method, self._phase, n_products, float(residuals[worst]), float(bounds[worst]), self._left()
            )
        )

    def _left(self) -> float | None:
        """Seconds until the bounds or the limit of products are reached; None if the errors do not decrease."""
        (began, products_before, first), (now, products, last) = self._steps[0], self._steps[-1]
        if len(self._steps) < 2 or not 0.0 < last < math.inf:
            return None
        seconds = (now - began) / max(products - products_before, 1) * max(self._limit - products, 0)
        if last < first:
            return min(seconds, max(math.log(last), 0.0) * (now - began) / math.log(first / last))
        return seconds if len(self._steps) == WINDOW else None
