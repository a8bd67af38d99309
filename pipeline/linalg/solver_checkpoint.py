"""The state of a long iteration in the store, so that a run that was killed goes on from there with the same bytes."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import CorruptChunk
from ..kernels.eigensolver.davidson import SubspaceState
from ..storage.records import SOLVER_HEAD
from ..storage.store import Store

KEEP_EVERY_SECONDS = 120.0
ROWS = 65_536


def keeper(store: Store, name: str) -> Callable[[SubspaceState, bool], None]:
    """A function that keeps the states it is given under ``name``, some minutes apart and the last one."""
    last = time.monotonic()

    def keep(state: SubspaceState, at_limit: bool) -> None:
        nonlocal last
        if at_limit or time.monotonic() - last >= KEEP_EVERY_SECONDS:
            write_state(store, name, state)
            last = time.monotonic()

    return keep


def write_state(store: Store, name: str, state: SubspaceState) -> None:
    """Blocks of rows first, then the head that names them: a state is whole or not there."""
    before = store.get_record(f"{name}/head.json", SOLVER_HEAD)
    n_blocks = math.ceil(len(state.vectors) / ROWS)
    for block in range(n_blocks):
        rows = state.vectors[block * ROWS : (block + 1) * ROWS]
        store.write_bundle(f"{name}/{state.n_steps}-{block}", rows=rows)
    store.write_bundle(
        f"{name}/{state.n_steps}-values", values=state.values, errors=state.errors, before=state.before,
        hessenberg=state.hessenberg,
    )  # fmt: skip
    head = {"n_degrees": state.n_degrees, "n_steps": state.n_steps, "n_blocks": n_blocks,
            "values": state.values[: len(state.errors)].tolist()}  # fmt: skip
    store.put_json(f"{name}/head.json", head)
    if before and before["n_steps"] != state.n_steps:
        _remove(store, name, before)


def read_state(store: Store, name: str, n_points: int) -> SubspaceState | None:
    """The state kept last; None without one, or when it is of another problem or damaged."""
    head = store.get_record(f"{name}/head.json", SOLVER_HEAD)
    if head is None:
        return None
    n_steps = head["n_steps"]
    keys = [f"{name}/{n_steps}-{block}" for block in range(head["n_blocks"])]
    try:
        vectors = np.concatenate([store.read_bundle(key)["rows"] for key in keys])
        small = store.read_bundle(f"{name}/{n_steps}-values")
    except CorruptChunk:  # the iteration starts anew
        return None
    if len(vectors) != n_points or "hessenberg" not in small:
        return None
    counts = head["n_degrees"], n_steps
    return SubspaceState(small["values"], vectors, *counts, small["errors"], small["before"], small["hessenberg"])


def kept_heads(store: Store, folder: str) -> list[dict[str, Any]]:
    """Of every state in the folder: products so far and the lowest Ritz values, upper bounds on the eigenvalues."""
    names = [name for name in store.objects.names(folder) if name.endswith("/head.json")]
    return [head for name in sorted(names) if (head := store.get_record(name, SOLVER_HEAD))]


def forget_state(store: Store, name: str) -> None:
    """Remove what is kept under ``name``."""
    head = store.get_record(f"{name}/head.json", SOLVER_HEAD)
    if head:
        store.objects.delete(f"{name}/head.json")
        _remove(store, name, head)


def _remove(store: Store, name: str, head: dict[str, int]) -> None:
    keys = [*range(head["n_blocks"]), "values"]
    for key in keys:
        store.delete_bundle(f"{name}/{head['n_steps']}-{key}")
