"""Blocks of rows: the unit of tasks, chunks and checkpoints."""


def block_rows(block: int, size: int, n_rows: int) -> tuple[int, int]:
    """First and past-the-last row of a block.

    >>> block_rows(2, 10, 25)
    (20, 25)
    """
    return block * size, min((block + 1) * size, n_rows)
