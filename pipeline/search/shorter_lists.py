"""Truncate exact neighbour lists of another run: a search for many neighbours also answers a search for fewer.

`checkpoint.begin_step` copies steps with equal fingerprints from other stores. This step is the only one that can be
taken from a step with another fingerprint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from ..core.errors import CorruptChunk
from ..engine import checkpoint
from ..engine.step import R, Report, Step, Task
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

EXACT_SEARCH = {"method", "n_neighbors", "blocks", "into"}
"""The parameters of an exact Euclidean search; its lists for k neighbours are the beginnings of those for more."""


def truncated_step(step: Step[R], upstream: str, source_stores: Sequence[Store]) -> Step[R]:
    """The step with its search replaced by truncating the longer lists of a source store, if one has them."""
    if step.key != "find_neighbors.search" or set(step.task.parameters) != EXACT_SEARCH:
        return step
    if step.written != {array_specs.KNN_INDICES.name, array_specs.KNN_DISTANCES.name}:
        return step
    for source_store in source_stores:
        k_stored = source_store.attributes()["config"]["neighbors"]["n_neighbors"]
        stored_step = replace(step, task=step.task.with_parameters(n_neighbors=k_stored))
        finished = checkpoint.finished_reports(source_store, step, stored_step.fingerprint(upstream))
        if k_stored > cast(int, step.task.parameters["n_neighbors"]) and len(finished) == step.n_blocks:
            return replace(step, task=CutLists(step.task.function, step.task.parameters, source_store.url))
    return step


@dataclass(frozen=True)
class CutLists(Task[R]):
    """Write the first n_neighbors columns of a source store's exact lists; search the block if its lists are damaged.

    Gives the same bytes as the search: both sort by distance, then by id.
    """

    source_url: str = ""

    def __call__(self, store: Store, block_index: int) -> R:
        k, blocks = cast(int, self.parameters["n_neighbors"]), cast(Blocks, self.parameters["blocks"])
        start, stop = blocks.rows(block_index)
        source_store = Store(self.source_url)
        try:
            ids = source_store.read(array_specs.KNN_INDICES.name, start, stop)
            distances = source_store.read(array_specs.KNN_DISTANCES.name, start, stop)
        except CorruptChunk:
            return super().__call__(store, block_index)
        store.write(array_specs.KNN_INDICES.name, start, ids[:, :k])
        store.write(array_specs.KNN_DISTANCES.name, start, distances[:, :k])
        return cast(R, Report())
