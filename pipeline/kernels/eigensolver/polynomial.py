"""Polynomials that approximate 1 / z on the spectrum of a matrix B, to apply B^-1 using products with B only.

With the residual polynomial r(z) = prod (1 - z / theta), p(z) = (1 - r(z)) / z is close to 1 / z if r is small. There
are two choices of the roots theta. For a nonsymmetric B they are the harmonic Ritz values of an Arnoldi run; r is then
the residual polynomial of GMRES. For a symmetric B with known bounds they are the roots of a Chebyshev polynomial.

The product form is stable if the roots are in modified Leja order, and roots at which r is very steep are repeated. Loe
& Morgan 2022, "Toward efficient polynomial preconditioning for GMRES", Numer. Linear Algebra Appl. 29, e2427; Embree,
Loe & Morgan 2021, "Polynomial preconditioned Arnoldi with stability control", SIAM J. Sci. Comput. 43, A1-A25.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.threads import limited_threads

F64 = npt.NDArray[np.float64]
C128 = npt.NDArray[np.complex128]

STEEP, DIGITS = 4.0, 14.0
"""A root is repeated if log10 of the steepness of r there exceeds STEEP, and once more for each further DIGITS."""
SOLVED = 1e-9
"""Residual of GMRES at which an Arnoldi run ends; more roots would only describe rounding errors."""
CHECK_EVERY = 10
REAL = 1e-10
"""Imaginary parts up to this count as zero."""


class Product(NamedTuple):
    """One product with B: out = f0 B x + f1 r, total += f2 out + f3 r, where x is the residual r or the auxiliary."""

    from_auxiliary: bool
    to_auxiliary: bool
    """Whether ``out`` is the new auxiliary or the new residual."""
    factors: tuple[float, float, float, float]


def products(roots: C128) -> Iterator[Product]:
    """The products that map residual = x, total = 0 to r(B) x and p(B) x; a complex pair needs two products."""
    for root in roots:
        if abs(root.imag) <= REAL:
            inverse = 1 / float(root.real)
            yield Product(False, False, (-inverse, 1.0, 0.0, inverse))
        else:
            inverse = 1 / float(abs(root) ** 2)
            yield Product(False, True, (-1.0, 2 * float(root.real), inverse, 0.0))
            yield Product(True, False, (-inverse, 1.0, 0.0, 0.0))


def degree_of(roots: C128) -> int:
    """Number of products with B in p(B)."""
    return int(len(roots) + np.count_nonzero(np.abs(roots.imag) > REAL))


def slope_of(roots: C128) -> float:
    """p(0), the sum of 1 / theta. For eigenvalues of B much smaller than 1 / p(0), p(B) B is close to p(0) B."""
    return float(np.where(np.abs(roots.imag) > REAL, 2.0, 1.0) @ (1 / roots).real)


def residual_at(roots: C128, z: F64) -> F64:
    """r(z) at real points z (m,)."""
    factors = 1 - z[:, None] / roots
    return np.asarray(np.where(np.abs(roots.imag) > REAL, np.abs(factors) ** 2, factors.real).prod(axis=1))


def chebyshev_roots(degree: int, low: float, high: float) -> C128:
    """Roots of the polynomial with r(0) = 1 and the smallest maximum on [low, high], in Leja order."""
    angles = (2 * np.arange(degree) + 1) * np.pi / (2 * degree)
    return leja_order((high + low) / 2 + (high - low) / 2 * np.cos(angles).astype(np.complex128))


def arnoldi(multiply: Callable[[F64], F64], start: F64, n_steps: int) -> F64:
    """The Hessenberg matrix (m + 1, m) of m Arnoldi steps from ``start`` (n,); m < n_steps if GMRES converges earlier.

    The roots need few digits, so the basis is stored in single precision: 4 n (n_steps + 1) bytes.
    """
    basis = np.empty((n_steps + 1, len(start)), np.float32)
    hessenberg = np.zeros((n_steps + 1, n_steps))
    basis[0] = start / np.linalg.norm(start)
    for j in range(n_steps):
        vector = multiply(basis[j].astype(np.float64))
        for _ in range(2):
            coefficients = basis[: j + 1] @ vector.astype(np.float32)
            vector -= coefficients @ basis[: j + 1]
            hessenberg[: j + 1, j] += coefficients
        length = float(np.linalg.norm(vector))
        hessenberg[j + 1, j] = length
        if length <= SOLVED or ((j + 1) % CHECK_EVERY == 0 and gmres_residual(hessenberg[: j + 2, : j + 1]) < SOLVED):
            return hessenberg[: j + 2, : j + 1].copy()
        basis[j + 1] = vector / length
    return hessenberg


def gmres_residual(hessenberg: F64) -> float:
    """||r(B) b|| / ||b|| for the start vector b, after m steps of GMRES with the Hessenberg matrix (m + 1, m)."""
    first = np.eye(1, len(hessenberg))[0]
    solution = np.linalg.lstsq(hessenberg, first, rcond=None)[0]
    return float(np.linalg.norm(first - hessenberg @ solution))


def harmonic_ritz_values(hessenberg: F64) -> C128:
    """Roots (m,) of the residual polynomial of GMRES. Raises LinAlgError if B is singular on the Krylov space."""
    degree = hessenberg.shape[1]
    square, last = hessenberg[:degree], np.eye(degree)[-1]
    corner = hessenberg[degree, degree - 1] ** 2 * np.linalg.solve(square.T, last)
    with limited_threads(1):  # the matrix is so small that several threads would be slower
        return np.asarray(np.linalg.eigvals(square + np.outer(corner, last)), np.complex128)


def stable_roots(values: C128) -> C128:
    """Roots for the product form: one of each complex pair, steep ones repeated, in modified Leja order."""
    upper = values[values.imag >= -REAL]
    upper = np.where(np.abs(upper.imag) <= REAL, upper.real, upper)
    return leja_order(np.concatenate([upper, _copies(upper)]))


def leja_order(roots: C128) -> C128:
    """Order the roots: the largest first, then always the one with the largest product of distances to earlier ones."""
    order, distance, free = [], np.zeros(len(roots)), np.ones(len(roots), bool)
    following = int(np.argmax(np.abs(roots)))
    for _ in range(len(roots)):
        order.append(following)
        free[following] = False
        root = roots[following]
        with np.errstate(divide="ignore"):
            distance += np.log(np.abs(roots - root))
            if root.imag > REAL:
                distance += np.log(np.abs(roots - np.conj(root)))
        following = int(np.argmax(np.where(free, distance, -np.inf)))
    return np.asarray(roots[np.array(order)])


def _copies(upper: C128) -> C128:
    """A root is repeated ceil((s - 4) / 14) times, s = log10 prod |1 - theta / other| over all other roots."""
    all_roots = np.concatenate([upper, np.conj(upper[upper.imag > REAL])])
    copies = []
    for root in upper:
        steepness = np.log10(np.maximum(np.abs(1 - root / all_roots[all_roots != root]), 1e-300)).sum()
        n_copies = max(0, int(np.ceil((steepness - STEEP) / DIGITS)))
        # no two roots are equal: the logarithm of their distance orders them
        copies += [root * (1 + 1e-9 * (i + 1)) for i in range(n_copies)]
    return np.array(copies, np.complex128)
