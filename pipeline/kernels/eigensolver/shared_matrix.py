"""A sparse square matrix whose rows lie in several processes, which exchange the entries of vectors that they need.

The columns of the local part are the rows that it needs, of this process and of others, in the order of all rows. So
sums over a row are added in the same order for any number of processes.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import csc_array, csr_array

from ...core.arrays import Array, Floats, Int64, Ints
from .rows import ALL_ROWS, Rows


class Numbering:
    """Consecutive numbers ``start`` to ``stop`` - 1 and some ``others``; their positions when all are in order."""

    def __init__(self, start: int, stop: int, indices: Ints) -> None:
        """The others are those among ``indices`` that are not between start and stop."""
        self.start, self.stop = start, stop
        self.others = np.unique(indices[(indices < start) | (indices >= stop)])
        self.n_before = int(np.searchsorted(self.others, start))

    @property
    def n(self) -> int:
        return len(self.others) + self.stop - self.start

    @property
    def numbers(self) -> Ints:
        """(n,) all numbers, ascending."""
        own = np.arange(self.start, self.stop, dtype=self.others.dtype)
        return np.concatenate([self.others[: self.n_before], own, self.others[self.n_before :]])

    def renumbered(self, matrix: csr_array) -> csr_array:
        """The matrix (any, n) with these columns of ``matrix``; all columns that have an entry are among them."""
        indices = matrix.indices.astype(np.int32) if self.stop <= np.iinfo(np.int32).max else matrix.indices
        outside = (matrix.indices < self.start) | (matrix.indices >= self.stop)
        positions = np.searchsorted(self.others, matrix.indices[outside])
        indices = indices - indices.dtype.type(self.start - self.n_before)
        indices[outside] = positions + np.where(positions >= self.n_before, self.stop - self.start, 0)
        indptr = matrix.indptr.astype(np.int32) if matrix.nnz <= np.iinfo(np.int32).max else matrix.indptr
        return csr_array((matrix.data, indices.astype(np.int32), indptr), shape=(matrix.shape[0], self.n))


class Halo:
    """The rows of other processes that this one needs, and its own rows that others need."""

    def __init__(self, rows: Rows, needed: Ints) -> None:
        """needed: numbers of rows, also own ones. All processes call this."""
        group, self.rows = rows.group, rows
        self.numbering = Numbering(rows.start, rows.stop, needed)
        others = self.numbering.others.astype(np.int64)
        ends = np.searchsorted(others, rows.starts)
        wanted = {r: others[ends[r] : ends[r + 1]] for r in range(group.size) if ends[r + 1] > ends[r]}
        counts = np.zeros(group.size, np.int64)
        counts[list(wanted)] = [len(each) for each in wanted.values()]
        table = group.gather(counts)
        self._sources = list(wanted)
        self._targets = [r for r in range(group.size) if table[r][group.rank]]
        asked = group.exchange(wanted, self._targets)
        self._sent = {r: asked[r] - rows.start for r in self._targets}

    @property
    def n_before(self) -> int:
        """Rows of other processes before the own ones."""
        return self.numbering.n_before

    @property
    def sent(self) -> Ints:
        """Own rows that others need; some more than once."""
        return np.concatenate([np.empty(0, np.int64), *self._sent.values()])

    def extended(self, block: Array) -> Array:
        """The rows (n, ...) of a block (own, ...), with those of other processes."""
        return self._joined(self._received(lambda sent: np.ascontiguousarray(block[sent])), block)

    def extended_rows(self, matrix: csr_array) -> csr_array:
        """The rows (n, columns) of a sparse matrix (own, columns), with those of other processes."""
        lengths = self.extended(np.diff(matrix.indptr))
        indices, data = (self._joined(self._received(part), own) for part, own in _entries(matrix))
        indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return csr_array((data, indices, indptr), shape=(self.numbering.n, matrix.shape[1]))

    def _joined(self, received: dict[int, Array], own: Array) -> Array:
        """The arrays of all processes, in their order."""
        before = [received[r] for r in sorted(received) if r < self.rows.group.rank]
        after = [received[r] for r in sorted(received) if r > self.rows.group.rank]
        return np.concatenate([*before, own, *after]) if received else own

    def _received(self, part_of: Callable[[Int64], Array]) -> dict[int, Array]:
        """Send part_of(own rows) to each process that needs them; what the others sent."""
        parts = {r: part_of(sent) for r, sent in self._sent.items()}
        return self.rows.group.exchange(parts, self._sources)


def _entries(matrix: csr_array) -> Iterator[tuple[Callable[[Int64], Array], Array]]:
    """For the indices and for the data: a function that gives those of some rows, and all."""
    for array in (matrix.indices, matrix.data):
        carrier = csr_array((array, np.zeros(matrix.nnz, np.int8), matrix.indptr), shape=(matrix.shape[0], 1))
        yield lambda rows, carrier=carrier: carrier[rows].data, array  # type: ignore[misc]


class SharedMatrix:
    """Rows of a square sparse matrix (n, n) in this process; products need all processes."""

    def __init__(self, rows: Rows, halo: Halo, local: csr_array, transposed: "SharedMatrix | None" = None) -> None:
        """local: (own, halo.n), its columns are the rows of the halo. transposed: the transposed matrix, if known."""
        self.rows, self.halo, self.local, self._transposed = rows, halo, local, transposed

    @classmethod
    def from_rows(cls, rows: Rows, own: csr_array) -> "SharedMatrix":
        """The matrix of these rows (own, n)."""
        halo = Halo(rows, own.indices)
        return cls(rows, halo, halo.numbering.renumbered(own))

    @property
    def shape(self) -> tuple[int, int]:
        """(own, own): the rows of a vector in this process."""
        return self.rows.n_own, self.rows.n_own

    @property
    def nnz(self) -> int:
        """Entries of all processes."""
        return self.rows.total(self.local.nnz)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.local.dtype

    @property
    def T(self) -> "SharedMatrix":  # noqa: N802 - as in SciPy
        """The transposed matrix; its rows are computed at the first call."""
        if self._transposed is None:
            self._transposed = SharedMatrix.from_rows(self.rows, self._columns())
        return self._transposed

    def __matmul__(self, block: Floats) -> Floats:
        product: Floats = self.local @ self.halo.extended(block)
        return product

    def global_rows(self) -> csr_array:
        """The rows of this process (own, n), with the numbers of all columns."""
        indices = self.halo.numbering.numbers[self.local.indices]
        return csr_array((self.local.data, indices, self.local.indptr), shape=(self.rows.n_own, self.rows.n))

    def astype(self, dtype: type[np.float32]) -> "SharedMatrix":
        """A matrix with the same pattern, and the entries of another type."""
        result = self.with_data(self.local.data.astype(dtype))
        if self._transposed is not None:
            result._transposed = self._transposed.with_data(self._transposed.local.data.astype(dtype))
        return result

    def with_data(self, data: Floats) -> "SharedMatrix":
        """A matrix with the same pattern and other entries in this process."""
        local = csr_array((data, self.local.indices, self.local.indptr), shape=self.local.shape)
        return SharedMatrix(self.rows, self.halo, local)

    def _columns(self) -> csr_array:
        """The columns of this process (own, n), as rows, without zeros."""
        rows, group, numbers = self.rows, self.rows.group, self.halo.numbering.numbers
        columns = csr_array(self.local.T.tocsr())
        columns = csr_array(  # with the numbers of all rows
            (columns.data, columns.indices + columns.indices.dtype.type(rows.start), columns.indptr),
            shape=(len(numbers), rows.n),
        )
        ends = np.searchsorted(numbers, rows.starts)
        others = [r for r in range(group.size) if r != group.rank]
        parts = {r: columns[ends[r] : ends[r + 1]] for r in others}
        sent = {
            r: (np.repeat(numbers[ends[r] : ends[r + 1]], np.diff(p.indptr)), p.indices, p.data)
            for r, p in parts.items()
        }
        received = [group.exchange({r: arrays[i] for r, arrays in sent.items()}, others) for i in range(3)]
        own = csr_array(columns[ends[group.rank] : ends[group.rank + 1]])
        if others:
            row, column, data = (np.concatenate([part[r] for r in others]) for part in received)
            own = csr_array(own + csr_array((data, (row - rows.start, column)), shape=own.shape))
        own.eliminate_zeros()  # a sum of matrices has none, and sums over a row depend on the number of entries
        return own

    def gathered(self) -> csr_array:
        """The whole matrix (n, n), in each process."""
        own = self.global_rows()
        lengths, indices, data = (
            np.concatenate(self.rows.group.gather(part)) for part in (np.diff(own.indptr), own.indices, own.data)
        )
        indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return csr_array((data, indices.astype(np.int32), indptr.astype(np.int32)), shape=(self.rows.n, self.rows.n))


Matrix = csr_array | SharedMatrix
"""A matrix of one component: all rows, or those of this process."""


def n_rows(matrix: Matrix) -> int:
    """Rows of all processes."""
    return matrix.rows.n if isinstance(matrix, SharedMatrix) else int(matrix.shape[0])


def rows_of(matrix: Matrix | csc_array) -> Rows:
    """The rows of vectors that the matrix is multiplied with."""
    return matrix.rows if isinstance(matrix, SharedMatrix) else ALL_ROWS
