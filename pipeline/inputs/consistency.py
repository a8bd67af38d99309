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
    n, size = blocks.n, blocks.size
    expected_states = [before.state(*blocks.rows(block_index)) for block_index in range(len(states))]
    is_unchanged = before.n_rows == n and all(
        state in (None, expected) for state, expected in zip(states, expected_states, strict=True)
    )
    if is_unchanged and after.fingerprint() != before.fingerprint():
        is_unchanged = after.n_rows >= n and after.stamps(size, n) == before.stamps(size, n)
    if not is_unchanged:
        raise InputChanged(
            "input: files were changed, added or removed while they were read. The rows read are discarded; run the "
            "same command again when nothing writes to the input"
        )


@contextmanager
def one_state(before: Source, reopen: Callable[[], Source]) -> Iterator[None]:
    """A failure becomes InputChanged if the input is no longer in the state `before`.

    A file that another program is writing looks damaged, and one that is replaced is missing for a moment.
    """
    try:
        yield
    except (InputError, StageIncomplete) as error:
        if _is_in_state(before, reopen):
            raise
        raise InputChanged(
            f"input: files were changed, added or removed during the run, which failed: {error}. Run the same command "
            "again when nothing writes to the input"
        ) from error


def _is_in_state(before: Source, reopen: Callable[[], Source]) -> bool:
    try:
        return reopen().fingerprint() == before.fingerprint()
    except LleError:  # it could be opened before
        return False


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
