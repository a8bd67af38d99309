"""The bottom eigenpairs of M = A' A from products with A and A' alone: Chebyshev-filtered subspace iteration.

A Chebyshev polynomial of degree d is small on [cut, largest] and grows fast below the cut, so applying it to a block of
vectors leaves the eigenvectors below the cut. Zhou, Saad, Tiago & Chelikowsky 2006, J. Comput. Phys. 219, 172-184
(the method); Zhou & Li 2011, Linear Algebra Appl. 435, 480-493 (the bound on the spectrum).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pipeline.kernels.krylov import orthonormalise
from pipeline.kernels.normal_operator import NormalOperator
from pipeline.kernels.ritz import RitzPairs, rayleigh_ritz

F64 = npt.NDArray[np.float64]
Csr = sp.csr_array[Any]

BOUND_STEPS = 12
"""Lanczos steps for the bound on the largest eigenvalue."""
FIRST_GROWTH, GROWTH = 3.0, 8.0
"""ln of the filter's growth from the cut to zero: small while the cut still falls fast, larger after that."""


class Filtered(NamedTuple):
    """What the iteration found."""

    pairs: RitzPairs
    errors: F64
    """(m,) how much the filter still turns each vector: about the sine of its angle to the eigenvector."""
    n_degrees: int
    """Products with M of the whole block."""
    n_sweeps: int


def block_width(n_wanted: int, n: int) -> int:
    """Columns of the block: guard vectors beyond the wanted ones decide how fast it converges."""
    return min(n_wanted + max(6, n_wanted // 2), n - 1)


def largest_eigenvalue(factor: Csr, seed: int) -> float:
    """An upper bound on the largest eigenvalue of M = A' A, above it by a few per cent (Zhou & Li 2011).

    Largest Ritz value of some Lanczos steps plus the norm of the last residual.
    """
    n = factor.shape[1]
    vector = np.random.default_rng(seed).standard_normal(n)
    basis = [vector / np.linalg.norm(vector)]
    diagonal, off = [], []
    for _ in range(min(BOUND_STEPS, n)):
        image = factor.T @ (factor @ basis[-1])
        diagonal.append(float(basis[-1] @ image))
        for vector in basis:
            image -= vector * (vector @ image)
        off.append(float(np.linalg.norm(image)))
        if off[-1] <= np.finfo(np.float64).eps * diagonal[0]:
            break
        basis.append(image / off[-1])
    tridiagonal = np.diag(diagonal) + np.diag(off[: len(diagonal) - 1], 1) + np.diag(off[: len(diagonal) - 1], -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1] + off[-1])


def filtered_subspace(
    factor: Csr, n_wanted: int, start: F64, largest: float, tol: float, max_degrees: int, n_threads: int
) -> Filtered:
    """The ``n_wanted`` lowest eigenpairs of M = A' A on the vectors of mean zero.

    Args:
        factor: A (rows, n).
        n_wanted: number of pairs m.
        start: (n, b) start block, b > m columns; the extra ones guard the wanted ones.
        largest: upper bound on the eigenvalues of M.
        tol: bound on ``Filtered.errors``.
        max_degrees: products with M after which to give up.
        n_threads: threads for the products.
    """
    with NormalOperator(factor, n_threads) as operator:
        pairs = rayleigh_ritz(factor, orthonormalise(start, start[:, :0]), start.shape[1])
        n_degrees = n_sweeps = 0
        growth = FIRST_GROWTH
        while True:
            cut = pairs.values[-1]
            degree = max(2, min(int(np.ceil(growth / 2 * np.sqrt(largest / cut))), max_degrees - n_degrees))
            block = chebyshev_filter(operator, pairs.vectors, degree, cut, largest)
            errors = _turned(pairs, block, degree, cut, largest)[:n_wanted]
            pairs = rayleigh_ritz(factor, orthonormalise(block, block[:, :0]), start.shape[1])
            n_degrees += degree
            n_sweeps += 1
            if bool((errors <= tol).all()) or n_degrees >= max_degrees:
                wanted = RitzPairs(pairs.values[:n_wanted], np.ascontiguousarray(pairs.vectors[:, :n_wanted]))
                return Filtered(wanted, errors, n_degrees, n_sweeps)
            growth = GROWTH if pairs.values[-1] > 0.5 * cut else FIRST_GROWTH


def chebyshev_filter(operator: NormalOperator, block: F64, degree: int, cut: float, largest: float) -> F64:
    """p(M) block for p(x) = T_degree of x mapped from [cut, largest] to [-1, 1]; block (n, b) in C order."""
    center, radius = (largest + cut) / 2, (largest - cut) / 2
    half = np.empty((operator.shape[0], block.shape[1]))
    previous, current = block.copy(), block.copy()
    operator.half(previous, half)
    operator.recur(half, previous, current, (1 / radius, -center / radius, 0.0))
    for _ in range(degree - 1):
        operator.half(current, half)
        operator.recur(half, current, previous, (2 / radius, -2 * center / radius, -1.0))
        previous, current = current, previous
    return current


def _turned(pairs: RitzPairs, filtered: F64, degree: int, cut: float, largest: float) -> F64:
    """||p(M) v / p(lambda) - v|| of unit vectors v, divided by 1 - p(cut) / p(lambda).

    The filter damps every other part of v against v itself, so what it takes away is the error. Rounding hardly enters,
    unlike in ||M v - lambda v||, which a perfect v rounded to float64 does not make smaller than eps lambda_max.
    """
    mapped = (largest + cut - 2 * pairs.values) / (largest - cut)  # above 1 for eigenvalues below the cut
    at_value = np.cosh(degree * np.arccosh(np.maximum(mapped, 1.0)))
    sign = -1.0 if degree % 2 else 1.0
    change = np.linalg.norm(filtered * (sign / at_value) - pairs.vectors, axis=0)
    with np.errstate(divide="ignore"):
        errors: F64 = change / (1.0 - 1.0 / at_value)
    return errors
