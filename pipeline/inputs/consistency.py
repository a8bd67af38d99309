"""Check that all rows of an input were read in one state, although other programs may write to it; array digests."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ..core.errors import InputChanged, InputError, LleError, StageIncomplete
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from . import Source

N_CHECKED_ROWS = 16


def array_digest(values: npt.NDArray[np.generic], *more: object) -> str:
    """A digest of an array's bytes, shape and dtype, and of further values."""
    digest = hashlib.blake2b(repr((values.dtype.str, values.shape, *more)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def require_unchanged_input(before: Source, after: Source, blocks: Blocks, states: Sequence[object]) -> None:
    """Raises InputChanged unless all blocks were read from the state `before`, and its first n rows are unchanged.

    `states` are those of the blocks when they were read; None for a block that was not read.

    A new file between others shifts all later rows: some would be read twice and others never.
    """
    expected_states = [before.state(*blocks.rows(block_index)) for block_index in range(len(states))]
    is_unchanged = before.n_rows == blocks.n and all(
        state in (None, expected) for state, expected in zip(states, expected_states, strict=True)
    )
    if not (is_unchanged and _begins_with(after, before, blocks.size)):
        raise InputChanged(
            "input: files were changed, added or removed while they were read. The rows read are discarded; run the "
            "same command again when nothing writes to the input"
        )


def _begins_with(after: Source, before: Source, block_size: int) -> bool:
    """Whether the rows of `before`, read in blocks, are unchanged; others may follow them."""
    n = before.n_rows
    if after.fingerprint() == before.fingerprint():
        return True
    return after.n_rows >= n and after.stamps(block_size, n) == before.stamps(block_size, n)


@contextmanager
def one_state(before: Source, reopen: Callable[[], Source]) -> Iterator[None]:
    """A failure becomes InputChanged if the rows of the input are no longer in the state `before`.

    A file that another program is writing looks damaged, and one that is replaced is missing for a moment.
    """
    try:
        yield
    except (InputError, StageIncomplete) as error:
        try:
            is_unchanged = _begins_with(reopen(), before, max(before.n_rows, 1))
        except LleError:  # it could be opened before
            is_unchanged = False
        if is_unchanged:
            raise
        raise InputChanged(
            f"input: files were changed, added or removed during the run, which failed: {error}. Run the same command "
            "again when nothing writes to the input"
        ) from error


def require_same_rows(store: Store, source: Source, n: int) -> None:
    """Raises InputChanged if some of the n stored rows differ from those of the input.

    For a later stage that reads the input again. A few rows are compared, including the last one: a new file between
    others shifts all later rows.
    """

    def is_changed(row: int) -> bool:
        stored = store.read(array_specs.RAW.name, row, row + 1)
        return not np.array_equal(source.read(row, row + 1).astype(stored.dtype), stored, equal_nan=True)

    checked = np.unique(np.linspace(0, n - 1, N_CHECKED_ROWS).astype(int)).tolist()
    if source.n_rows < n or any(map(is_changed, checked)):
        raise InputChanged(
            "input: files were changed, added or removed since their rows were read, so neighbors.k_per_point no "
            "longer matches them. Run the same command again when nothing writes to the input"
        )
