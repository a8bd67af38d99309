"""Whether all that is read of an input is one state of it: others may write there meanwhile; and digests of states."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputChanged
from pipeline.inputs import Source
from pipeline.storage import array_specs
from pipeline.storage.blocks import block_rows
from pipeline.storage.store import Store

LOOKS = 16


def array_digest(values: npt.NDArray[Any], *more: Any) -> str:
    """A digest of an array's bytes, shape and dtype, and of what else is given."""
    digest = hashlib.blake2b(repr((values.dtype.str, values.shape, *more)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def require_one_state(before: Source, after: Source, size: int, n: int, reports: list[dict[str, Any]]) -> None:
    """Raises InputChanged unless all blocks come from the input as it was before, and still is for its first n rows.

    A file that comes among others moves the rows of all that follow it: some would be read twice and others never.
    """
    wanted = [before.state(*block_rows(block, size, n)) for block in range(len(reports))]
    same = before.n_rows == n and all(
        report.get("state", state) == state for report, state in zip(reports, wanted, strict=True)
    )
    if same and after.fingerprint() != before.fingerprint():
        same = after.n_rows >= n and after.stamps(size, n) == before.stamps(size, n)
    if not same:
        raise InputChanged(
            "input: files were changed, added or taken away while they were read. What was read is forgotten; run the "
            "same command again, best when nobody writes there"
        )


def require_same_rows(store: Store, opened: Source, n: int) -> None:
    """Raises InputChanged where some of the n rows stored are no longer those of the input.

    For what a later stage reads beside them. A few are looked at, the last among them: a file that came among others
    moves all rows behind it.
    """

    def moved(row: int) -> bool:
        known = store.read(array_specs.RAW.name, row, row + 1)
        return not np.array_equal(opened.read(row, row + 1).astype(known.dtype), known, equal_nan=True)

    looks = np.unique(np.linspace(0, n - 1, LOOKS).astype(int)).tolist()
    if opened.n_rows < n or any(map(moved, looks)):
        raise InputChanged(
            "input: files were changed, added or taken away since their rows were read, so neighbors.k_per_point no "
            "longer goes with them. Run the same command again, best when nobody writes there"
        )
