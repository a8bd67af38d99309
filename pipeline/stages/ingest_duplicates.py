"""Merge equal rows: one task, which holds a number for each row, and the hashes of up to MERGED_AT_ONCE rows."""

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Int64
from ..engine import task_costs
from ..engine.step import WHOLE_DATA, Report, Step, Work, task
from ..kernels.neighbors.duplicates import merge_duplicates
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

MERGED_AT_ONCE = 2**24
"""Rows whose hashes are sorted together; does not affect results."""


@dataclass(frozen=True)
class DistinctRows(Report):
    n_valid: int
    n_points: int


def merge_step(blocks: Blocks, invalid: str) -> Step[DistinctRows]:
    n, expected = blocks.n, DistinctRows(blocks.n, blocks.n)
    return Step(
        "ingest.merge_duplicates",
        task(merge_rows, invalid=invalid),
        1,
        task_costs.TASK_BYTES + 130 * min(n, MERGED_AT_ONCE) + 12 * max(0, n - MERGED_AT_ONCE),
        arrays=(array_specs.REPRESENTATIVE.sized(blocks),),
        expected=lambda b: expected,
        runs_on=WHOLE_DATA,
        work=Work(2e-7 * n),
    )


def merge_rows(store: Store, block_index: int, invalid: str) -> DistinctRows:
    """Write the representative of every valid row: the first row with the same values."""
    n = store.array(array_specs.VALID.name).shape[0]
    if n <= MERGED_AT_ONCE:
        valid = store.read_all(array_specs.VALID.name) > 0
        representative = merge_duplicates(store.read_all(array_specs.ROW_HASH.name), valid)
    else:
        representative = _merged_in_ranges(store, n)
    store.write(array_specs.REPRESENTATIVE.name, 0, representative)
    n_points = sum(
        int((part == np.arange(start, start + len(part))).sum())
        for start, part in store.in_blocks(array_specs.REPRESENTATIVE.name)
    )
    return DistinctRows(int((representative >= 0).sum()), n_points)


def _merged_in_ranges(store: Store, n: int) -> Int64:
    """As `merge_duplicates` for all rows: of each block first, then of the first rows of the blocks by their hashes.

    The hashes are read once for each range of values; about MERGED_AT_ONCE first rows are in a range, however many
    rows are equal.
    """
    representative, n_ranges = np.full(n, -1, np.int64), -(-n // MERGED_AT_ONCE)
    blocks = zip(store.in_blocks(array_specs.ROW_HASH.name), store.in_blocks(array_specs.VALID.name), strict=True)
    for (start, hashes), (_, valid) in blocks:
        own = merge_duplicates(hashes, valid > 0)
        representative[start : start + len(own)] = np.where(own >= 0, own + start, -1)
    for number in range(n_ranges):
        parts = []
        for start, hashes in store.in_blocks(array_specs.ROW_HASH.name):
            rows = np.arange(start, start + len(hashes))
            range_of_row = (hashes[:, 0] >> np.uint64(32)) * np.uint64(n_ranges) >> np.uint64(32)
            chosen = (range_of_row == number) & (representative[rows] == rows)
            parts.append((rows[chosen], hashes[chosen]))
        rows, hashes = (np.concatenate(column) for column in zip(*parts, strict=True))
        representative[rows] = rows[merge_duplicates(hashes, np.ones(len(rows), np.bool_))]
    for start in range(0, n, MERGED_AT_ONCE):
        part = representative[start : start + MERGED_AT_ONCE]
        part[part >= 0] = representative[part[part >= 0]]
    return representative
