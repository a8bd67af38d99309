"""An approximate inverse T of M = A' A, made of products with A and A'; its degree adapts to the smallest eigenvalues.

T has one of two forms, both symmetric:

- ``factor``: T = p(A) P p(A'), for a square A whose eigenvalues have positive real parts. P projects out the left null
  vector of A. p comes from an Arnoldi run on A; its degree grows with the square root of the condition number of A.
- ``normal``: T = S q(S M S) S with S = diag(M)^-1/2, for all other A. q is a Chebyshev approximation of 1 / z on the
  upper part of the spectrum; its degree grows with the condition number of A. The scaling S prevents hubs from raising
  the largest eigenvalue.

The Arnoldi run decides between the forms: a polynomial with r(0) = 1 cannot be small on both sides of zero.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array

from . import polynomial
from .normal_operator import Matrix, Operator
from .null_vector import NullVector, remove_null, without_null
from .polynomial import C128
from .rayleigh_ritz import EPS, TINY, largest_eigenvalue

F64 = npt.NDArray[np.float64]

FIRST_STEPS, FIRST_DEGREE = 40, 20
MAX_STEPS = 640
REACH = 0.5
"""Degrees are chosen so that p(0) is REACH / sigma, where sigma^2 is the first eigenvalue above the requested ones. 0.5
was best on images, speech and surfaces."""
GROWTH = 3.0
"""ln of twice the growth of the Chebyshev residual polynomial from the cut to zero."""
MAX_DEGREE = 2000
"""Largest degree of polynomials of M: rounding errors of the product form grow with the square of the degree."""
FIRST_CUT = 0.01
"""Lower end of the approximated spectrum before there are Ritz values, relative to the largest eigenvalue."""
WIDEST_CUT = 0.1
"""Largest value of that lower end, relative to the largest eigenvalue."""
UNSTABLE = 10.0
"""A polynomial is unusable if its product form leaves more of the start vector than this times the GMRES residual."""
CROSSING = 1e-3
"""A negative real part counts as real, not as a rounding error, above this share of the largest eigenvalue."""
TYPICAL_STEPS = 8
"""Least number of applications of T in a solve; 8 to 14 were measured with p(0) sigma at REACH."""


class ApproximateInverse:
    """T, applied to blocks of residuals. Its form and degree depend only on A, ``hessenberg`` and the Ritz values."""

    def __init__(
        self,
        factor: csr_array,
        open_operator: Callable[[csr_array], Operator],
        null: NullVector,
        seed: int,
        max_steps: int,
        hessenberg: F64 | None = None,
    ) -> None:
        """Choose one of the two forms.

        Args:
            factor: A (rows, n).
            open_operator: creates the operator for polynomials of a matrix; called once or twice.
            null: unit null vector (n,) of M; None for the constant.
            seed: seed of the random start vector of Arnoldi runs.
            max_steps: largest number of Arnoldi steps.
            hessenberg: ``hessenberg`` of an earlier object for the same A; this object then makes the same choices.
        """
        self._factor, self._open, self._null = factor, open_operator, null
        self._start = np.random.default_rng(seed).standard_normal(factor.shape[1])
        self._seed, self._max_steps = seed, min(max_steps, MAX_STEPS, factor.shape[1] - 1)
        self.hessenberg = np.zeros((0, 0))
        """(m + 1, m) of the longest Arnoldi run; empty for the form ``normal``."""
        self.degree = 0
        """Products of M (or pairs of products with A and A') in one application."""
        self.form: Matrix = "normal"
        self._roots: C128 = np.empty(0, np.complex128)
        self._exhausted = False
        if hessenberg is None:
            self._use_factor(self._arnoldi(FIRST_STEPS) if self._may_use_factor() else self.hessenberg)
        else:
            self._use_factor(hessenberg)

    def adapt(self, values: F64, vector: Callable[[int], F64], n_wanted: int, width: int, n_degrees: int) -> None:
        """Choose the degree for Ritz values (k,) after ``n_degrees`` products; ``vector(i)`` is Ritz vector i (n,)."""
        if self.form == "factor":
            sigma = float(np.sqrt(max(values[min(n_wanted, len(values) - 1)], TINY)))
            self._adapt_factor(sigma, n_degrees)
        if self.form == "normal":
            index = len(values) - 1 if len(values) == width else max(len(values) // 2, min(n_wanted, len(values) - 1))
            low = values[index] / float(np.square(vector(index)) @ self._diagonal)
            self._adapt_normal(float(np.clip(low, EPS * self._largest, WIDEST_CUT * self._largest)))

    def begin(self) -> None:
        """Choose the degree before there are Ritz values."""
        if self.form == "factor":
            self._adapt_factor(1.0, 0)
        if self.form == "normal":
            self._adapt_normal(FIRST_CUT * self._largest)

    def apply(self, block: F64) -> F64:
        """T times the block (n, b), orthogonal to the null vector."""
        if self.form == "normal":
            scaled = without_null(block, self._null) * self._scale[:, None]
            solution = self._operator.approximate_inverse(scaled, self._roots, "normal")[0] * self._scale[:, None]
        else:
            half = self._operator.approximate_inverse(without_null(block, self._null), self._roots, "transposed")[0]
            half -= np.outer(self._left, self._left @ half)
            solution = self._operator.approximate_inverse(half, self._roots, "factor")[0]
        return remove_null(solution, self._null)

    def efficiency(self, value: float, vector: F64) -> float:
        """Approximate eigenvalue of T M for a Ritz vector (n,) and its value; 1 if T is the exact inverse of M."""
        if self.form == "normal":
            residual = polynomial.residual_at(
                self._roots, np.array([value / float(np.square(vector) @ self._diagonal)])
            )
            return float(abs(1 - residual[0]))
        return float((1 - polynomial.residual_at(self._roots, np.array([np.sqrt(max(value, 0.0))]))[0]) ** 2)

    def min_products(self, values: F64, n_wanted: int) -> float:
        """A lower bound on the products of a whole solve; it is a bound because Ritz values are bounds from above."""
        degree = float(self.degree)
        if self.form == "factor":
            reach = polynomial.slope_of(self._roots) * np.sqrt(max(values[min(n_wanted, len(values) - 1)], TINY))
            degree *= max(1.0, np.sqrt(REACH / reach))  # p(0) grows with the square of the degree
        return TYPICAL_STEPS * degree

    def _may_use_factor(self) -> bool:
        rows, n = self._factor.shape
        return bool(rows == n and self._null is None and self._max_steps >= FIRST_STEPS)

    def _arnoldi(self, n_steps: int) -> F64:
        """Arnoldi run in the range of A, where A is regular."""
        start = self._factor @ (self._start - self._start.mean())
        return polynomial.arnoldi(lambda vector: self._factor @ vector, start, n_steps)

    def _use_factor(self, hessenberg: F64) -> None:
        """Use the form ``factor`` with the polynomials of an Arnoldi run, or ``normal`` if these are not usable."""
        self._polynomials: dict[int, C128] = {}
        steps, last = hessenberg.shape[1], hessenberg
        if steps and _one_sided(last):
            if self.form != "factor":
                self._operator = self._open(self._factor)
            self.form, self.hessenberg, self.degree = "factor", hessenberg, 0
            if self._polynomial(min(FIRST_DEGREE, steps)) is not None:
                return
        self.form, self.hessenberg, self.degree = "normal", np.zeros((0, 0)), 0
        self._diagonal = np.asarray(self._factor.power(2).sum(axis=0)).ravel()
        self._scale = 1 / np.sqrt(np.maximum(self._diagonal, TINY))
        scaled = csr_array(self._factor @ diags_array(self._scale))
        self._largest = largest_eigenvalue(scaled, self._seed)
        self._operator = self._open(scaled)

    def _adapt_factor(self, sigma: float, n_degrees: int) -> None:
        """Use the lowest of the degrees 20, 28, 40, ... with p(0) sigma >= REACH, or the highest available degree."""
        steps = self.hessenberg.shape[1]
        while True:
            degree, roots = self._least_degree(sigma)
            reaches = polynomial.slope_of(roots) * sigma >= REACH or degree < steps
            if reaches or self._exhausted or 2 * steps > self._max_steps or n_degrees < _arnoldi_cost(2 * steps):
                break
            steps *= 2
            longer = self._arnoldi(steps)
            one_sided = _one_sided(longer)
            self._exhausted = longer.shape[1] < steps or not one_sided
            if one_sided or _crosses(longer):
                self._use_factor(longer)
            if self._exhausted:
                break
        if self.form == "factor":
            degree, roots = self._least_degree(sigma)
            if roots is not self._roots:
                self._roots, self.degree = roots, polynomial.degree_of(roots)
                self._left = self._left_null_vector()

    def _least_degree(self, sigma: float) -> tuple[int, C128]:
        """(Arnoldi steps, roots) of the lowest degree with p(0) sigma >= REACH, or of the highest available degree."""
        steps = self.hessenberg.shape[1]
        degree, best = min(FIRST_DEGREE, steps), None
        while True:
            roots = self._polynomial(degree)
            if roots is not None:
                best = (degree, roots)
                if polynomial.slope_of(roots) * sigma >= REACH:
                    return best
            if degree == steps:
                assert best is not None
                return steps, best[1]
            degree = min(int(np.ceil(degree * np.sqrt(2))), steps)

    def _polynomial(self, degree: int) -> C128 | None:
        """Roots from the first ``degree`` Arnoldi steps; None if they do not give a usable polynomial."""
        if degree not in self._polynomials:
            part = self.hessenberg[: degree + 1, :degree]
            roots = np.empty(0, np.complex128)
            if _one_sided(part):
                roots = polynomial.stable_roots(polynomial.harmonic_ritz_values(part))
                start = self._factor @ (self._start - self._start.mean())
                start /= np.linalg.norm(start)
                remainder = self._operator.approximate_inverse(start[:, None], roots, "factor")[1]
                residual = polynomial.gmres_residual(part)
                if not np.linalg.norm(remainder) <= UNSTABLE * max(residual, polynomial.SOLVED):
                    roots = roots[:0]
            self._polynomials[degree] = roots
        cached = self._polynomials[degree]
        return cached if len(cached) else None

    def _left_null_vector(self) -> F64:
        """Left null vector u (n,) of A, A' u = 0 approximately: r(A') applied twice to the constant."""
        null_vector = np.ones((self._factor.shape[0], 1))
        for _ in range(2):
            null_vector = self._operator.approximate_inverse(null_vector, self._roots, "transposed")[1]
            null_vector /= np.linalg.norm(null_vector)
        return np.asarray(null_vector[:, 0])

    def _adapt_normal(self, low: float) -> None:
        low = max(low, self._largest * (GROWTH / 2 / MAX_DEGREE) ** 2)
        self.degree = max(2, int(np.ceil(GROWTH / 2 * np.sqrt(self._largest / low))))
        self._roots = polynomial.chebyshev_roots(self.degree, low, self._largest)


def _one_sided(hessenberg: F64) -> bool:
    """Whether all harmonic Ritz values of the Arnoldi run have positive real parts."""
    try:
        return bool(polynomial.harmonic_ritz_values(hessenberg).real.min() > 0)
    except np.linalg.LinAlgError:
        return False


def _crosses(hessenberg: F64) -> bool:
    """Whether A has eigenvalues with negative real parts beyond rounding errors."""
    values = polynomial.harmonic_ritz_values(hessenberg)
    return bool(values.real.min() < -CROSSING * np.abs(values).max())


def _arnoldi_cost(n_steps: int) -> float:
    """Cost of an Arnoldi run in products of M with a block: products with one vector, and orthogonalisation."""
    return n_steps / 6 + n_steps**2 / 100
