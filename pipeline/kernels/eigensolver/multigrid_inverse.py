"""T, an approximate inverse of M = A' A by multigrid: two solves of a few W-cycles each. Loads numba."""

from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .multigrid import Hierarchy, MultigridError
from .rayleigh_ritz import TINY, multiply
from .threads import Threads

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

CYCLES = 4
"""Cycles of a solve. Fewer cost more steps of block Davidson, more do not save any."""
LEFT_ERROR, LEFT_SOLVES = 1e-3, 12
"""Error of the left null vector, and the solves that must be enough for it."""


class MultigridInverse:
    """T = A^+ A'^+ for a square A; a context manager that stops its threads at the end."""

    def __init__(self, factor: csr_array, candidates: npt.NDArray[np.floating], n_threads: int, seed: int) -> None:
        """Set up the hierarchy and the left null vector of A; see ``Hierarchy``.

        Raises: MultigridError.
        """
        self._threads, self._factor = Threads(n_threads), factor
        self.hierarchy = Hierarchy(factor, candidates, self._threads, seed)
        self._left = self._left_null_vector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._threads.__exit__(kind, error, at)

    def apply(self, block: F64) -> F64:
        """T times the block (n, b), orthogonal to the constant."""
        lengths = np.maximum(np.linalg.norm(block, axis=0), TINY)
        rhs = np.ascontiguousarray((block - block.mean(axis=0)) / lengths, dtype=np.float32)
        half = self._solve(rhs, transposed=True)
        half -= np.outer(self._left, self._left @ half).astype(np.float32)
        solution = self._solve(half, transposed=False) * lengths
        solution -= solution.mean(axis=0)
        return np.asarray(solution)

    def _solve(self, rhs: F32, *, transposed: bool) -> F32:
        """A x = rhs (n, b), or A' x = rhs, by conjugate residuals of B A x = B rhs, where B is one W-cycle.

        Eisenstat, Elman & Schultz 1983 (GCR). ||B (rhs - A x)|| is near the error of x. ||rhs - A x|| is not: where the
        solution is smooth, an x near zero can have the smaller residual.
        """
        threads, level = self._threads, self.hierarchy.levels[0]
        matrix = level.transposed if transposed else level.matrix
        error, solution = self.hierarchy.cycle(rhs, transposed=transposed), np.zeros_like(rhs)
        directions, images = list[F32](), list[F32]()
        for _ in range(CYCLES - 1):
            product = threads.combine(matrix, error, error, np.empty_like(rhs), (1.0, 0.0, 0.0))
            direction, image = error.copy(), self.hierarchy.cycle(product, transposed=transposed)
            for earlier, earlier_image in zip(directions, images, strict=True):
                shares = -threads.dots(earlier_image, image)
                threads.add(earlier, shares, direction)
                threads.add(earlier_image, shares, image)
            lengths = np.sqrt(threads.dots(image, image))
            scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(np.float32)
            direction *= scale
            image *= scale
            steps = threads.dots(image, error)
            threads.add(direction, steps, solution)
            threads.add(image, -steps, error)
            directions.append(direction)
            images.append(image)
        solution += error
        return solution

    def _left_null_vector(self) -> F64:
        """u (n,), A' u = 0: the constant, corrected with residuals in double precision. Raises MultigridError."""
        vector, transposed = np.ones((self._factor.shape[0], 1)), self._factor.T
        for _ in range(LEFT_SOLVES):
            residual = multiply(transposed, vector)
            size = max(float(np.linalg.norm(residual)), TINY)
            correction = size * self._solve((residual / size).astype(np.float32), transposed=True).astype(np.float64)
            vector -= correction
            error = float(np.linalg.norm(correction) / np.linalg.norm(vector))
            if error <= LEFT_ERROR:
                return np.asarray(vector[:, 0] / np.linalg.norm(vector))
        raise MultigridError(
            f"multigrid does not converge: {LEFT_SOLVES} solves for the left null vector of I - W leave an error of "
            f"{error:.0e}; the spectrum of I - W probably lies on both sides of zero"
        )
