"""Block Lanczos with full orthogonalisation and thick restarts, for the largest eigenpairs of a symmetric operator.

Blocks have two advantages over single vectors. A sparse factor solves for four columns in little more than the time of
one, and a block of b columns finds eigenvalues of multiplicity up to b. Golub & Underwood 1977 (block Lanczos), Wu &
Simon 2000 (thick restarts).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core.arrays import Float64
from .rayleigh_ritz import EPS, NO_GROWTH, Growth, NullVector, without_null
from .rows import ALL_ROWS, Rows

LOCKED = 1e-12
"""Errors of pairs that are left out of the projected matrix if its rounding errors, relative to the largest value, hide
the other wanted ones: where eigenvalues spread over many digits, as with nearly closed groups of points."""


class KrylovSpace(NamedTuple):
    """A Krylov space, and the values and errors of the requested pairs in it."""

    basis: Float64
    """(n, k) orthonormal columns, in Fortran order."""
    values: Float64
    """(m,) Ritz values of the operator, descending."""
    errors: Float64
    """(m,) ||operator y - value y|| / value of the Ritz vectors y, by the Lanczos relation; 0 for locked pairs."""
    n_applied: int
    """Columns to which the operator was applied."""


def block_lanczos(
    apply: Callable[[Float64], Float64],
    start: Float64,
    n_wanted: int,
    max_columns: int,
    tol: float,
    max_applied: int,
    null: NullVector = None,
    each_step: Callable[[int, Float64], None] = lambda n_applied, errors: None,
    growth: Growth = NO_GROWTH,
) -> KrylovSpace:
    """A Krylov space with the ``n_wanted`` largest eigenpairs of ``apply``, orthogonal to its null vector.

    If these pairs do not suffice for ``growth``, the space is extended to more.

    The iteration also ends if the space is exhausted, that is if fewer than b directions orthogonal to the null vector
    remain. The result is then exact.

    Args:
        apply: symmetric operator (n, b) -> (n, b); maps its null vector to zero.
        start: (n, b) start block.
        n_wanted: number of pairs m.
        max_columns: largest number of basis columns before a restart from the best Ritz vectors; at least m + 3 b.
        tol: bound on ``KrylovSpace.errors``.
        max_applied: number of columns passed to ``apply`` after which the iteration ends without convergence.
        null: unit vector (n,); None for the constant.
        each_step: called after each block with the columns so far and ``KrylovSpace.errors``.
    """
    n, width = start.shape
    capacity = min(max_columns, n - 1)
    basis = np.empty((n, capacity), order="F")
    projected, locked = np.zeros((capacity, capacity)), np.empty(0)
    new, used, n_applied = orthonormalise(start, basis[:, :0], null)[0], 0, 0
    while True:
        stop, n_locked = used + width, len(locked)
        basis[:, used:stop] = new
        image = apply(new)
        n_applied += width
        columns = basis[:, :stop].T @ image
        projected[:stop, used:stop] = columns
        projected[used:stop, :stop] = columns.T
        new, coupling = orthonormalise(image, basis[:, :stop], null)
        square = projected[n_locked:stop, n_locked:stop]
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh((square + square.T) / 2))
        m = min(n_wanted, stop)
        errors = np.linalg.norm(coupling @ vectors[-width:, : m - n_locked], axis=0) / np.abs(values[: m - n_locked])
        found, errors = np.append(locked, values)[:m], np.append(np.zeros(n_locked), errors)
        each_step(n_applied, errors)
        exhausted, converged = stop + width > n - 1, m == n_wanted and bool((errors <= tol).all())
        if converged:
            n_wanted = growth.wanted(m, capacity - 3 * width, lambda: _ritz(basis, vectors, n_locked, stop)[:, :m])  # noqa: B023
        if (converged and m == n_wanted) or n_applied >= max_applied or exhausted:
            return KrylovSpace(basis[:, :stop], found, errors, n_applied)
        n_safe = int(np.argmin(np.append(errors <= min(LOCKED, tol), False)))
        used, n_safe = stop, min(n_safe, stop - width)  # Ritz vectors are left for the next block
        if n_safe > n_locked and EPS * abs(values[0]) > tol * abs(found[-1]):
            # the projected matrix has lost the small values, so the space begins again, next to the locked vectors
            basis[:, :stop] = _ritz(basis, vectors, n_locked, stop)
            locked, used, new = found[:n_safe], n_safe, basis[:, n_safe : n_safe + width].copy()
        elif stop + width > capacity:
            used = n_wanted + width
            basis[:, :used] = _ritz(basis, vectors, n_locked, stop)[:, :used]
            projected[:used, :used] = np.diag(np.append(locked, values)[:used])


def _ritz(basis: Float64, vectors: Float64, n_locked: int, stop: int) -> Float64:
    """The locked vectors, and the Ritz vectors of the other columns: (n, stop)."""
    return np.concatenate([basis[:, :n_locked], basis[:, n_locked:stop] @ vectors], axis=1)


def orthonormalise(
    block: Float64, against: Float64, null: NullVector = None, rows: Rows = ALL_ROWS
) -> tuple[Float64, Float64]:
    """(Q (n, b), R (b, b)): Q R is the part of the block orthogonal to the null vector and to ``against`` (n, k).

    Q has orthonormal columns. A column that is linearly dependent on the others is replaced by some unit vector
    orthogonal to all of them.
    """
    columns, triangle = rows.qr(_without(block, against, null, rows))
    # the second pass removes rounding errors of the first, which are large for nearly dependent columns
    columns, correction = rows.qr(_without(columns, against, null, rows))
    return columns, correction @ triangle


def _without(block: Float64, against: Float64, null: NullVector, rows: Rows) -> Float64:
    block = without_null(block, null, rows)
    if against.shape[1]:
        shares = rows.dot(against, block).T
        for first, past in rows.cuts(block):  # in Fortran order as the block: twice as fast
            block[first:past] -= (shares @ against[first:past].T).T
    return block
