"""T, an approximate inverse of M = A' A by multigrid: solves of 4 to 32 V-cycles, some of them repeated. Loads numba.

``FactorMultigrid`` solves with A' and with A, for a square A whose spectrum is on one side of zero. ``NormalMultigrid``
solves with M, for every method of the family and for any spectrum. T is not linear: the columns of a block are solved
together, up to a relative residual.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from scipy.sparse import csr_array

from ...core.arrays import Float64, Floats
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
ACCURATE, ROUGH, REDUCED, REPEATED_CYCLES = 0.1, 0.3, 0.3, 64
"""Block GMRES ends only if, in addition, its estimate of the errors is at most ACCURATE, see ``BlockGmres.error``.
Then the errors are estimated with the residual in float64. If a column has an estimate above ROUGH, there is another
solve, for the residual, unless there were REPEATED_CYCLES cycles, or the last space was too small: it left more than
the share REDUCED of ||C rhs|| of a column. Singular values of A below the rounding errors of float32 need this: an
eigensolve of a long strip (400,000 points, 9,500 neighbours long) took more than 25 steps with one solve, and takes 4.
Repeats also replace cycles for which there is no memory: with six cycles it takes 5 steps."""
LEFT_CYCLES = 64
"""Most cycles of block GMRES for the left null vector. They need less memory than a block of four columns and a basis
of three blocks, which are made later. On 100,000 points of a cube of five dimensions (reg 1e-3) the corrections do not
fall with 16 cycles. A roll of 20,000,000 points in 17 GiB failed with fewer than 64."""


class _Solver(AbstractContextManager["_Solver"]):
    """Solves with a hierarchy; a context manager that stops its threads at the end.

    ``n_cycles`` counts the cycles of the last ``apply``, and before it those of ``prepare``.
    """

    def __init__(
        self,
        exact: Matrix,
        matrix: Matrix,
        known: Float64,
        n_threads: int,
        device: Device | None,
        *,
        symmetric: bool,
        fits: Callable[[float], bool] = lambda fill: True,
    ) -> None:
        """Set up the hierarchy of B with near-null vectors ``known``, see ``Hierarchy``; solves run on the device.

        ``exact`` is B in float64, ``matrix`` in the type of the cycles.
        """
        self._exact, self._dtype = exact, matrix.dtype
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

    def prepare(self, most_cycles: int = MOST_CYCLES) -> None:
        """Called before ``apply`` with the largest number of cycles of a solve, at least 4."""
        self._most_cycles = most_cycles

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__(*exception)

    def _solve(self, rhs: Float64, *, transposed: bool, repeats: bool = True) -> Float64:
        """B x = rhs (n, b), or B' x = rhs, by block GMRES for C B x = C rhs, where C is one V-cycle. Overwrites rhs.

        With ``repeats`` also for the residual, which is computed in float64, as described for ROUGH.
        """
        matrix, solution, n_before = self._exact.T if transposed else self._exact, None, self.n_cycles
        start, lengths = self._cycle(rhs, transposed=transposed)
        while True:
            gmres = BlockGmres(self._operations.place(start), self._operations, self._most_cycles - 2)
            del start  # blocks of vectors need most of the memory
            found = np.zeros(len(lengths)) if solution is None else self._rows.lengths(solution)
            self._iterate(gmres, found / lengths, transposed=transposed)
            step = self._operations.fetch(gmres.solution()) * lengths
            smallest, reduction = gmres.smallest, gmres.reduction
            del gmres
            solution = step if solution is None else np.add(solution, step, out=solution)
            rhs -= multiply(matrix, step)
            del step
            start, lengths = self._cycle(rhs, transposed=transposed)
            is_rough = self._rows.lengths(start) * lengths > ROUGH * smallest * self._rows.lengths(solution)
            helps = reduction <= REDUCED and self.n_cycles - n_before < REPEATED_CYCLES
            if not (repeats and helps and is_rough.any()):
                solution += start * lengths
                return solution

    def _iterate(self, gmres: BlockGmres, found: Float64, *, transposed: bool) -> None:
        """Cycles until the residual and the error are small. ``found`` (m,): see ``BlockGmres.error``.

        ||C (rhs - B x)|| is near the error of x. ||rhs - B x|| is not: where the solution is smooth, an x near zero can
        have the smaller residual. Groups of points with few neighbours outside have errors that a cycle hardly changes.
        They need the space of all columns: with a space for each column, 1,750,000 delay vectors of speech take 16
        cycles in place of 12. In return the solution of a column has small parts of the others, and A^-1 amplifies the
        smooth ones. A cycle for the residual removes these.
        """
        operations, level = self._operations, self.hierarchy.levels[0]
        bound = min(SOLVED, LOCALISED / np.sqrt(self._rows.count(gmres.last)))
        matrix = level.transposed if transposed else level.matrix
        for n_cycles in range(2, self._most_cycles):
            product = operations.combine(matrix, gmres.last, gmres.last, np.empty_like(gmres.last), (1.0, 0.0, 0.0))
            gmres.add(self.hierarchy.cycle(product, transposed=transposed))
            del product
            if n_cycles >= LEAST_CYCLES and gmres.reduction <= bound and gmres.error(found) <= ACCURATE:
                break
        self.n_cycles += n_cycles - 1

    def _cycle(self, block: Float64, *, transposed: bool) -> tuple[Floats, Float64]:
        """The images of the columns of a block (n, b) at unit length under C, and their lengths (b,).

        Residuals can be below the smallest float32.
        """
        lengths = np.maximum(self._rows.lengths(block), TINY)
        unit = np.empty(block.shape, self._dtype)
        np.divide(block, lengths, out=unit, casting="same_kind")
        image = self.hierarchy.cycle(self._operations.place(unit), transposed=transposed)
        self.n_cycles += 1
        return self._operations.fetch(image), lengths


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
        if isinstance(factor, SharedMatrix):
            single: Matrix = factor.astype(np.float32)
        else:
            single = csr_array((factor.data.astype(np.float32), factor.indices, factor.indptr), shape=factor.shape)
        known = _near_null(factor.shape[0], candidates, None)
        super().__init__(factor, single, known, n_threads, device, symmetric=False, fits=fits)

    @property
    def n_bytes(self) -> int:
        """Bytes of the hierarchy, whose first level shares the pattern of A."""
        factor = self._exact
        shared = [factor.local, factor.T.local] if isinstance(factor, SharedMatrix) else [factor]
        return self.hierarchy.n_bytes - sum(int(each.indices.nbytes + each.indptr.nbytes) for each in shared)

    def prepare(self, most_cycles: int = MOST_CYCLES) -> None:
        """Also computes the left null vector of A.

        Raises MultigridError if the solves do not converge (``FAR_ERROR``).
        """
        super().prepare(LEFT_CYCLES)
        self._left = self._left_null_vector()
        super().prepare(most_cycles)

    def apply(self, block: Float64) -> Float64:
        """T times the block (n, b), orthogonal to the null vector. Overwrites the block."""
        self.n_cycles = 0
        block -= self._rows.mean(block)
        block[:] = self._solve(block, transposed=True)  # the caller keeps the block anyway
        for column, share in zip(block.T, self._rows.dot(self._left, block), strict=True):
            column -= share * self._left
        solution = self._solve(block, transposed=False)
        solution -= self._rows.mean(solution)
        return solution

    def _left_null_vector(self) -> Float64:
        """u (n,), A' u = 0: the constant, corrected with residuals in double precision.

        Raises MultigridError.
        """
        vector, transposed = np.ones((self._exact.shape[0], 1)), self._exact.T
        corrections = list[float]()
        for n_solves in range(1, MOST_LEFT_SOLVES + 1):
            correction = self._solve(multiply(transposed, vector), transposed=True, repeats=False)
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
        super().__init__(matrix, matrix, known, n_threads, device, symmetric=True)

    def apply(self, block: Float64) -> Float64:
        """T times the block (n, b), orthogonal to the null vector."""
        self.n_cycles = 0
        rhs = without_null(block, self._null) * self._scale
        return remove_null(self._solve(rhs, transposed=False) * self._scale, self._null)


def _near_null(n: int, candidates: Floats, null: NullVector) -> Float64:
    """The null vector, and its products with the columns of ``candidates`` (n, c): (n, 1 + c)."""
    known = np.ones((n, 1 + candidates.shape[1]))
    if candidates.size:
        known[:, 1:] = candidates
    return known if null is None else known * (null * np.sqrt(n))[:, None]
