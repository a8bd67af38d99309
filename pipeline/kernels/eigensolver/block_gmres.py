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
PASSES = 2
"""The second pass makes a block orthonormal to the last digits."""
TINY = float(np.finfo(np.float64).tiny)


class BlockGmres:
    """x = B^-1 b for all columns of a block b, from the images of basis vectors under B.

    Sums are in float64, on the processor in a fixed order; vectors have the type of ``start``.
    """

    def __init__(self, start: Floats, operations: Operations, most_images: int) -> None:
        """Begin with b = ``start`` (n, m). ``add`` can be called ``most_images`` times."""
        self._operations, self._width, rows = operations, start.shape[1], start.shape[1] * (most_images + 1)
        self._lengths = np.maximum(np.sqrt(np.diag(operations.gram(start, start))), TINY)
        self._hessenberg = np.zeros((rows, rows - self._width))
        self._rhs = np.zeros((rows, self._width))
        block, self._rhs[: self._width] = self._orthonormal(start)
        self._basis = [block]
        self._coefficients, self._residuals = self._rhs[:0], self._rhs[: self._width]

    @property
    def last(self) -> Floats:
        """(n, m) the basis vectors whose image is added next."""
        return self._basis[-1]

    @property
    def reduction(self) -> float:
        """The largest ratio ||b - B x|| / ||b|| of the columns."""
        return float((np.linalg.norm(self._residuals, axis=0) / self._lengths).max())

    def add(self, image: Floats) -> None:
        """Add B ``last`` (n, m), which is overwritten."""
        m, n_blocks = self._width, len(self._basis)
        columns = slice((n_blocks - 1) * m, n_blocks * m)
        for number, block in enumerate(self._basis):
            shares = self._operations.gram(block, image)
            self._operations.add_product(block, -shares, image)
            self._hessenberg[number * m : (number + 1) * m, columns] = shares
        past = (n_blocks + 1) * m
        block, self._hessenberg[past - m : past, columns] = self._orthonormal(image)
        self._basis.append(block)
        matrix, rhs = self._hessenberg[:past, : past - m], self._rhs[:past]
        self._coefficients = np.linalg.lstsq(matrix, rhs)[0]
        self._residuals = rhs - matrix @ self._coefficients

    def solution(self) -> Floats:
        """x + r, (n, m), where x has the least residuals r = b - B x.

        This is a step of Richardson: it removes the parts of r on which B is close to the identity.
        """
        factors = self._residuals.copy()
        factors[: len(self._coefficients)] += self._coefficients
        result, m = np.zeros_like(self._basis[0]), self._width
        for number, block in enumerate(self._basis):
            self._operations.add_product(block, factors[number * m : (number + 1) * m], result)
        return result

    def _orthonormal(self, block: Floats) -> tuple[Floats, Float64]:
        """(Q (n, m) with orthonormal columns or columns of zeros, R (m, m)), Q R = block.

        Raises FactorizationError if the block has NaN or infinity.
        """
        right = np.eye(self._width)
        for _ in range(PASSES):
            products = self._operations.gram(block, block)
            if not np.isfinite(products).all():
                raise FactorizationError("a cycle of multigrid gave NaN or infinity")
            norms = np.sqrt(np.diag(products))
            units = np.where(norms > 0, norms, 1.0)
            values, vectors = np.linalg.eigh(products / units / units[:, None])
            lengths = np.sqrt(np.maximum(values, DEPENDENT))
            turned = np.zeros_like(block)
            self._operations.add_product(block, vectors / lengths / units[:, None], turned)
            block, right = turned, (lengths[:, None] * vectors.T * norms) @ right
        return block, right
