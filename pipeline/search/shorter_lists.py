"""Exact neighbour lists cut from longer ones: a search for many neighbours answers those for fewer.

Steps of equal fingerprints are taken from another store by `checkpoint.begin_step`; this is the one step that another
can stand in for under a fingerprint of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pipeline.core.errors import CorruptChunk
from pipeline.engine import checkpoint
from pipeline.engine.plan import Report, Step
from pipeline.storage import array_specs
from pipeline.storage.blocks import block_rows
from pipeline.storage.store import Store

EXACT_SEARCH = {"method", "n_neighbors", "n_blocks", "size", "n_points"}
"""The parameters of an exact Euclidean search, whose lists for k neighbours begin those for more."""


def cut_step(step: Step, upstream: str, donors: Sequence[Store]) -> Step:
    """The step with cutting a donor's longer lists in place of its search, where a donor has them; else as it is."""
    if (step.stage, step.name) != ("find_neighbors", "search") or set(step.decides.parameters) != EXACT_SEARCH:
        return step
    if {array.spec.name for array in step.writes.arrays} != {
        array_specs.KNN_INDICES.name,
        array_specs.KNN_DISTANCES.name,
    }:
        return step
    for donor in donors:
        wider = donor.attributes()["config"]["neighbors"]["n_neighbors"]
        parameters = {**step.decides.parameters, "n_neighbors": wider}
        longer = replace(step, decides=replace(step.decides, parameters=parameters))
        done = checkpoint.finished_blocks(donor, step.stage, step.name, checkpoint.fingerprint(upstream, longer))
        if wider > step.decides.parameters["n_neighbors"] and len(done) == step.n_blocks:
            return replace(step, function=partial(cut_lists, step.function, donor.url))
    return step


def is_cut(step: Step) -> bool:
    """Whether the step takes its result from longer lists."""
    return isinstance(step.function, partial) and step.function.func is cut_lists


def cut_lists(search: Callable[..., Report], donor: str, store: Store, block: int, **parameters: Any) -> Report:
    """The first n_neighbors columns of a donor's exact lists; a block whose lists are damaged there is searched.

    The same bytes as `search`, which it stands in for: both list by distance, then by id.
    """
    k = parameters["n_neighbors"]
    start, stop = block_rows(block, parameters["size"], parameters["n_points"])
    longer = Store(donor)
    try:
        ids = longer.read(array_specs.KNN_INDICES.name, start, stop)
        distances = longer.read(array_specs.KNN_DISTANCES.name, start, stop)
    except CorruptChunk:
        return search(store, block, **parameters)
    store.write(array_specs.KNN_INDICES.name, start, ids[:, :k])
    store.write(array_specs.KNN_DISTANCES.name, start, distances[:, :k])
    return {"rows_read": 0}
