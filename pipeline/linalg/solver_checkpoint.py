"""Saved states of a long iteration in the store: a killed run continues from there and gives the same bytes."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from ..core.errors import CorruptChunk
from ..core.group import OneProcess
from ..kernels.eigensolver.davidson import SubspaceState
from ..kernels.eigensolver.rows import Rows
from ..storage.store import Store
from .solver_progress import StateHead

SAVE_EVERY_SECONDS = 120.0
ROWS = 65_536


def state_saver(store: Store, name: str, rows: Rows | None = None) -> Callable[[str, SubspaceState, bool], None]:
    """A function that saves states of a method under ``name``: every SAVE_EVERY_SECONDS, and always the last one."""
    last = time.monotonic()

    def save(method: str, state: SubspaceState, at_limit: bool) -> None:
        nonlocal last
        is_due = at_limit or time.monotonic() - last >= SAVE_EVERY_SECONDS
        if rows is not None:  # the first process decides, because their clocks differ
            is_due = bool(rows.group.gather(np.array([is_due]))[0][0])
        if is_due:
            write_state(store, name, method, state, rows)
            last = time.monotonic()

    return save


def write_state(store: Store, name: str, method: str, state: SubspaceState, rows: Rows | None = None) -> None:
    """Write the blocks of rows, then the head that names them; without its head a state does not count.

    ``rows`` are those of this process, which writes a block for each of their cuts; None for all.
    """
    rows = rows or _all_rows(len(state.vectors))
    for cut, (first, past) in _own_cuts(rows):
        store.write_bundle(f"{name}/{state.n_steps}-{cut}", rows=state.vectors[first:past])
    n_blocks = rows.total(len(rows.own_cuts))  # all processes have written their blocks
    if rows.group.rank > 0:
        return
    store.write_bundle(
        f"{name}/{state.n_steps}-values",
        values=state.values,
        errors=state.errors,
        before=state.previous_values,
        residual_steps=np.array(state.n_residual_steps),
    )
    values = state.values[: len(state.errors)].tolist()
    store.put_record(f"{name}/head.json", StateHead(method, state.n_steps, n_blocks, values))
    delete_state(store, name, state.n_steps)


def read_state(store: Store, name: str, method: str, n_points: int, rows: Rows | None = None) -> SubspaceState | None:
    """The last saved state; None if there is none, if it is of another method or problem, or if it is damaged.

    ``rows`` are those of this process, of ``n_points``; None for all.
    """
    rows = rows or _all_rows(n_points)
    state = _read_state(store, name, method, rows)
    is_good = all(bool(part[0]) for part in rows.group.gather(np.array([state is not None])))
    return state if is_good else None


def _all_rows(n_points: int) -> Rows:
    """All rows in this process, in cuts of ROWS."""
    bounds = np.append(np.arange(0, n_points, ROWS), n_points)
    return Rows(OneProcess(), bounds, np.array([0, len(bounds) - 1]))


def _own_cuts(rows: Rows) -> Iterator[tuple[int, tuple[int, int]]]:
    """The number of each cut of this process, with its first row and last row plus 1."""
    return enumerate(rows.own_cuts, int(rows.first_cuts[rows.group.rank]))


def _read_state(store: Store, name: str, method: str, rows: Rows) -> SubspaceState | None:
    head = store.read_record(f"{name}/head.json", StateHead)
    if head is None or head.method != method or head.n_blocks != len(rows.bounds) - 1:
        return None
    n_steps = head.n_steps
    try:
        vectors = np.concatenate([store.read_bundle(f"{name}/{n_steps}-{cut}")["rows"] for cut, _ in _own_cuts(rows)])
        small = store.read_bundle(f"{name}/{n_steps}-values")
    except CorruptChunk:  # the iteration starts from the beginning
        return None
    if len(vectors) != rows.n_own:
        return None
    return SubspaceState(
        small["values"], vectors, n_steps, small["errors"], small["before"], int(small["residual_steps"])
    )


def delete_state(store: Store, name: str, kept: int | None = None) -> None:
    """Delete the states under ``name``, except that of the step ``kept``."""
    if kept is None:
        store.objects.delete_objects([f"{name}/head.json"])
    for path in store.objects.names(name):  # listed: a killed process leaves blocks without a head
        if path.endswith(".npz") and not path.startswith(f"{name}/{kept}-"):
            store.delete_bundle(path.removesuffix(".npz"))
