"""Which recorded steps, arrays and metrics of a store belong to its current config.

While a run with a changed config is under way, `_run/current.json` lists the steps it has finished. Results of the
earlier config stay in the store, but export, open_run and the report ignore them.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ..core.errors import NoEmbedding
from ..storage import array_specs
from ..storage.store import Store
from . import checkpoint
from .checkpoint import finished_blocks, recorded_steps, step_record
from .damage import StepRecord
from .step import Json

CURRENT = "_run/current.json"
EMBEDDING_STEPS = ("solve_embedding.write", "transform.embed")
"""The steps that write an embedding: of the fitted points, and of placed rows."""


@dataclass(frozen=True)
class Finished:
    """The steps that the present run has finished, their arrays, and whether metrics.json is written."""

    steps: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    metrics: bool = False


def begin_run(store: Store, config: Json, input_fingerprint: object) -> None:
    """Empty the list of current steps, unless config and input are those of the store's last run.

    Call this before the new config is written to the store. A kill in between then hides valid results, but never shows
    results of the earlier config.
    """
    attributes = store.attributes()
    earlier = [attributes.get("config"), attributes.get("input_fingerprint")]
    if json.dumps(earlier, sort_keys=True) != json.dumps([config, input_fingerprint], sort_keys=True):
        store.put_record(CURRENT, Finished())


def _current(store: Store) -> Finished | None:
    """The list of current steps and arrays; None if all are current. An unreadable list counts as empty."""
    current = store.read_record(CURRENT, Finished)
    return Finished() if current is None and store.objects.exists(CURRENT) else current


def add_finished_steps(store: Store, finished_steps: Collection[str]) -> None:
    """Add finished steps to the list of current steps; does nothing if there is no list, as all steps are current."""
    if (current := _current(store)) is not None:
        steps, arrays = set(current.steps), set(current.arrays)
        for key in set(finished_steps) - steps:
            arrays |= set((step_record(store, key) or checkpoint.DAMAGED).arrays)
        changed = replace(current, steps=tuple(sorted(steps.union(finished_steps))), arrays=tuple(sorted(arrays)))
        store.put_record(CURRENT, changed)


def delete_leftovers(store: Store, finished_steps: Collection[str]) -> None:
    """Delete what a finished run of this config would not have: other steps, and data and markers without a step.

    Of the data these are results and everything in `_work`.
    """
    for key in checkpoint.begun_steps(store) - set(finished_steps):
        checkpoint.delete_step_record(store, key)
    steps = checkpoint.recorded_steps(store)
    written = {"_work/zarr.json"}.union(*(record.written for record in steps.values()))
    markers = {checkpoint.marker_name(key, block) for key, record in steps.items() for block in range(record.n_blocks)}
    stray = [marker for marker in store.objects.names("_done") if checkpoint.step_of(marker) and marker not in markers]
    for name in store.objects.names("_work"):
        if written.isdisjoint({name, *map(str, PurePosixPath(name).parents)}):
            stray.append(name)
    store.objects.delete_objects(stray)
    list(store.map_together(store.delete, sorted(set(array_specs.RESULTS) - written)))


def end_run(store: Store) -> None:
    """Delete the list of current steps, because all steps now belong to the store's config."""
    store.objects.delete_objects([CURRENT])


def metrics_written(store: Store) -> None:
    """Record that metrics.json belongs to the store's config."""
    if (current := _current(store)) is not None:
        store.put_record(CURRENT, replace(current, metrics=True))


def has_metrics(store: Store) -> bool:
    """Whether metrics.json in the store belongs to its config, not to an earlier one."""
    current = _current(store)
    return current is None or current.metrics


def current_steps(store: Store) -> dict[str, StepRecord]:
    """The records of all steps that belong to the store's config, in the form of `recorded_steps`."""
    recorded, current = recorded_steps(store), _current(store)
    if current is None:
        return recorded
    return {key: record for key, record in recorded.items() if key in current.steps}


def current_record(store: Store, key: str) -> StepRecord | None:
    """One record of `current_steps`, without reading the others; None if the step is not current."""
    current = _current(store)
    if current is not None and key not in current.steps:
        return None
    return step_record(store, key)


def has_array(store: Store, name: str) -> bool:
    """Whether the store has an array that is current. Nothing is listed, because some HTTP servers do not allow it."""
    current = _current(store)
    return (current is None or name in current.arrays) and store.has_array(name)


def embedding_record(store: Store) -> StepRecord | None:
    """The record of the step that wrote the embedding of the store's config; None if it is not finished.

    The embedding may come from eigenpairs that did not converge.
    """
    for key in EMBEDDING_STEPS if store.is_run() else ():
        record = current_record(store, key)
        if record and len(finished_blocks(store, key, record.fingerprint)) == record.n_blocks:
            return record
    return None


def require_embedding(store: Store) -> StepRecord:
    """As `embedding_record`. Raises ConfigError if there is none; the store may hold one of an earlier config."""
    if (record := embedding_record(store)) is None:
        raise NoEmbedding(
            f"{store.url}: has no finished embedding of its config (`lle status` shows its progress); run the job "
            f"again until it is done"
        )
    return record
