"""Cycles of multigrid on an NVIDIA GPU: the operations of ``Threads`` with CuPy, the extra `gpu`.

A block is stored by columns there, as cuSPARSE reads it. Sums are added in another order than on the processor, and not
always in the same one, so results differ by rounding errors from run to run.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.sparse import csr_array

from ...core.arrays import Array, Float64, Floats
from ...core.errors import ConfigError
from .aggregation import Aggregates
from .shared_matrix import Matrix, SharedMatrix
from .threads import Threads

ROWS_AT_ONCE = 2**20
"""Rows of which a dot product takes copies in float64."""


class Device:
    """Products and sums for blocks (n, m) on a device; ``Threads`` describes the methods of the same names."""

    def __init__(self, arrays: ModuleType = np, sparse: ModuleType = scipy.sparse) -> None:
        """The modules are cupy and cupyx.scipy.sparse, or NumPy and SciPy, which need no GPU."""
        self._arrays, self._sparse = arrays, sparse

    def place(self, block: Floats) -> Floats:
        """A copy of the block on the device."""
        placed: Floats = self._arrays.array(block, order="F")
        return placed

    def fetch(self, block: Floats) -> Floats:
        """A block of the device as an array of NumPy."""
        fetched: Floats = np.asarray(block) if self._arrays is np else self._arrays.asnumpy(block)
        return fetched

    def agreed(self, *results: Array) -> tuple[Array, ...]:
        return results

    def matrix(self, matrix: Matrix) -> csr_array:
        """The matrix on the device. Raises MemoryError if it has more entries than CuPy can index."""
        assert not isinstance(matrix, SharedMatrix)
        if matrix.nnz > np.iinfo(np.int32).max:
            raise MemoryError(f"a matrix of {matrix.nnz:,} entries is too large for CuPy")
        placed: csr_array = self._sparse.csr_matrix(scipy.sparse.csr_matrix(matrix))
        return placed

    def aggregates(self, aggregates: "Aggregates | DeviceAggregates") -> "DeviceAggregates":
        p0 = aggregates.matrix()
        return DeviceAggregates(self.matrix(p0), self.matrix(csr_array(p0.T.tocsr())))

    def combine(self, matrix: Matrix, x: Floats, y: Floats, out: Floats, factors: tuple[float, float, float]) -> Floats:
        product: Floats = matrix @ x
        product *= factors[0]
        if factors[1]:
            product += factors[1] * y
        if factors[2]:  # out may be uninitialised
            product += factors[2] * out
        out[:] = product
        return out

    def add_products(self, blocks: list[Floats], factors: Float64, out: Floats) -> None:
        for x, share in zip(blocks, np.split(factors, len(blocks)), strict=True):
            out += x @ self._arrays.asarray(share, dtype=x.dtype)

    def gram(self, blocks: list[Floats], y: Floats) -> Float64:
        total = np.zeros((len(blocks), blocks[0].shape[1], y.shape[1]))
        for first in range(0, len(y), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            right = y[rows].astype(np.float64)
            for x, part in zip(blocks, total, strict=True):
                part += self.fetch(x[rows].astype(np.float64).T @ right)
        return total.reshape(-1, y.shape[1])


class DeviceAggregates(NamedTuple):
    """The aggregates of a level on a device; see ``Aggregates``."""

    prolongation: csr_array
    """P0."""
    restriction: csr_array
    """P0'."""

    def matrix(self) -> csr_array:
        return self.prolongation

    def restrict(self, fine: Floats) -> Floats:
        coarse: Floats = self.restriction @ fine
        return coarse

    def prolong(self, coarse: Floats) -> Floats:
        fine: Floats = self.prolongation @ coarse
        return fine


Operations = Threads | Device


def gpu() -> Device:
    """The first GPU of this machine, after a small product. Raises ConfigError if CuPy or a GPU is missing."""
    try:
        import cupy  # an optional extra
        from cupyx.scipy import sparse
    except ImportError as error:
        raise ConfigError(
            f"eigensolver.device: gpu needs the extra gpu: run pip install '.[gpu]' in the source folder ({error})"
        ) from None
    device = Device(cupy, sparse)
    try:
        block = device.place(np.ones((2, 2)))
        device.gram([device.matrix(csr_array(np.eye(2))) @ block], block)
    except Exception as error:  # drivers and libraries that are missing or too old give errors of many types
        raise ConfigError(f"eigensolver.device: no NVIDIA GPU works with CuPy ({error}); use device: cpu") from None
    return device
