"""Compiled products and sums over rows on all threads, float32 or float64. Loads numba.

Ranges of rows have a fixed size, so results do not depend on the number of threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.sparse import csr_array

from ...core.arrays import Array, Float64, Floats, Ints
from .rows import Rows
from .shared_matrix import Matrix, SharedMatrix

ROWS_AT_ONCE = 32_768
"""Rows of one call, and of one partial sum of a dot product."""
ENTRIES_AT_ONCE = 2**18
"""Entries of the matrix in one call: coarse levels have few rows, but many entries in each."""
CHUNK_ROWS = 256
"""Rows of one call of BLAS: a copy in float64 stays in the cache, and BLAS uses one thread for so few."""
PRODUCT_ROWS, PRODUCT_PARTS = 8192, 64
"""Rows of a sparse product that are computed at once, and the largest number of such parts."""


class Threads(AbstractContextManager["Threads"]):
    """Threads for sparse products and sums over rows; a context manager that stops them at its end."""

    def __init__(self, n_threads: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads)

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()

    def place(self, block: Floats) -> Floats:
        return block

    def fetch(self, block: Floats) -> Floats:
        return block

    def agreed(self, *results: Array) -> tuple[Array, ...]:
        """See ``Rows.agreed``."""
        return results

    def each(self, function: Callable[[int, int], None], n_rows: int, size: int = ROWS_AT_ONCE) -> None:
        """Call function(first, past) for successive ranges of ``size`` rows."""
        if n_rows <= size:
            return function(0, n_rows)
        firsts = range(0, n_rows, size)
        list(self._pool.map(lambda first: function(first, min(first + size, n_rows)), firsts))
        return None

    def combine(self, matrix: Matrix, x: Floats, y: Floats, out: Floats, factors: tuple[float, float, float]) -> Floats:
        """out = f0 matrix x + f1 y + f2 out for blocks (n, m); ``out`` must not be ``x``."""
        a, x = (matrix.local, matrix.halo.extended(x)) if isinstance(matrix, SharedMatrix) else (matrix, x)
        f = np.array(factors, x.dtype)
        self.each(
            lambda first, past: combine_rows(a.indptr, a.indices, a.data, x, y, out, f, first, past),
            a.shape[0],
            min(ROWS_AT_ONCE, 1 + ENTRIES_AT_ONCE * a.shape[0] // max(a.nnz, 1)),
        )
        return out

    def add_products(self, blocks: list[Floats], factors: Float64, out: Floats) -> None:
        """out += X ``factors`` for X = [x1, x2, ...] of blocks (n, m), and factors (m * blocks, b)."""
        shares = np.split(np.ascontiguousarray(factors, out.dtype), len(blocks))

        def add(first: int, past: int) -> None:
            for x, share in zip(blocks, shares, strict=True):
                add_block_product(x, share, out, first, past)

        self.each(add, len(out))

    def gram(self, blocks: list[Floats], y: Floats) -> Float64:
        """X' y (m * blocks, b) for X = [x1, x2, ...] of blocks (n, m), and y (n, b).

        Sums are in float64 and in a fixed order.
        """
        parts = np.zeros((-(-len(y) // ROWS_AT_ONCE), len(blocks), blocks[0].shape[1], y.shape[1]))

        def add(first: int, past: int) -> None:
            for x, part in zip(blocks, parts[first // ROWS_AT_ONCE], strict=True):
                block_dots(x, y, part, first, past)

        self.each(add, len(y))
        return np.asarray(parts.sum(axis=0).reshape(-1, y.shape[1]))

    def by_rows(self, function: Callable[[csr_array], csr_array], left: csr_array) -> csr_array:
        """function(left), for a function that maps each row by itself, such as a product."""
        # SciPy clears 12 bytes for each column of a product. With parts of fixed size this would grow with n squared.
        size = max(PRODUCT_ROWS, -(-left.shape[0] // PRODUCT_PARTS))
        firsts = range(0, left.shape[0], size)
        parts = list(self._pool.map(lambda first: function(left[first : first + size]), firsts))
        return _stacked(parts)


class SharedThreads(Threads):
    """Threads for the rows of this process; products and sums are those of all processes."""

    def __init__(self, n_threads: int, rows: Rows) -> None:
        super().__init__(n_threads)
        self._rows = rows

    def agreed(self, *results: Array) -> tuple[Array, ...]:
        return self._rows.agreed(*results)

    def add_products(self, blocks: list[Floats], factors: Float64, out: Floats) -> None:
        for first, past in self._rows.cuts(out):
            super().add_products([x[first:past] for x in blocks], factors, out[first:past])

    def gram(self, blocks: list[Floats], y: Floats) -> Float64:
        return self._rows.per_cut(lambda cut: super(SharedThreads, self).gram([x[cut] for x in blocks], y[cut]), y)


def _stacked(parts: list[csr_array]) -> csr_array:
    """The rows of all parts. Empties the list: SciPy's vstack would need the memory of the result twice."""
    shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
    number = np.int32 if sum(part.nnz for part in parts) <= np.iinfo(np.int32).max else np.int64
    ends = np.cumsum(np.concatenate([[0], *(np.diff(part.indptr) for part in parts)]), dtype=number)
    data, indices = [part.data for part in parts], [part.indices for part in parts]
    parts.clear()
    all_data = np.concatenate(data)
    data.clear()
    return csr_array((all_data, np.concatenate(indices), ends), shape=shape)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def sum_products(
    typing: Any, n: Any, begin: Any, end: Any, data: Any, indices: Any, x: Any, column: Any, sums: Any
) -> tuple[Any, Callable[..., Any]] | None:
    """sums[column : column + n] = the sum of data[e] x[indices[e], column : column + n] for e from begin to end - 1.

    ``n`` is a literal number. The columns are added by vector instructions in registers. numba makes such code only for
    loops over long arrays, and takes 1.8 times as long for eight columns and five times as long for one (a roll of
    400,000 points, 13 entries in a row, float32). Even and odd entries have their own sums, because an addition waits
    for the one before: coarse rows, of 100 entries and more, then take 0.75 of the time. All arrays must be contiguous,
    and data, x and sums of one type.
    """
    if any(array.layout != "C" for array in (data, indices, x, sums)) or not data.dtype == x.dtype == sums.dtype:
        return None  # numba reports that no implementation accepts these arrays
    number, size = data.dtype, ir.IntType(64)

    def generate(context: Any, builder: Any, signature: Any, arguments: tuple[Any, ...]) -> Any:
        def array(position: int) -> Any:
            return context.make_array(signature.args[position])(context, builder, arguments[position])

        def vector_at(pointer: Any) -> Any:
            return builder.bitcast(pointer, vector.as_pointer())

        vector = ir.VectorType(context.get_value_type(number), n.literal_value)
        every = ir.VectorType(ir.IntType(32), n.literal_value)([0] * n.literal_value)
        n_columns = cgutils.unpack_tuple(builder, array(5).shape)[1]
        even, odd = cgutils.alloca_once(builder, vector), cgutils.alloca_once(builder, vector)
        for total in (even, odd):
            builder.store(vector([0.0] * n.literal_value), total)

        def add(entry: Any, total: Any) -> None:
            row = builder.sext(builder.load(builder.gep(array(4).data, [entry])), size)
            first = builder.gep(array(5).data, [builder.add(builder.mul(row, n_columns), column)])
            columns = builder.load(vector_at(first), align=number.bitwidth // 8)
            value = builder.load(builder.gep(array(3).data, [entry]))
            value = builder.insert_element(vector(ir.Undefined), value, ir.IntType(32)(0))
            value = builder.shuffle_vector(value, vector(ir.Undefined), every)
            builder.store(builder.fadd(builder.load(total), builder.fmul(value, columns)), total)

        begin, end, column = arguments[1], arguments[2], arguments[6]
        past_pairs = builder.sub(end, builder.and_(builder.sub(end, begin), size(1)))
        with cgutils.for_range_slice(builder, begin, past_pairs, size(2)) as (entry, _):
            add(entry, even)
            add(builder.add(entry, size(1)), odd)
        with cgutils.for_range_slice(builder, past_pairs, end, size(1)) as (entry, _):
            add(entry, even)
        place = vector_at(builder.gep(array(7).data, [column]))
        builder.store(builder.fadd(builder.load(even), builder.load(odd)), place, align=number.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(n, types.intp, types.intp, data, indices, x, types.intp, sums), generate


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def sum_rows(begin: int, end: int, data: Floats, indices: Ints, x: Floats, sums: Floats) -> None:
    """sums (m,) = the sum of data[e] x[indices[e]] for e from begin to end - 1, for a block x (n, m)."""
    n_columns, c = x.shape[1], 0
    while c + 8 <= n_columns:
        sum_products(8, begin, end, data, indices, x, c, sums)
        c += 8
    if c + 4 <= n_columns:
        sum_products(4, begin, end, data, indices, x, c, sums)
        c += 4
    while c < n_columns:
        sum_products(1, begin, end, data, indices, x, c, sums)
        c += 1


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def combine_rows(
    indptr: Ints, indices: Ints, data: Floats, x: Floats, y: Floats, out: Floats, factors: Floats, start: int, stop: int
) -> None:
    """Rows start to stop of out = f0 matrix x + f1 y + f2 out, f = ``factors``."""
    row = np.empty(x.shape[1], x.dtype)
    for i in range(start, stop):
        sum_rows(np.intp(indptr[i]), np.intp(indptr[i + 1]), data, indices, x, row)
        for c in range(x.shape[1]):
            new = factors[0] * row[c]
            if factors[1] != 0.0:
                new += factors[1] * y[i, c]
            if factors[2] != 0.0:  # out may be uninitialised
                new += factors[2] * out[i, c]
            out[i, c] = new


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def block_dots(x: Floats, y: Floats, out: Float64, start: int, stop: int) -> None:
    """out (m, b) += x' y for blocks (n, m) and (n, b), over the rows start to stop."""
    for first in range(start, stop, CHUNK_ROWS):
        past = min(first + CHUNK_ROWS, stop)
        out += np.dot(x[first:past].astype(np.float64).T, y[first:past].astype(np.float64))


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def add_block_product(x: Floats, factors: Floats, out: Floats, start: int, stop: int) -> None:
    """out += x ``factors`` for a block x (n, m) and factors (m, b), in the rows start to stop."""
    for first in range(start, stop, CHUNK_ROWS):
        past = min(first + CHUNK_ROWS, stop)
        out[first:past] += np.dot(x[first:past], factors)
