"""Polynomial smoothers of multigrid, from the Ritz values of a few Arnoldi steps. Sums are those of all rows."""

from typing import NamedTuple

import numpy as np

from ...core.arrays import Float64, Floats
from .rayleigh_ritz import TINY
from .shared_matrix import Matrix, n_rows, rows_of

SMOOTHED_BASIS = 4 / 3
"""omega times the largest absolute eigenvalue of B (Vanek et al. 1996)."""
ARNOLDI_STEPS = 10
"""Steps for the spectrum of a level."""
SMOOTHED, SMOOTHED_SYMMETRIC = 0.1, 0.05
"""The smoother damps eigenvalues whose real parts are above this share of the largest absolute value."""


class Smoother(NamedTuple):
    """One step is x <- x + (first + second B) r, which multiplies errors by 1 - first B - second B^2."""

    steps: tuple[tuple[float, float], ...]
    """first and second of each step."""
    omega_r: float
    """R = P0' (I - omega_r B)."""
    omega_p: float
    """P = (I - omega_p B) P0."""


def smoother_of(matrix: Matrix, *, symmetric: bool) -> Smoother:
    """For a symmetric matrix a Chebyshev polynomial of degree four, in two steps.

    Otherwise the least squares of one step on the Ritz values of a few Arnoldi steps. The polynomial of two GMRES steps
    would be as good on most of the spectrum, but amplifies isolated eigenvalues at its end.
    """
    hessenberg = _arnoldi(matrix)
    ritz_values = np.linalg.eigvals(hessenberg[:-1])
    radius = float(np.abs(ritz_values).max())
    if symmetric:
        high = radius + float(hessenberg[-1, -1])  # a bound on the spectrum (Zhou & Li 2011)
        middle, half = high * (1 + SMOOTHED_SYMMETRIC) / 2, high * (1 - SMOOTHED_SYMMETRIC) / 2
        inner, outer = half * np.cos(3 * np.pi / 8), half * np.cos(np.pi / 8)
        products = middle**2 - outer**2, middle**2 - inner**2
        steps = tuple((float(2 * middle / product), float(-1 / product)) for product in products)
        return Smoother(steps, SMOOTHED_BASIS / high, SMOOTHED_BASIS / high)
    z = ritz_values[ritz_values.real > SMOOTHED * radius]
    powers = np.column_stack([z, z**2])
    first, second = np.linalg.lstsq(np.vstack([powers.real, powers.imag]), np.repeat([1.0, 0.0], len(z)))[0]
    return Smoother(((float(first), float(second)),), SMOOTHED_BASIS / radius, SMOOTHED_BASIS / radius)


def _arnoldi(matrix: Matrix) -> Float64:
    """The Hessenberg matrix (m + 1, m) of a few Arnoldi steps from a random vector."""
    rows = rows_of(matrix)
    n_steps = min(ARNOLDI_STEPS, n_rows(matrix) - 1)
    vectors = np.zeros((matrix.shape[0], n_steps + 1), matrix.dtype, order="F")
    hessenberg = np.zeros((n_steps + 1, n_steps))
    start = rows.random((matrix.shape[0],))
    vectors[:, 0] = start / np.sqrt(rows.dot(start, start))

    def dot(x: Floats, y: Floats) -> float:
        return float(rows.per_cut(lambda cut: np.einsum("i,i->", x[cut], y[cut], dtype=np.float64), x))

    for step in range(n_steps):
        image = matrix @ vectors[:, step]
        for earlier in range(step + 1):
            hessenberg[earlier, step] = dot(vectors[:, earlier], image)
            image -= matrix.dtype.type(hessenberg[earlier, step]) * vectors[:, earlier]
        hessenberg[step + 1, step] = np.sqrt(dot(image, image))
        vectors[:, step + 1] = image / max(hessenberg[step + 1, step], TINY)
    return hessenberg
