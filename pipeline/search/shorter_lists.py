"""Truncate exact neighbour lists of another run: a search for many neighbours also answers a search for fewer.

`checkpoint.begin_step` copies steps with equal fingerprints from other stores. This step is the only one that can be
taken from a step with another fingerprint.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..core.errors import CorruptChunk
from ..engine import checkpoint
from ..engine.plan import Report, Step
from ..storage import array_specs
from ..storage.store import Store

EXACT_SEARCH = {"method", "n_neighbors", "n_blocks", "blocks", "into"}
"""The parameters of an exact Euclidean search; its lists for k neighbours are the beginnings of those for more."""


def truncated_step(step: Step, upstream: str, source_stores: Sequence[Store]) -> Step:
    """The step with its search replaced by truncating the longer lists of a source store, if one has them."""
    if (step.stage, step.name) != ("find_neighbors", "search") or set(step.decides.parameters) != EXACT_SEARCH:
        return step
    if {array.spec.name for array in step.writes.arrays} != {
        array_specs.KNN_INDICES.name,
        array_specs.KNN_DISTANCES.name,
    }:
        return step
    for source_store in source_stores:
        k_stored = source_store.attributes()["config"]["neighbors"]["n_neighbors"]
        parameters = {**step.decides.parameters, "n_neighbors": k_stored}
        stored_step = replace(step, decides=replace(step.decides, parameters=parameters))
        finished = checkpoint.finished_blocks(
            source_store, step.stage, step.name, checkpoint.fingerprint_of(upstream, stored_step)
        )
        if k_stored > step.decides.parameters["n_neighbors"] and len(finished) == step.n_blocks:
            return replace(step, function=partial(cut_lists, step.function, source_store.url))
    return step


def is_truncated(step: Step) -> bool:
    """Whether the step truncates longer lists."""
    return isinstance(step.function, partial) and step.function.func is cut_lists


def cut_lists(
    search: Callable[..., Report], source_url: str, store: Store, block_index: int, **parameters: Any
) -> Report:
    """Write the first n_neighbors columns of a source store's exact lists; search the block if its lists are damaged.

    Gives the same bytes as `search`: both sort by distance, then by id.
    """
    k = parameters["n_neighbors"]
    start, stop = parameters["blocks"].rows(block_index)
    source_store = Store(source_url)
    try:
        ids = source_store.read(array_specs.KNN_INDICES.name, start, stop)
        distances = source_store.read(array_specs.KNN_DISTANCES.name, start, stop)
    except CorruptChunk:
        return search(store, block_index, **parameters)
    store.write(array_specs.KNN_INDICES.name, start, ids[:, :k])
    store.write(array_specs.KNN_DISTANCES.name, start, distances[:, :k])
    return {"rows_read": 0}
