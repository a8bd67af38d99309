"""Blocks of rows: the unit of tasks, chunks and checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Int64


@dataclass(frozen=True)
class Blocks:
    """n rows cut into blocks of `size` rows each; the last block may have fewer."""

    n: int
    size: int

    @property
    def count(self) -> int:
        """Number of blocks.

        >>> Blocks(25, 10).count
        3
        """
        return -(-self.n // self.size)

    def rows(self, block_index: int) -> tuple[int, int]:
        """First and past-the-last row of a block.

        >>> Blocks(25, 10).rows(2)
        (20, 25)
        """
        return block_index * self.size, min((block_index + 1) * self.size, self.n)

    def holding(self, rows: Int64) -> Iterator[tuple[int, slice]]:
        """The blocks that hold some of the ascending `rows`, each with the slice of them that it holds.

        >>> rows = np.array([3, 21, 24])
        >>> [(number, rows[part].tolist()) for number, part in Blocks(25, 10).holding(rows)]
        [(0, [3]), (2, [21, 24])]
        """
        cuts = np.searchsorted(rows, np.arange(self.count + 1) * self.size)
        return ((number, slice(cuts[number], cuts[number + 1])) for number in np.flatnonzero(np.diff(cuts)).tolist())
