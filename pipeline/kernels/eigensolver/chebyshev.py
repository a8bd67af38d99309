"""The bottom eigenpairs of M = A' A from products with A and A' alone: the block Chebyshev-Davidson method.

A Chebyshev polynomial of degree d is small on [cut, largest] and grows fast below the cut, so applying it to the best
vectors so far yields directions rich in the eigenvectors below the cut. They join a basis that is cut back when it is
full. Zhou & Saad 2007, SIAM J. Matrix Anal. Appl. 29, 954-971; Zhou 2010, J. Comput. Phys. 229, 9188-9200 (blocks, the
cut at the median Ritz value). This takes half to a quarter of the products of filtering one block again and again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from pipeline.kernels.eigensolver.block_lanczos import orthonormalise
from pipeline.kernels.eigensolver.normal_operator import Operator
from pipeline.kernels.eigensolver.null_vector import NullVector
from pipeline.kernels.eigensolver.rayleigh_ritz import EPS, RitzPairs, Tolerances, rayleigh_ritz, residual_norms

F64 = npt.NDArray[np.float64]

BOUND_STEPS = 12
"""Lanczos steps for the bound on the largest eigenvalue."""
GROWTH = 3.0
"""ln of twice the filter's growth from the cut to zero."""
SHORT = 40
"""Below this degree the new block replaces the basis: a Rayleigh-Ritz step on many columns would cost more."""


class SubspaceState(NamedTuple):
    """All that one step hands to the next: an iteration that goes on from it ends with the same bytes."""

    values: F64
    """(k,) Ritz values of the whole basis, ascending."""
    vectors: F64
    """(n, k) Ritz vectors."""
    n_degrees: int
    """Products with M of the whole block."""
    n_steps: int
    """Applications of the filter, each followed by a Rayleigh-Ritz step."""
    errors: F64
    """(m,) as in ``Filtered``, of the last step; ones before the first."""


class Filtered(NamedTuple):
    """What the iteration found."""

    pairs: RitzPairs
    errors: F64
    """(m,) sine of the angle by which the filter turned each vector before the last step."""
    n_degrees: int
    n_steps: int
    at_limit: bool
    """Whether the next step would have gone beyond the products allowed."""


def block_width(n_wanted: int) -> int:
    """Columns that are filtered together: the wanted ones and some that guard them.

    Eight columns take no longer than four: the products are bound by reading A.
    """
    return max(8, 4 * ((n_wanted + 5) // 4))


def largest_eigenvalue(factor: csr_array, seed: int) -> float:
    """An upper bound on the largest eigenvalue of M = A' A, above it by some per cent (Zhou & Li 2011).

    Largest Ritz value of some Lanczos steps plus the norm of the last residual.
    """
    vector = np.random.default_rng(seed).standard_normal(factor.shape[1])
    vector /= np.linalg.norm(vector)
    before, length = np.zeros_like(vector), 0.0
    diagonal, off = [], []
    for _ in range(min(BOUND_STEPS, factor.shape[1])):
        image = factor.T @ (factor @ vector) - length * before
        diagonal.append(float(vector @ image))
        image -= diagonal[-1] * vector
        length = float(np.linalg.norm(image))
        off.append(length)
        if length <= EPS * diagonal[0]:
            break
        before, vector = vector, image / length
    tridiagonal = np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1] + off[-1])


def filtered_subspace(
    factor: csr_array,
    operator: Operator,
    n_wanted: int,
    state: SubspaceState,
    tolerances: Tolerances,
    max_columns: int,
    max_degrees: int,
    each_step: Callable[[SubspaceState, bool], None],
    null: NullVector = None,
) -> Filtered:
    """The ``n_wanted`` lowest eigenpairs of M = A' A off its null vector.

    Args:
        factor: A (rows, n).
        operator: products with A and A'.
        n_wanted: number of pairs m.
        state: from ``first_state``, or one that ``each_step`` was given by an iteration with the same arguments.
        tolerances: when a pair is good enough, and an upper bound on the eigenvalues of M.
        max_columns: columns of the basis, at least 2 b.
        max_degrees: products of M with a block that are not exceeded.
        each_step: hears of the state after every step that was not the last, and once more of the state in which
            ``max_degrees`` ended the iteration, then with True: given more products, it goes on from there.
        null: unit vector (n,); None for the constant.
    """
    width, largest = block_width(n_wanted), tolerances.largest
    pairs, n_degrees, n_steps = RitzPairs(state.values, state.vectors), state.n_degrees, state.n_steps
    width, errors = min(width, pairs.vectors.shape[1]), state.errors[:n_wanted]
    while True:
        cut = _cut(pairs.values, n_wanted, width, largest)
        degree = max(2, int(np.ceil(GROWTH / 2 * np.sqrt(largest / cut))))
        if n_degrees + degree > max_degrees:
            each_step(SubspaceState(pairs.values, pairs.vectors, n_degrees, n_steps, errors), True)
            return Filtered(pairs.lowest(n_wanted), errors, n_degrees, n_steps, at_limit=True)
        block = chebyshev_filter(operator, np.ascontiguousarray(pairs.vectors[:, :width]), degree, cut, largest)
        errors = turned_by_filter(pairs.lowest(n_wanted), block[:, :n_wanted], degree, cut, largest)
        before, pairs = pairs.values[:n_wanted], _extended(factor, pairs, block, max_columns, degree < SHORT, null)
        n_degrees += degree
        n_steps += 1
        wanted = pairs.lowest(n_wanted)
        good = tolerances.met_by_vectors(errors, wanted.values) and tolerances.settled(before, wanted.values)
        if good and tolerances.met_by_residuals(residual_norms(factor, wanted), wanted.values):
            return Filtered(wanted, errors, n_degrees, n_steps, at_limit=False)
        each_step(SubspaceState(pairs.values, pairs.vectors, n_degrees, n_steps, errors), False)


def first_state(factor: csr_array, start: F64, null: NullVector = None) -> SubspaceState:
    """Ritz pairs of M in the span of the start block (n, b); b > m, the extra columns guard the wanted ones."""
    pairs = rayleigh_ritz(factor, orthonormalise(start, start[:, :0], null), start.shape[1])
    return SubspaceState(pairs.values, pairs.vectors, 0, 0, np.ones(len(pairs.values)))


def chebyshev_filter(operator: Operator, block: F64, degree: int, cut: float, largest: float) -> F64:
    """p(M) block for p(x) = T_degree of x mapped from [cut, largest] to [-1, 1]; block (n, b) in C order."""
    center, radius = (largest + cut) / 2, (largest - cut) / 2
    first = (1 / radius, -center / radius, 0.0)
    return operator.recurrence(block, first, (2 / radius, -2 * center / radius, -1.0), degree)


def turned_by_filter(pairs: RitzPairs, filtered: F64, degree: int, cut: float, largest: float) -> F64:
    """||p(M) v / p(lambda) - v|| of unit vectors v, divided by 1 - p(cut) / p(lambda): (m,).

    The filter damps every other part of v against v itself, so what it takes away is the error. Rounding hardly enters,
    unlike in ||M v - lambda v||, which a perfect v rounded to float64 does not make smaller than eps lambda_max.
    """
    mapped = (largest + cut - 2 * pairs.values) / (largest - cut)  # above 1 for eigenvalues below the cut
    at_value = np.cosh(degree * np.arccosh(np.maximum(mapped, 1.0)))
    sign = -1.0 if degree % 2 else 1.0
    change = np.linalg.norm(filtered * (sign / at_value) - pairs.vectors, axis=0)
    errors: F64 = change / np.maximum(1.0 - 1.0 / at_value, EPS)
    return errors


def _cut(values: F64, n_wanted: int, width: int, largest: float) -> float:
    """Where the wanted part of the spectrum ends: the median Ritz value; of one block alone the last."""
    n_kept = len(values)
    cut = values[-1] if n_kept == width else values[max(n_kept // 2, n_wanted)]
    return max(float(cut), EPS * largest)


def _extended(
    factor: csr_array, pairs: RitzPairs, block: F64, max_columns: int, replace: bool, null: NullVector
) -> RitzPairs:
    """All Ritz pairs of the old basis and the new block; of a full basis only the lowest pairs stay."""
    width = block.shape[1]
    if replace:
        return rayleigh_ritz(factor, orthonormalise(block, block[:, :0], null), width)
    kept = pairs.vectors if pairs.vectors.shape[1] + width <= max_columns else pairs.vectors[:, : 2 * width]
    basis = np.concatenate([kept, orthonormalise(block, kept, null)], axis=1)
    return rayleigh_ritz(factor, basis, basis.shape[1])
