"""Block GMRES: the columns of a block share one Krylov space. Loads numba.

Simoncini & Gallopoulos 1996 (Linear Algebra Appl. 247): block GMRES. Stathopoulos & Wu 2002 (SIAM J. Sci. Comput. 23):
orthonormal blocks from eigenvectors of their Gram matrix.
"""

import numpy as np

from ...core.arrays import Float64, Floats
from .device import Operations
from .pardiso import FactorizationError

DEPENDENT = 1e-12
"""Squared length below which a combination of unit columns counts as rounding errors."""
RANK = 1e-12
"""Singular values below this share of the largest are those of dependent columns, which are zeros in the basis."""
LONG, MOST_PASSES = 1e-4, 2
"""One pass is enough if no combination of the columns lies nearly in the space: the squared length of its part outside
is at least this share of its own. The rounding errors of this part are then at most 100 times those of the vectors."""
TINY = float(np.finfo(np.float64).tiny)


class BlockGmres:
    """x = B^-1 b for all columns of a block b, from the images of basis vectors under B.

    Sums are in float64, on the processor in a fixed order; vectors have the type of ``start``. ``smallest`` is the
    smallest singular value of B on the space, without those of dependent columns.
    """

    def __init__(self, start: Floats, operations: Operations, most_images: int) -> None:
        """Begin with b = ``start`` (n, m). ``add`` can be called ``most_images`` times."""
        self._operations, self._width, rows = operations, start.shape[1], start.shape[1] * (most_images + 1)
        self._hessenberg = np.zeros((rows, rows - self._width))
        self._rhs = np.zeros((rows, self._width))
        self._basis = list[Floats]()
        self._coefficients, self._residuals = self._rhs[:0], self._append(start)
        self._rhs[: self._width] = self._residuals
        self._lengths = np.maximum(np.linalg.norm(self._residuals, axis=0), TINY)

    @property
    def last(self) -> Floats:
        """(n, m) the basis vectors whose image is added next."""
        return self._basis[-1]

    @property
    def reduction(self) -> float:
        """The largest ratio ||b - B x|| / ||b|| of the columns."""
        return float((np.linalg.norm(self._residuals, axis=0) / self._lengths).max())

    def error(self, lengths: Float64) -> float:
        """An estimate of the errors of the columns of x: ||b - B x|| / sigma, relative to ||x|| or ``lengths`` (m,).

        The larger of the two counts. The estimate would be a bound if sigma were the smallest singular value of B;
        ``smallest`` can be larger.
        """
        largest = np.maximum(lengths, np.linalg.norm(self._coefficients, axis=0))
        errors = np.linalg.norm(self._residuals, axis=0) / np.maximum(self.smallest * largest, TINY)
        return float(errors.max())

    def add(self, image: Floats) -> None:
        """Add B ``last`` (n, m), which is overwritten."""
        n_before = self._width * len(self._basis)
        past = n_before + self._width
        self._hessenberg[:past, n_before - self._width : n_before] = self._append(image)
        matrix, rhs = self._hessenberg[:past, :n_before], self._rhs[:past]
        coefficients, _, _, values = np.linalg.lstsq(matrix, rhs)
        self._coefficients, self._residuals, values = self._operations.agreed(
            coefficients, rhs - matrix @ coefficients, values
        )
        self.smallest = float(values[values > RANK * values[0]].min(initial=values[0]))

    def solution(self) -> Floats:
        """x + r, (n, m), where x has the least residuals r = b - B x.

        This is a step of Richardson: it removes the parts of r on which B is close to the identity.
        """
        factors = self._residuals.copy()
        factors[: len(self._coefficients)] += self._coefficients
        result = np.zeros_like(self._basis[0])
        self._operations.add_products(self._basis, factors, result)
        return result

    def _append(self, block: Floats) -> Float64:
        """Add an orthonormal basis of the part of the block (n, m) outside the space. Overwrites the block.

        Returns its coefficients in the new basis. Raises FactorizationError if the block has NaN or infinity.
        """
        inside, outside = np.zeros((self._width * len(self._basis), self._width)), np.eye(self._width)
        for _ in range(MOST_PASSES):
            shares = np.zeros_like(inside)
            if self._basis:
                # all blocks at once (classical Gram-Schmidt), so the block is read from memory once
                shares = self._operations.gram(self._basis, block)
                self._operations.add_products(self._basis, -shares, block)
            block, right, least = self._orthonormal(block)
            inside += shares @ outside
            outside = right @ outside
            lengths = (right**2).sum(axis=0)
            if least * (lengths / np.maximum(lengths + (shares**2).sum(axis=0), TINY)).min() >= LONG:
                break
        self._basis.append(block)
        return np.vstack([inside, outside])

    def _orthonormal(self, block: Floats) -> tuple[Floats, Float64, float]:
        """(Q (n, m) with orthonormal columns or columns of zeros, R (m, m), the least squared length), Q R = block.

        The length is that of a combination of the columns, scaled to unit length.
        """
        products = self._operations.gram([block], block)
        if not np.isfinite(products).all():
            raise FactorizationError("a cycle of multigrid gave NaN or infinity")
        norms = np.sqrt(np.diag(products))
        units = np.where(norms > 0, norms, 1.0)
        values, vectors = self._operations.agreed(*np.linalg.eigh(products / units / units[:, None]))
        lengths = np.sqrt(np.maximum(values, DEPENDENT))
        turned = np.zeros_like(block)
        self._operations.add_products([block], vectors / lengths / units[:, None], turned)
        return turned, lengths[:, None] * vectors.T * norms, float(values[0])
