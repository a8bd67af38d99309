"""Blocks of rows: the unit of tasks, chunks and checkpoints."""

from dataclasses import dataclass


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
