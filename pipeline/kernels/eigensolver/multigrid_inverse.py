"""T, an approximate inverse of M = A' A by multigrid: solves of 4 to 32 V-cycles each. Loads numba.

``FactorMultigrid`` solves with A' and with A, for a square A whose spectrum is on one side of zero. ``NormalMultigrid``
solves with M, for every method of the family and for any spectrum. T is not linear: the columns of a block are solved
together, up to a relative residual.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Float32, Float64, Floats
from .block_gmres import BlockGmres
from .costs import MOST_CYCLES
from .device import Device, Operations
from .multigrid import Hierarchy, MultigridError, normalised
from .rayleigh_ritz import TINY, NullVector, multiply, remove_null, without_null
from .shared_matrix import Matrix, SharedMatrix, rows_of
from .threads import SharedThreads, Threads

LEAST_CYCLES, SOLVED, LOCALISED = 3, 1e-2, 3.0
"""Block GMRES ends if it has had LEAST_CYCLES cycles, and ||C (rhs - B x)|| is at most SOLVED and LOCALISED / sqrt(n)
times ||C rhs||. One more cycle follows. Errors at a few points are a small share of the norm, but limit the next steps:
LOCALISED bounds a single entry, relative to the mean entry of C rhs. On large cubes of three dimensions a smaller bound
makes a step hardly longer, and the errors fall several times as far in it."""
LEFT_ERROR, LEFT_SOLVES, MOST_LEFT_SOLVES, DIVERGED, FAR_ERROR = 1e-3, 4, 60, 1e2, 0.1
"""The left null vector must reach the error LEFT_ERROR in at most MOST_LEFT_SOLVES solves. Its error is the correction
that the next solve would make, if corrections go on to fall as between the last two. After LEFT_SOLVES, three solves
must halve the corrections. One above DIVERGED ends the solves. They end with one above FAR_ERROR if the spectrum of
A lies on both sides of zero, or if groups of points have nearly all their weights among themselves: the shares of these
groups in the left null vector are then nearly undetermined."""
ROUGH, PROBE_COLUMNS = 0.05, 8
"""If a second solve with A, for the residual of the first in float64, changes solutions for random right-hand sides by
more than this share, each solve with A is repeated so. On large surfaces the lowest singular value of A is near the
rounding errors of float32: a roll of 300,000 points has the share 0.06, and then takes fewer steps of block Davidson.
Other shares: rolls of 100,000 and 2,000,000 points 0.007 and 0.18, cubes of three dimensions with 100,000 and
1,000,000 points 0.02 and 0.03, delay vectors of speech 0.005, or 0.02 with one column, because the Krylov space of a
column is smaller."""
LEFT_CYCLES = 64
"""Most cycles of a solve for the left null vector. They need less memory than a block of four columns and a basis of
three blocks, which are made later. On 100,000 points of a cube of five dimensions (reg 1e-3) the corrections do not
fall with 16 cycles. A roll of 20,000,000 points in 17 GiB failed with fewer than 64."""


class _Solver(AbstractContextManager["_Solver"]):
    """Solves with a hierarchy; a context manager that stops its threads at the end.

    ``n_cycles`` counts the cycles of the last ``apply``.
    """

    def __init__(
        self,
        matrix: Matrix,
        known: Float64,
        n_threads: int,
        device: Device | None,
        *,
        symmetric: bool,
        fits: Callable[[float], bool] = lambda fill: True,
    ) -> None:
        """Set up the hierarchy of B with near-null vectors ``known``, see ``Hierarchy``; solves run on the device."""
        self._rows, self._most_cycles, self.n_cycles = rows_of(matrix), MOST_CYCLES, 0
        self._threads = SharedThreads(n_threads, self._rows) if isinstance(matrix, SharedMatrix) else Threads(n_threads)
        self._operations: Operations = self._threads if device is None else device
        self.hierarchy = Hierarchy(matrix, known, self._threads, symmetric=symmetric, fits=fits)
        if device is not None:
            self.hierarchy.move(device)

    @property
    def n_bytes(self) -> int:
        """Bytes of the hierarchy."""
        return self.hierarchy.n_bytes

    def prepare(self, most_cycles: int = MOST_CYCLES, width: int = PROBE_COLUMNS) -> None:
        """Called before ``apply`` with the largest number of cycles of a solve, at least 4, and the width of blocks."""
        self._most_cycles = most_cycles

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__(*exception)

    def _solve(self, rhs: Floats, *, transposed: bool) -> Floats:
        """B x = rhs (n, b), or B' x = rhs, by block GMRES for C B x = C rhs, where C is one V-cycle. Overwrites rhs.

        ||C (rhs - B x)|| is near the error of x. ||rhs - B x|| is not: where the solution is smooth, an x near zero can
        have the smaller residual. Groups of points with few neighbours outside have errors that a cycle hardly changes.
        They need the space of all columns: with a space for each column, 1,750,000 delay vectors of speech take 16
        cycles in place of 12. In return the solution of a column has small parts of the others, and A^-1 amplifies the
        smooth ones. A cycle for the residual removes these.
        """
        operations, level, rhs = self._operations, self.hierarchy.levels[0], self._operations.place(rhs)
        matrix = level.transposed if transposed else level.matrix
        bound = min(SOLVED, LOCALISED / np.sqrt(self._rows.count(rhs)))
        gmres = BlockGmres(self.hierarchy.cycle(rhs, transposed=transposed), operations, self._most_cycles - 2)
        for n_cycles in range(2, self._most_cycles):
            product = operations.combine(matrix, gmres.last, gmres.last, np.empty_like(gmres.last), (1.0, 0.0, 0.0))
            gmres.add(self.hierarchy.cycle(product, transposed=transposed))
            del product
            if n_cycles >= LEAST_CYCLES and gmres.reduction <= bound:
                break
        solution = gmres.solution()
        self.n_cycles += n_cycles + 1
        del gmres  # blocks of vectors need most of the memory
        residual = operations.combine(matrix, solution, rhs, rhs, (-1.0, 1.0, 0.0))
        solution += self.hierarchy.cycle(residual, transposed=transposed)
        return operations.fetch(solution)


class FactorMultigrid(_Solver):
    """T = A^+ A'^+ for a square A; the numbers of a cycle are float32."""

    def __init__(
        self,
        factor: Matrix,
        candidates: Floats,
        n_threads: int,
        device: Device | None = None,
        fits: Callable[[float], bool] = lambda fill: True,
    ) -> None:
        """Set up the hierarchy of A (n, n), which has ones on the diagonal.

        ``candidates`` (n, c) are vectors that A nearly maps to zero, such as the coordinates of the points; c may be 0.
        ``fits``: see ``Hierarchy``. Raises MultigridError; see there.
        """
        self._factor = factor
        if isinstance(factor, SharedMatrix):
            single: Matrix = factor.astype(np.float32)
        else:
            single = csr_array((factor.data.astype(np.float32), factor.indices, factor.indptr), shape=factor.shape)
        known = _near_null(factor.shape[0], candidates, None)
        super().__init__(single, known, n_threads, device, symmetric=False, fits=fits)

    @property
    def n_bytes(self) -> int:
        """Bytes of the hierarchy, whose first level shares the pattern of A."""
        factor = self._factor
        shared = [factor.local, factor.T.local] if isinstance(factor, SharedMatrix) else [factor]
        return self.hierarchy.n_bytes - sum(int(each.indices.nbytes + each.indptr.nbytes) for each in shared)

    def prepare(self, most_cycles: int = MOST_CYCLES, width: int = PROBE_COLUMNS) -> None:
        """Also computes the left null vector of A, and probes the rounding errors with blocks of this width.

        Raises MultigridError if the solves do not converge (``FAR_ERROR``).
        """
        super().prepare(LEFT_CYCLES)
        self._left = self._left_null_vector()
        super().prepare(most_cycles)
        self._is_rough = self._changed_by_residual(min(width, PROBE_COLUMNS)) > ROUGH

    def apply(self, block: Float64) -> Float64:
        """T times the block (n, b), orthogonal to the null vector. Overwrites the block."""
        self.n_cycles = 0
        block -= self._rows.mean(block)
        half = self._in_float32(block, transposed=True, out=block)  # blocks of vectors need most of the memory
        for column, share in zip(half.T, self._rows.dot(self._left, half), strict=True):
            column -= share * self._left
        solution = self._in_float32(half, transposed=False)
        if self._is_rough:
            solution += self._correction(half, solution)
        solution -= self._rows.mean(solution)
        return solution

    def _correction(self, rhs: Float64, solution: Float64) -> Float64:
        """Solve with A for the residuals of ``solution`` (n, b), computed in float64."""
        residual = multiply(self._factor, solution)
        unit, lengths = self._unit_columns(np.subtract(rhs, residual, out=residual))
        del residual
        return np.asarray(self._solve(unit, transposed=False) * lengths)

    def _changed_by_residual(self, n_columns: int) -> float:
        """Share of the solutions, for random columns, that a solve for their residuals changes."""
        block = self._rows.random((self._factor.shape[0], n_columns))
        block -= np.outer(self._left, self._rows.dot(self._left, block))
        solution = self._in_float32(block, transposed=False)
        changes = self._rows.lengths(self._correction(block, solution))
        return float(np.linalg.norm(changes) / np.linalg.norm(self._rows.lengths(solution)))

    def _in_float32(self, rhs: Float64, *, transposed: bool, out: Float64 | None = None) -> Float64:
        """Solve with A, or A', for ``rhs`` (n, b); ``out`` may be ``rhs``."""
        unit, lengths = self._unit_columns(rhs)
        return np.multiply(self._solve(unit, transposed=transposed), lengths, out=out)

    def _unit_columns(self, block: Float64) -> tuple[Float32, Float64]:
        """The columns of a block (n, b) at unit length in float32, and their lengths.

        Residuals can be below the smallest float32.
        """
        squares = self._rows.per_cut(lambda cut: np.einsum("ij,ij->j", block[cut], block[cut]), block)
        lengths = np.maximum(np.sqrt(squares), TINY)
        unit = np.empty(block.shape, np.float32)
        return np.divide(block, lengths, out=unit, casting="same_kind"), lengths

    def _left_null_vector(self) -> Float64:
        """u (n,), A' u = 0: the constant, corrected with residuals in double precision.

        Raises MultigridError.
        """
        vector, transposed = np.ones((self._factor.shape[0], 1)), self._factor.T
        corrections = list[float]()
        for n_solves in range(1, MOST_LEFT_SOLVES + 1):
            correction = self._in_float32(multiply(transposed, vector), transposed=True)
            vector -= correction
            length = self._rows.lengths(vector)
            last = float((self._rows.lengths(correction) / length)[0])
            corrections.append(last)
            if last <= LEFT_ERROR or (n_solves > 1 and last**2 <= LEFT_ERROR * corrections[-2]):
                return np.asarray(vector[:, 0] / length)
            if not last < DIVERGED or (n_solves >= LEFT_SOLVES and last > corrections[-4] / 2):
                break
        cause = (
            "; the spectrum of I - W lies on both sides of zero, or groups of points have nearly all their weights "
            "among themselves"
        )
        raise MultigridError(
            "multigrid does not converge: the solves for the left null vector of I - W leave an error of "
            f"{last:.0e}{cause if last >= FAR_ERROR else ''}"
        )


class NormalMultigrid(_Solver):
    """T = S (S M S)^+ S with a diagonal S, for any M; all numbers are float64."""

    def __init__(
        self, cost_matrix: csr_array, candidates: Floats, null: NullVector, n_threads: int, device: Device | None = None
    ) -> None:
        """Set up the hierarchy of M (n, n) with the unit null vector ``null``, None for the constant.

        ``candidates`` (n, c): see ``FactorMultigrid``. Raises MultigridError; see ``Hierarchy``.
        """
        matrix, scale = normalised(cost_matrix)
        self._scale, self._null = scale[:, None], null
        known = _near_null(cost_matrix.shape[0], candidates, null) / self._scale
        super().__init__(matrix, known, n_threads, device, symmetric=True)

    def apply(self, block: Float64) -> Float64:
        """T times the block (n, b), orthogonal to the null vector."""
        self.n_cycles = 0
        lengths = np.maximum(np.linalg.norm(block, axis=0), TINY)
        rhs = np.ascontiguousarray(without_null(block, self._null) / lengths * self._scale)
        solution = np.asarray(self._solve(rhs, transposed=False) * self._scale * lengths)
        return remove_null(solution, self._null)


def _near_null(n: int, candidates: Floats, null: NullVector) -> Float64:
    """The null vector, and its products with the columns of ``candidates`` (n, c): (n, 1 + c)."""
    known = np.ones((n, 1 + candidates.shape[1]))
    if candidates.size:
        known[:, 1:] = candidates
    return known if null is None else known * (null * np.sqrt(n))[:, None]
