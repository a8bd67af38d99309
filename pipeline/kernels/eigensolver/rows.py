"""Rows of vectors that this process holds, and sums over the rows of all processes.

The rows are cut at fixed positions, which depend on their number only. A process holds one or more successive cuts.
Each sum is computed for a cut, and the sums of all cuts are added in their order. So a result has the same bytes for
any number of processes.
"""

from collections.abc import Callable

import numpy as np

from ...core.arrays import Array, Float64, Floats, Int64
from ...core.group import Group, OneProcess

SEED = 20_000
"""Seed of all random vectors, so that every run has the same ones."""
CUT_ROWS, MOST_CUTS = 2**17, 256
"""Rows of a cut, unless there would be more than MOST_CUTS cuts."""


def cut_bounds(n: int, cut_rows: int = CUT_ROWS) -> Int64:
    """First rows of all cuts of ``n`` rows, and n. The last cut has 0.5 to 1.5 times the rows of the others.

    >>> cut_bounds(300_000).tolist()
    [0, 131072, 300000]
    """
    cut_rows *= -(-n // (cut_rows * MOST_CUTS))
    return np.append(np.arange(max(1, round(n / cut_rows))) * cut_rows, n)


def first_cuts(n_cuts: int, n_processes: int) -> Int64:
    """(p + 1,) the first cut of each of p processes, and the number of cuts; p is at most ``n_cuts``."""
    return np.linspace(0, n_cuts, min(n_processes, n_cuts) + 1).round().astype(np.int64)


def in_group(group: Group, n: int, cut_rows: int = CUT_ROWS) -> "Rows":
    """The rows of a process of the group, of ``n`` rows; the group has at most as many processes as there are cuts."""
    bounds = cut_bounds(n, cut_rows)
    return Rows(group, bounds, first_cuts(len(bounds) - 1, group.size))


class Rows:
    """The rows of one process, and sums over all rows. All processes make the same calls in the same order."""

    def __init__(self, group: Group, bounds: Int64, first_cuts: Int64) -> None:
        """bounds: (cuts + 1,) first rows of all cuts, and the number of rows. first_cuts: (size + 1,) of processes."""
        self.group, self.bounds, self.first_cuts = group, bounds, first_cuts
        own = bounds[first_cuts[group.rank] : first_cuts[group.rank + 1] + 1]
        self.start, self.stop, self.n = int(own[0]), int(own[-1]), int(bounds[-1])
        self.own_cuts = [(int(first), int(past)) for first, past in zip(own - own[0], own[1:] - own[0], strict=False)]

    @property
    def n_own(self) -> int:
        """Rows of this process."""
        return self.stop - self.start

    @property
    def starts(self) -> Int64:
        """(size + 1,) first rows of all processes, and the number of rows."""
        return self.bounds[self.first_cuts]

    def count(self, block: Floats) -> int:
        """Rows of a vector or block of which this process holds ``block``."""
        return self.n

    def cuts(self, block: Array) -> list[tuple[int, int]]:
        """First row and last row plus 1 of each cut in ``block``, which has the rows of this process."""
        return self.own_cuts

    def sum(self, parts: Array) -> Array:
        """The sum of the entries of all processes along the first axis; ``parts`` has one entry for each own cut."""
        total: Array = np.concatenate(self.group.gather(parts)).sum(axis=0)
        return total

    def agreed(self, *results: Array) -> tuple[Array, ...]:
        """The first process's results. Those of a factorization differ between kinds of processors."""
        group, others = self.group, range(1, self.group.size)
        parts, sources = (others, []) if group.rank == 0 else ([], [0])
        received = [group.exchange(dict.fromkeys(parts, result), sources) for result in results]
        return results if group.rank == 0 else tuple(part[0] for part in received)

    def total(self, count: int) -> int:
        """The sum of a count over all processes."""
        return sum(int(part[0]) for part in self.group.gather(np.array([count])))

    def random(self, shape: tuple[int, ...]) -> Float64:
        """Rows (own, ...) of a random array (n, ...), normally distributed; ``shape`` is that of the own rows."""
        cut = int(self.first_cuts[self.group.rank])
        return np.concatenate(
            [
                np.random.default_rng((SEED, cut + number)).standard_normal((past - first, *shape[1:]))
                for number, (first, past) in enumerate(self.own_cuts)
            ]
        )

    def per_cut(self, function: Callable[[slice], Array], block: Array) -> Array:
        """The sum of function(rows of a cut) over all cuts of all processes."""
        return self.sum(np.stack([function(slice(first, past)) for first, past in self.cuts(block)]))

    def dot(self, x: Floats, y: Floats) -> Float64:
        """x' y for blocks (own, a) and (own, b), or vectors."""
        return self.per_cut(lambda cut: np.asarray(x[cut].T @ y[cut]), x)

    def times(self, block: Floats, factors: Float64) -> Float64:
        """block ``factors`` for a block (own, a) and factors (a, b). BLAS can round a row by its position."""
        product = np.empty((len(block), factors.shape[1]))
        for first, past in self.cuts(block):
            np.matmul(block[first:past], factors, out=product[first:past])
        return product

    def lengths(self, block: Floats) -> Float64:
        """Euclidean lengths of the columns of a block (own, m), or of a vector."""

        def squares(cut: slice) -> Float64:
            return np.asarray(np.einsum("i...,i...->...", block[cut], block[cut], dtype=np.float64))

        return np.asarray(np.sqrt(self.per_cut(squares, block)))

    def mean(self, block: Floats) -> Float64:
        """Means of the columns of a block (own, m)."""
        return np.asarray(self.per_cut(lambda cut: block[cut].sum(axis=0), block) / self.count(block))

    def largest(self, block: Floats) -> Float64:
        """(m,) the first entry of largest absolute value in each column of a block (own, m)."""
        parts = []
        for first, past in self.cuts(block):
            cut = block[first:past]
            parts.append(cut[np.abs(cut).argmax(axis=0), np.arange(cut.shape[1])])
        entries = np.concatenate(self.group.gather(np.stack(parts)))
        return np.asarray(entries[np.abs(entries).argmax(axis=0), np.arange(entries.shape[1])])

    def triangle(self, block: Float64) -> Float64:
        """R (k, k) of a QR factorization of a block (own, k), computed by cuts (Demmel et al. 2012, TSQR)."""
        parts = [np.linalg.qr(block[first:past], mode="r") for first, past in self.cuts(block)]
        return self.agreed(
            np.asarray(np.linalg.qr(np.concatenate(self.group.gather(np.concatenate(parts))), mode="r"))
        )[0]

    def qr(self, block: Float64) -> tuple[Float64, Float64]:
        """(Q (own, k), R (k, k)) with block = Q R, computed by cuts. May overwrite the block."""
        parts = [np.linalg.qr(block[first:past]) for first, past in self.cuts(block)]
        gathered = self.group.gather(np.concatenate([triangle for _, triangle in parts]))
        before = sum(len(part) for part in gathered[: self.group.rank])
        turn, triangle = self.agreed(*np.linalg.qr(np.concatenate(gathered)))
        block = np.asfortranarray(block)
        for (first, past), (orthonormal, _) in zip(self.cuts(block), parts, strict=True):
            after = before + orthonormal.shape[1]
            block[first:past] = orthonormal @ turn[before:after]
            before = after
        return block, triangle


class _AllRows(Rows):
    """All rows in this process, in one cut: for vectors of any length."""

    def __init__(self) -> None:
        self.group = OneProcess()

    def count(self, block: Floats) -> int:
        return len(block)

    def cuts(self, block: Array) -> list[tuple[int, int]]:
        return [(0, len(block))]

    def sum(self, parts: Array) -> Array:
        total: Array = parts[0]
        return total

    def random(self, shape: tuple[int, ...]) -> Float64:
        return np.random.default_rng(SEED).standard_normal(shape)

    def triangle(self, block: Float64) -> Float64:
        return np.asarray(np.linalg.qr(block, mode="r"))

    def qr(self, block: Float64) -> tuple[Float64, Float64]:
        import scipy.linalg  # the quality measures import this module without it

        block = np.asfortranarray(block)
        columns, triangle = scipy.linalg.qr(block, mode="economic", overwrite_a=True, check_finite=False)
        return np.asarray(columns, np.float64), np.asarray(triangle, np.float64)


ALL_ROWS = _AllRows()
