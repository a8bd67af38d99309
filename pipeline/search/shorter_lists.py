"""Exact neighbour lists cut from longer ones: a search for many neighbours answers those for fewer.

Steps of equal fingerprints are taken from another store by `checkpoint.begin_step`; this is the one step that another
can stand in for under a fingerprint of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.core.errors import CorruptChunk
from pipeline.engine import checkpoint
from pipeline.engine.plan import Report, Step
from pipeline.kernels.neighbors.knn import exact_distances
from pipeline.storage import array_specs
from pipeline.storage.blocks import block_rows
from pipeline.storage.store import Array, Store

EXACT_SEARCH = {"method", "n_neighbors", "n_blocks", "size", "n_points"}
"""The parameters of an exact Euclidean search, whose lists for k neighbours begin those for more."""
TIE = 1e-12
"""Relative difference below which two distances may have come out in either order."""


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
    """The first n_neighbors columns of a donor's exact lists; the block is searched where a tie decides what is first,
    and where they are damaged.

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
    close = np.flatnonzero(distances[:, k - 1] == distances[:, k])  # equal in float32, as they are stored
    if len(close) and _has_ties(store, start + close, ids[close, k - 1 : k + 1]):
        return search(store, block, **parameters)
    store.write(array_specs.KNN_INDICES.name, start, ids[:, :k])
    store.write(array_specs.KNN_DISTANCES.name, start, distances[:, :k])
    return {"rows_read": 0}


def _has_ties(store: Store, rows: Array, pairs: Array) -> bool:
    """Whether a point of `rows` (r,) is as far from one of its two neighbours (r, 2) as from the other."""
    wanted, positions = np.unique(np.concatenate([rows, pairs.ravel()]), return_inverse=True)
    points = store.gather(array_specs.POINTS.name, wanted)
    own, others = positions[: len(rows)], positions[len(rows) :].reshape(pairs.shape)
    near, far = exact_distances(points[own], points, others).T
    return bool((far - near <= TIE * far).any())
