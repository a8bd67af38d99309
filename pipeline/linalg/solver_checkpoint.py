"""Saved states of a long iteration in the store: a killed run continues from there and gives the same bytes."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import CorruptChunk
from ..storage.store import Store

if TYPE_CHECKING:
    from ..kernels.eigensolver.davidson import SubspaceState
    from ..kernels.eigensolver.factorization import Analysis

SAVE_EVERY_SECONDS = 120.0
ROWS = 65_536
KEPT_ROWS = 20_000
"""Least rows of a matrix whose analysis is kept."""


@dataclass(frozen=True)
class StateHead:
    """A saved state: its method, steps, blocks of rows, and the lowest Ritz values (bounds from above)."""

    method: str
    n_steps: int
    n_blocks: int
    values: list[float]


def state_saver(store: Store, name: str) -> Callable[[str, "SubspaceState", bool], None]:
    """A function that saves states of a method under ``name``: every SAVE_EVERY_SECONDS, and always the last one."""
    last = time.monotonic()

    def save(method: str, state: "SubspaceState", at_limit: bool) -> None:
        nonlocal last
        if at_limit or time.monotonic() - last >= SAVE_EVERY_SECONDS:
            write_state(store, name, method, state)
            last = time.monotonic()

    return save


def write_state(store: Store, name: str, method: str, state: "SubspaceState") -> None:
    """Write the blocks of rows, then the head that names them; without its head a state does not count."""
    previous_head = store.read_record(f"{name}/head.json", StateHead)
    n_blocks = math.ceil(len(state.vectors) / ROWS)
    for block in range(n_blocks):
        rows = state.vectors[block * ROWS : (block + 1) * ROWS]
        store.write_bundle(f"{name}/{state.n_steps}-{block}", rows=rows)
    store.write_bundle(
        f"{name}/{state.n_steps}-values",
        values=state.values,
        errors=state.errors,
        before=state.previous_values,
        residual_steps=np.array(state.n_residual_steps),
    )
    values = state.values[: len(state.errors)].tolist()
    store.put_record(f"{name}/head.json", StateHead(method, state.n_steps, n_blocks, values))
    if previous_head and previous_head.n_steps != state.n_steps:
        _remove(store, name, previous_head)


def read_state(store: Store, name: str, method: str, n_points: int) -> "SubspaceState | None":
    """The last saved state; None if there is none, if it is of another method or problem, or if it is damaged."""
    from ..kernels.eigensolver.davidson import SubspaceState  # `lle status` reads heads only

    head = store.read_record(f"{name}/head.json", StateHead)
    if head is None or head.method != method or not 0 < head.n_blocks <= n_points:
        return None
    n_steps = head.n_steps
    keys = [f"{name}/{n_steps}-{block}" for block in range(head.n_blocks)]
    try:
        vectors = np.concatenate([store.read_bundle(key)["rows"] for key in keys])
        small = store.read_bundle(f"{name}/{n_steps}-values")
    except CorruptChunk:  # the iteration starts from the beginning
        return None
    if len(vectors) != n_points:
        return None
    return SubspaceState(
        small["values"], vectors, n_steps, small["errors"], small["before"], int(small["residual_steps"])
    )


class StoredAnalyses:
    """The symbolic analyses of one component in a store, the last one of each kind of factor."""

    def __init__(self, store: Store, component: int, *, read_only: bool = False) -> None:
        self._store, self._component, self._read_only = store, component, read_only

    def load(self, key: str) -> "Analysis | None":
        """The analysis with this key; None if there is none, or if it is damaged."""
        try:
            stored = self._store.read_bundle(self._name(key))
        except CorruptChunk:
            return None
        if str(stored["key"]) != key:
            return None
        from ..kernels.eigensolver.factorization import Analysis  # `lle status` reads heads only
        from ..kernels.eigensolver.pardiso import FactorSize

        size = FactorSize(int(stored["nnz"]), int(stored["n_bytes"]), float(stored["gflop"]))
        return Analysis(size, bool(stored["wide"]), stored["permutation"])

    def keep(self, key: str, analysis: "Analysis") -> None:
        """Write the analysis of a large matrix; that of a small one is done again in less time."""
        if self._read_only or len(analysis.permutation) < KEPT_ROWS:
            return
        size = {name: np.array(value) for name, value in analysis.size._asdict().items()}
        self._store.write_bundle(
            self._name(key), key=np.array(key), wide=np.array(analysis.wide), permutation=analysis.permutation, **size
        )

    def _name(self, key: str) -> str:
        return f"_work/eigen/analysis-{self._component:05d}-{key.partition('-')[0]}"


def saved_heads(store: Store, folder: str) -> list[StateHead]:
    names = [name for name in store.objects.names(folder) if name.endswith("/head.json")]
    return [head for head in store.read_records(sorted(names), StateHead) if head]


def delete_state(store: Store, name: str) -> None:
    head = store.read_record(f"{name}/head.json", StateHead)
    if head:
        store.objects.delete_objects([f"{name}/head.json"])
        _remove(store, name, head)


def _remove(store: Store, name: str, head: StateHead) -> None:
    for bundle in store.objects.names(name):  # listed: a damaged head may count any number of blocks
        if bundle.startswith(f"{name}/{head.n_steps}-"):
            store.delete_bundle(bundle.removesuffix(".npz"))
