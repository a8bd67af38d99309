"""The lowest eigenpairs of M = A' A by block Davidson, with products with A and A' and an approximate inverse of M.

In each step an approximate inverse T of M is applied to the residuals of the lowest Ritz pairs, and the results are
added to the basis. A full basis is reduced to its lowest pairs. Morgan & Scott 1986, SIAM J. Sci. Stat. Comput. 7,
817-825 (the method); Stathopoulos, Saad & Wu 1998, SIAM J. Sci. Comput. 19, 227-245 (thick restarts). Ritz values are
squares of the singular values of A V.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core.arrays import Float64
from .block_lanczos import orthonormalise
from .rayleigh_ritz import (
    NO_GROWTH,
    TINY,
    Growth,
    NullVector,
    RitzPairs,
    Tolerances,
    multiply,
    rayleigh_ritz,
    residual_vectors,
)
from .rows import Rows
from .shared_matrix import Matrix, rows_of

Inverse = Callable[[Float64], Float64]
ROWS_AT_ONCE = 8192
FASTEST = 0.1
"""A fall of the errors in a step that shows an accurate T, and the largest one that is expected of the next step."""
SMOOTHED, SMOOTHING_STEPS = 0.1, 4
"""Errors in the directions of eigenvalues above this share of the largest are smoothed, by a polynomial of this degree.
A roll of 2,000,000 points: the largest residual falls from 7.5 to 1.2; float64 allows 1.5."""


class SubspaceState(NamedTuple):
    """Everything needed to continue an iteration; the continued iteration gives the same bytes."""

    values: Float64
    """(k,) Ritz values, ascending."""
    vectors: Float64
    """(n, k) Ritz vectors."""
    n_steps: int
    """Steps so far: applications of T, each of which adds a block to the basis."""
    errors: Float64
    """(m,) ``Davidson.errors`` after the last step; ones before the first step."""
    previous_values: Float64
    """(m,) Ritz values one step earlier."""
    n_residual_steps: int = 0
    """Steps after the vector errors had met their bounds."""


class Davidson(NamedTuple):
    """Eigenpairs with estimates of their errors."""

    pairs: RitzPairs
    errors: Float64
    """(m,) sine of the angle between each eigenvector and the space of all vectors, estimated with T. They are
    measured before the last corrections; those above their bounds are then reduced as these are expected to do."""
    n_steps: int
    stopped: bool
    """Whether ``max_steps`` or ``each_step`` ended the iteration."""


class _Basis:
    """Orthonormal columns V, and V' M V. A V is not stored: it would double the memory."""

    def __init__(self, factor: Matrix, capacity: int, values: Float64, vectors: Float64) -> None:
        """Start from Ritz pairs (k,), (n, k)."""
        self._factor, self._rows = factor, rows_of(factor)
        self._vectors = np.empty((factor.shape[1], capacity))
        self._gram = np.zeros((capacity, capacity))
        self.used = len(values)
        self._vectors[:, : self.used] = vectors
        self._begin(values)

    def grow(self, block: Float64, null: NullVector) -> int:
        """Add the directions of a block (n, b), which is overwritten. Returns the columns before."""
        block /= np.maximum(self._rows.lengths(block), TINY)
        block, _ = orthonormalise(block, self.columns, null, self._rows)
        n_before, past = self.used, self.used + block.shape[1]
        self._vectors[:, self.used : past] = block
        images = multiply(self._factor.T, multiply(self._factor, block))
        columns = self._rows.dot(self._vectors[:, :past], images)
        self._gram[:past, self.used : past] = columns
        self._gram[self.used : past, :past] = columns.T
        self.used = past
        self._solve()
        return n_before

    def cut(self, n_columns: int) -> None:
        """Make the basis consist of the lowest Ritz vectors."""
        turn = self._turn[:, :n_columns]
        for begin, end in self._rows.cuts(self._vectors):
            for first in range(begin, end, ROWS_AT_ONCE):
                rows = slice(first, min(first + ROWS_AT_ONCE, end))
                self._vectors[rows, :n_columns] = self._vectors[rows, : self.used] @ turn
        self.used = n_columns
        self._begin(self.values[:n_columns].copy())

    def restart(self, n_before: int, width: int) -> bool:
        """Make the basis consist of Ritz vectors if it is full, or has reached its half. Returns whether it did.

        n_before: columns before the last ``grow``. width: columns of the next block. Many vectors are kept, since those
        above the wanted ones speed up the next steps.
        """
        capacity = len(self._gram)
        kept, is_full = max(2 * width, capacity // 2), self.used + width > capacity
        if not is_full and not n_before < kept <= self.used:
            return False
        self.cut(kept if is_full else self.used)
        return True

    def lowest(self, n_pairs: int) -> tuple[Float64, Float64, Float64]:
        """The lowest Ritz pairs: values (n_pairs,), coefficients C (used, n_pairs), and residuals M v - lambda v.

        The vectors are V C.
        """
        values, coefficients, images = self._ritz_pairs(n_pairs)
        residuals = multiply(self._factor.T, images)
        residuals -= self._rows.times(self.columns, coefficients * values)
        return values, coefficients, residuals

    def _ritz_pairs(self, n_pairs: int) -> tuple[Float64, Float64, Float64]:
        """Values, coefficients C and images A V C, whose singular values restore digits that are lost in V' M V."""
        turn = self._turn[:, :n_pairs]
        images = multiply(self._factor, self._rows.times(self.columns, turn))
        [right_vectors] = self._rows.agreed(np.linalg.svd(self._rows.triangle(images))[2][::-1].T)
        coefficients, images = turn @ right_vectors, self._rows.times(images, right_vectors)
        squares = self._rows.per_cut(lambda cut: np.einsum("ij,ij->j", images[cut], images[cut]), images)
        return squares, coefficients, images

    def pairs(self, n_pairs: int) -> RitzPairs:
        """The lowest Ritz pairs with their vectors. Frees the basis."""
        values, coefficients = self._ritz_pairs(n_pairs)[:2]
        pairs = RitzPairs(values, self._rows.times(self.columns, coefficients))
        self._vectors = self._vectors[:0].copy()
        return pairs

    @property
    def columns(self) -> Float64:
        """V (n, used), a view."""
        return self._vectors[:, : self.used]

    def _begin(self, values: Float64) -> None:
        self._gram[:] = 0.0
        self._gram[range(self.used), range(self.used)] = values
        self._solve()

    def _solve(self) -> None:
        self.values, self._turn = self._rows.agreed(*np.linalg.eigh(self._gram[: self.used, : self.used]))


def block_width(n_wanted: int, most: float = float("inf")) -> int:
    """Columns of a block: a multiple of four, with at least one guard vector, which speeds up convergence.

    At most ``most``, but at least one guard vector. For two or three pairs a block of eight columns took a step or two
    less, but 0.9 to 1.5 times the processor time and up to twice the memory: rolls, cubes of three and five dimensions,
    ECG, speech, images, forest cover type, of 30,000 to 1,000,000 points (2026-11-30). It was faster on a roll of
    2,000,000 points, 4 steps in place of 7, 0.8 of the time, and where many eigenvectors are clumps: forest cover type
    with a small reg, half the steps, 0.7 to 0.8 of the time.

    >>> [block_width(m) for m in (2, 3, 4, 10)]
    [4, 4, 8, 12]
    """
    return int(min(4 * (n_wanted // 4 + 1), max(most, n_wanted + 1)))


def most_pairs(max_columns: int) -> int:
    """Most pairs whose blocks, with two guard vectors or more, fit three times into a basis.

    >>> most_pairs(36), block_width(most_pairs(36))
    (10, 12)
    """
    return max_columns // 12 * 4 - 2


def first_state(
    factor: Matrix, start: Float64, n_given: int, n_wanted: int, inverse: Inverse, null: NullVector
) -> SubspaceState:
    """Ritz pairs in the span of the start block (n, b), b > m; T is first applied to all columns after ``n_given``."""
    block = start
    if n_given < start.shape[1]:
        block = np.concatenate([start[:, :n_given], inverse(np.array(start[:, n_given:], order="C"))], axis=1)
    basis, _ = orthonormalise(block, block[:, :0], null, rows_of(factor))
    pairs = rayleigh_ritz(factor, basis, block.shape[1])
    return SubspaceState(pairs.values, pairs.vectors, 1, np.ones(n_wanted), np.full(n_wanted, np.inf))


def lowest_pairs(
    factor: Matrix,
    inverse: Inverse,
    state: SubspaceState,
    tolerances: Tolerances,
    max_columns: int,
    max_steps: int,
    each_restart: Callable[[SubspaceState, bool], None],
    null: NullVector = None,
    each_step: Callable[[int, Float64, Float64], bool] = lambda n_steps, values, errors: True,
    *,
    flat: bool = True,
    max_residual_steps: float = float("inf"),
    growth: Growth = NO_GROWTH,
    max_width: float = float("inf"),
) -> Davidson:
    """The m lowest eigenpairs of M = A' A, orthogonal to its null vector; more of them if ``growth`` needs.

    Args:
        factor: A (rows, n).
        inverse: T, (n, b) -> (n, b), an approximate inverse of M on the vectors orthogonal to its null vector. It may
            overwrite its argument.
        state: result of ``first_state`` for m pairs, or a state that ``each_restart`` received in an iteration with the
            same arguments. Its arrays are freed if the caller does not keep them.
        tolerances: bounds on residuals and vector errors.
        max_columns: columns of the basis, at least 3 b.
        max_steps: largest number of applications of T, since the first state.
        each_restart: called with the first state and with the state after each restart, and with whether ``max_steps``
            may end the iteration before the next restart. The arrays of a state are overwritten after the call.
        null: unit vector (n,); None for the constant.
        each_step: called after each step with the steps so far, and values and errors (m,); returns whether to go on.
        flat: whether more null vectors are valid; if not, the first one ends the iteration.
        max_residual_steps: steps for the residuals alone, after the vector errors have met their bounds. Rounding
            errors of hubs can keep residuals above their bounds.
        max_width: most columns of a block, if that is more than the number of pairs.
    """
    n_wanted, restarted, stopped = len(state.errors), True, False
    width = min(block_width(n_wanted, max_width), len(state.values))
    basis, rows = _Basis(factor, max_columns, state.values, state.vectors), rows_of(factor)
    previous_values, errors = state.previous_values, state.errors
    n_steps, n_residual_steps = state.n_steps, state.n_residual_steps
    del state  # blocks of vectors need most of the memory of a large problem
    while True:
        # A state must determine all later steps. So it is only made where the basis consists of Ritz vectors alone, at
        # the beginning and after a restart.
        if restarted:
            each_restart(
                SubspaceState(basis.values, basis.columns, n_steps, errors, previous_values, n_residual_steps),
                n_steps + 1 + (max_columns - basis.used) // width > max_steps,
            )
        block_values, coefficients, residuals = basis.lowest(width)
        values = block_values[:n_wanted]
        relative = rows.lengths(residuals[:, :n_wanted]) / np.maximum(values, TINY)
        stopped = stopped or n_steps >= max_steps
        if stopped or (not flat and tolerances.has_null_vector(values)):
            return Davidson(
                _exact(factor, rows.times(basis.columns, coefficients), n_wanted, null), errors, n_steps, stopped
            )
        # T r is close to the error of a Ritz vector with residual r: a new direction. Its part outside the wanted
        # vectors measures the error.
        corrections = inverse(residuals)
        del residuals
        vectors = rows.times(basis.columns, coefficients[:, :n_wanted])
        previous_errors, errors = errors, outside(corrections[:, :n_wanted], vectors, rows)
        n_steps += 1
        stopped = not each_step(n_steps, values, errors)
        # Rayleigh-Ritz with the corrections costs no further application of T. Its errors are those of the next step.
        next_errors = expected_errors(errors, previous_errors, tolerances.vector_bounds(values))
        good = tolerances.settled(previous_values, values) and tolerances.met_by_vectors(next_errors, values)
        previous_values, n_residual_steps = values, n_residual_steps + int(good)
        ends = good and (tolerances.met_by_residuals(relative, values) or n_residual_steps > max_residual_steps)
        if ends:
            larger = growth.wanted(n_wanted, most_pairs(max_columns), lambda: vectors)  # noqa: B023
            if larger > n_wanted:
                n_wanted, width, n_residual_steps, ends = larger, block_width(larger, max_width), 0, False
                errors, previous_values = np.ones(larger), np.full(larger, np.inf)
        n_before = basis.grow(corrections, null)
        del corrections, vectors
        if ends:
            smoothed = smoothed_pairs(factor, basis.pairs(width), tolerances.largest).vectors
            return Davidson(_exact(factor, smoothed, n_wanted, null), next_errors, n_steps, stopped=False)
        restarted = basis.restart(n_before, width)


def outside(corrections: Float64, vectors: Float64, rows: Rows) -> Float64:
    """Lengths (m,) of the parts of the corrections (n, m) that are orthogonal to all vectors (n, m).

    Rayleigh-Ritz finds the rotations among the vectors, so they need no correction. Along the vectors with the lowest
    eigenvalues a correction mostly has amplified rounding errors of its residual.
    """
    return rows.lengths(corrections - rows.times(vectors, rows.dot(vectors, corrections)))


def expected_errors(errors: Float64, previous_errors: Float64, bounds: Float64) -> Float64:
    """Errors (m,) of the next step.

    If those above their bounds fell at least by FASTEST in the last step, they are expected to fall by half as many
    digits again, and at most by FASTEST. If they fell less, T is not accurate enough to expect anything. Before the
    second step nothing is known: ``previous_errors`` are ones.

    >>> expected_errors(np.array([1e-9, 4e-8]), np.array([1e-9, 1e-6]), np.array([1e-8, 1e-8]))
    array([1.e-09, 8.e-09])
    """
    above = errors > bounds
    if not above.any() or (previous_errors[above] >= 1.0).any():
        return errors
    rate = float((errors[above] / np.maximum(previous_errors[above], TINY)).max())
    return np.where(above, errors * max(np.sqrt(rate), FASTEST), errors) if rate <= FASTEST else errors


def smoothed_pairs(factor: Matrix, pairs: RitzPairs, largest: float) -> RitzPairs:
    """The pairs, with smaller errors in the directions of eigenvalues above SMOOTHED ``largest``.

    Corrections in float32 leave rounding errors there. They hardly change the vectors, but dominate the residuals.
    The errors are multiplied by a Chebyshev polynomial of M.
    """
    middle, half = largest * (1 + SMOOTHED) / 2, largest * (1 - SMOOTHED) / 2
    vectors = pairs.vectors
    for number in reversed(range(SMOOTHING_STEPS)):  # the smallest root first: it amplifies rounding errors
        root = middle + half * np.cos(np.pi * (number + 0.5) / SMOOTHING_STEPS)
        correction = residual_vectors(factor, RitzPairs(pairs.values, vectors))
        correction /= -root
        vectors = np.add(vectors, correction, out=correction)
    return RitzPairs(pairs.values, vectors)


def _exact(factor: Matrix, block: Float64, n_wanted: int, null: NullVector) -> RitzPairs:
    """The requested pairs in the span of the block (n, b), computed by singular values instead of a Gram matrix."""
    return rayleigh_ritz(factor, orthonormalise(block, block[:, :0], null, rows_of(factor))[0], n_wanted)
