"""What is done and what remains: fingerprints, records of steps, markers of blocks.

A marker `_done/<stage>/<step>.<block>.json` is written after the block's data and holds the step's fingerprint. It
counts only while the fingerprint matches, so a changed config, input or step invalidates exactly what it affects.
"""

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ..core.errors import StageIncomplete, StoreError
from ..storage.records import from_json, to_json
from ..storage.store import Store
from . import damage
from .damage import StepRecord as StepRecord
from .step import BlockReport, Json, R, Report, Step

T = TypeVar("T")
FinishedSteps = Collection[str] | None
DAMAGED = StepRecord(fingerprint="", n_blocks=1, begun=0.0)
MARKER = re.compile(r"_done/([^/.]+)/([^/.]+)\.\d+\.json")


def with_records(
    store: Store, step: Step[R], attributes: Json | None = None, among: Collection[str] | None = None
) -> Step[R]:
    """Add the state of all records and the store's attributes to the state of a step that `depends_on_records`.

    A record holds the start time and the seconds of its step, so it changes with every computed block. A preview passes
    the `attributes` of the next run and, in `among`, the steps it will have.
    """
    if not step.depends_on_records:
        return step
    found, own = recorded_steps(store), f"{step.stage}."
    states = {
        key: [record.fingerprint, record.begun, record.seconds]
        for key, record in found.items()
        if not key.startswith(own) and (among is None or key in among)
    }
    attributes = store.attributes() if attributes is None else attributes
    return replace(step, input_state={**step.input_state, "attributes": attributes, "records": states})


def marker_name(key: str, block: int) -> str:
    return f"_done/{key.replace('.', '/')}.{block:05d}.json"


def begin_step(
    store: Store,
    step: Step[R],
    fingerprint: str,
    finished_steps: FinishedSteps = None,
    source_stores: Sequence[Store] = (),
) -> dict[int, BlockReport[R]]:
    """Prepare the store for a step; returns the reports of its finished blocks.

    A step recorded under another fingerprint is removed: first its markers, then its arrays, so a kill in between
    leaves no marker without data. Steps computed from it are removed as well, except the `finished_steps` of this run
    (None: all are kept). Blocks that a source store has finished under the same fingerprint are copied. A step whose
    data were freed begins again if the marker of a block is missing.
    """
    record = step_record(store, step.key)
    is_current = record is not None and (record.fingerprint, record.n_blocks) == (fingerprint, step.n_blocks)
    if record is not None and is_current and _outputs_exist(store, step, record):
        reports = finished_reports(store, step, fingerprint)
        if len(reports) == step.n_blocks or not record.freed:
            return reports
        delete_step_record(store, step.key)  # the data of all blocks were freed
        _create_outputs(store, step, fingerprint)
        return {}
    delete_step_record(store, step.key)
    other_steps = begun_steps(store) - set(finished_steps or ())
    if other_steps and (step.is_measurement or finished_steps is None):  # only those of another method
        steps = recorded_steps(store)
        other_steps = {key for key in other_steps & steps.keys() if step.written.intersection(steps[key].written)}
    for key in other_steps:
        delete_step_record(store, key)
    adopted = _take_over(store, step, fingerprint, source_stores)
    if adopted is None:
        _create_outputs(store, step, fingerprint)
    return adopted or {}


def _create_outputs(store: Store, step: Step[R], fingerprint: str) -> None:
    """Create the arrays of a step without data, delete its bundles, and record the step last."""
    list(store.map_together(store.objects.delete, list(step.bundles)))
    list(store.map_together(store.create, step.arrays))
    arrays = tuple(array.spec.name for array in step.arrays)
    record = StepRecord(fingerprint, step.n_blocks, time.time(), arrays, tuple(step.bundles))
    store.put_record(record_name(step.key), record)


def _take_over(
    store: Store, step: Step[R], fingerprint: str, source_stores: Sequence[Store]
) -> dict[int, BlockReport[R]] | None:
    """Copy a step from the source store with most undamaged blocks of this fingerprint; returns their reports.

    None if no source store has the step. A source store without finished blocks counts as well: it may hold the saved
    state of an iteration. The record is copied last: a step without one does not count, so after a kill the copy
    begins again.
    """
    offers = filter(None, (_undamaged(source_store, step, fingerprint) for source_store in source_stores))
    if (best := max(offers, key=lambda offer: len(offer[2]), default=None)) is None:
        return None
    source_store, record, reports = best
    store.take(source_store, record.written)
    store.objects.copy([marker_name(step.key, block) for block in sorted(reports)], source_store.objects)
    store.put_record(record_name(step.key), replace(record, begun=time.time()))
    return reports


def _undamaged(
    source_store: Store, step: Step[R], fingerprint: str
) -> tuple[Store, StepRecord, dict[int, BlockReport[R]]] | None:
    """A source store, its record of a step, and the reports of undamaged blocks, whose data are all read.

    None if it does not have the step.
    """
    record = step_record(source_store, step.key)
    if record is None or record.fingerprint != fingerprint or not _outputs_exist(source_store, step, record):
        return None
    reports = finished_reports(source_store, step, fingerprint)
    try:
        errors = damage.damage_of_step(source_store, record, reports)
    except StoreError:
        return None
    blocks = {damage.block_of_damage(record, error.array, error.chunk, reports) for error in errors}
    undamaged = {block: report for block, report in reports.items() if block not in blocks}
    is_useless = bool(record.freed) and len(undamaged) < step.n_blocks
    return None if None in blocks or is_useless else (source_store, record, undamaged)


def _outputs_exist(store: Store, step: Step[R], record: StepRecord) -> bool:
    """Whether the arrays of a step exist unless deleted, and its report files, which people may have changed."""
    arrays = [array for array in step.arrays if array.spec.name not in record.freed]
    return all(map(store.holds, arrays)) and (not step.depends_on_records or store.metrics() is not None)


def delete_unused_steps(store: Store, stage: str, used: set[str]) -> None:
    """Remove the steps of a stage that are not among `used`, and the data that only they wrote."""
    unused = {key for key in begun_steps(store) if key.startswith(f"{stage}.")} - used
    if not unused:
        return
    steps = recorded_steps(store)
    used_names = {name for key, record in steps.items() if key not in unused for name in record.written}
    for key in unused & steps.keys():
        delete_step_record(store, key)
        for written in set(steps[key].written) - used_names:
            store.objects.delete(written)


def delete_data(store: Store, key: str, names: Collection[str]) -> None:
    """Delete arrays and bundles of a finished step. Its markers stay, and its record lists the names as deleted.

    The record is written first, so a kill in between leaves no missing data that the record does not list.
    """
    record = step_record(store, key)
    if record is None:
        return
    freed = {*record.freed, *names}
    if len(freed) > len(record.freed):
        store.put_record(record_name(key), replace(record, freed=tuple(sorted(freed))))
    list(store.map_together(store.delete, list(names)))


def deleted_data(store: Store, steps: Sequence[Step[Report]]) -> list[set[str]]:
    found = store.read_records([record_name(step.key) for step in steps], StepRecord)
    return [set() if record is None else set(record.freed) for record in found]


def delete_step_record(store: Store, key: str) -> None:
    """Remove the record of a step and the markers of its blocks."""
    store.objects.delete_objects([record_name(key)])
    delete_markers(store, key)


def delete_markers(store: Store, key: str) -> None:
    store.objects.delete_objects(_markers(store, key))


def step_of(name: str) -> str | None:
    """The step of a marker's name; None if this is not the name of a marker."""
    return f"{match[1]}.{match[2]}" if (match := MARKER.fullmatch(name)) else None


def _markers(store: Store, key: str) -> list[str]:
    return [name for name in store.objects.names(f"_done/{key.partition('.')[0]}") if step_of(name) == key]


def _unpack(content: Json | None, fingerprint: str, kind: type[T]) -> BlockReport[T] | None:
    """The report in a marker; None if the marker is missing or damaged (None) or its fingerprint differs."""
    if content is None or content.get("fingerprint") != fingerprint:
        return None
    report, block = from_json(kind, content.get("report")), from_json(BlockReport[T], content)
    return None if report is None or block is None else replace(block, report=report)


def finished_blocks(store: Store, key: str, fingerprint: str) -> dict[int, BlockReport[Json]]:
    """The blocks whose marker carries this fingerprint, with their reports as JSON."""
    return _blocks(store, key, fingerprint, dict)


def finished_reports(store: Store, step: Step[R], fingerprint: str) -> dict[int, BlockReport[R]]:
    """The blocks of a step whose marker carries this fingerprint, with their reports."""
    return _blocks(store, step.key, fingerprint, step.task.report_type)


def _blocks(store: Store, key: str, fingerprint: str, kind: type[T]) -> dict[int, BlockReport[T]]:
    contents = store.map_together(store.get_json, _markers(store, key))
    reports = (_unpack(content, fingerprint, kind) for content in contents)
    return {report.block: report for report in reports if report is not None}


def delete_damaged_markers(store: Store, key: str, fingerprint: str) -> None:
    """Delete the markers of a step that do not carry this fingerprint and a correct checksum."""
    markers = _markers(store, key)
    contents = zip(markers, store.map_together(store.get_json, markers), strict=True)
    store.objects.delete_objects([name for name, content in contents if _unpack(content, fingerprint, dict) is None])


def read_marker(store: Store, step: Step[R], fingerprint: str, block: int) -> BlockReport[R] | None:
    """The report of a block that is done under this fingerprint, else None."""
    return _unpack(store.get_json(marker_name(step.key, block)), fingerprint, step.task.report_type)


def require_current(store: Store, step: Step[R], fingerprint: str, block: int) -> None:
    """Raises StageIncomplete if a run with another config or input has begun the step again."""
    record = step_record(store, step.key)
    if record is None or record.fingerprint != fingerprint:
        raise StageIncomplete(f"{step.key}, block {block}: a newer run has taken over the store")


def mark_done(store: Store, step: Step[R], fingerprint: str, report: BlockReport[R]) -> None:
    """Write a block's marker; call it after the block's data. Raises StageIncomplete if the step has changed since."""
    require_current(store, step, fingerprint, report.block)
    store.put_json(marker_name(step.key, report.block), {"fingerprint": fingerprint, **to_json(report)})


def is_complete(store: Store) -> bool:
    """Whether the store has a readable run in which every block of every begun step has a marker.

    Markers are counted, not read; `lle verify` deletes damaged ones. Of the arrays only the metadata are read.
    """
    if store.identify().kind != "run":
        return False
    n_done = Counter(step_of(marker) for marker in store.objects.names("_done"))
    steps = recorded_steps(store)
    return (
        bool(steps)
        and all(record.fingerprint for record in steps.values())
        and all(n_done[key] >= record.n_blocks for key, record in steps.items())
        and all(store.map_together(partial(has_metadata, store), list(steps.values())))
    )


def has_metadata(store: Store, record: StepRecord) -> bool:
    """Whether the metadata of a step's arrays are undamaged; otherwise the next run begins the step again."""
    return all(map(store.has_metadata, record.without_deleted().arrays))


def add_seconds(store: Store, step: Step[R], seconds: float) -> None:
    """Add wall-clock seconds to a step's record; a resumed step keeps what it took before."""
    record = step_record(store, step.key)
    if record is not None and seconds:
        store.put_record(record_name(step.key), replace(record, seconds=round(record.seconds + seconds, 3)))


def begun_steps(store: Store) -> set[str]:
    """Every step this store has begun. Lists names only, while `recorded_steps` reads each record."""
    keys = {name.rsplit("/", 1)[1].removesuffix(".json") for name in store.objects.names("_run/steps")}
    return {key for key in keys if key.count(".") == 1}


def recorded_steps(store: Store) -> dict[str, StepRecord]:
    """The record of every step this store has begun, in the order they were begun.

    A step whose record is damaged has one block, which is not done.
    """
    keys = sorted(begun_steps(store))
    found = store.read_records([record_name(key) for key in keys], StepRecord)
    steps = {key: record or DAMAGED for key, record in zip(keys, found, strict=True)}
    return dict(sorted(steps.items(), key=lambda item: (item[1].begun, item[0])))


def step_record(store: Store, key: str) -> StepRecord | None:
    """The record of a step; None if it was not begun or the record is damaged: then its blocks count as not done."""
    return store.read_record(record_name(key), StepRecord)


def record_name(key: str) -> str:
    return f"_run/steps/{key}.json"


def read_reports(store: Store, steps: Mapping[str, StepRecord] | None = None) -> dict[str, list[BlockReport[Json]]]:
    """The reports of the finished blocks of steps (None: of all) as JSON, in block order."""
    steps = recorded_steps(store) if steps is None else steps
    found = {key: finished_blocks(store, key, record.fingerprint) for key, record in steps.items()}
    return {key: [reports[block] for block in sorted(reports)] for key, reports in found.items()}


def reports_of_step(store: Store, key: str, kind: type[T]) -> list[T]:
    """Reports of a step's finished blocks in block order; empty if it was not begun."""
    record = step_record(store, key)
    blocks = {} if record is None else _blocks(store, key, record.fingerprint, kind)
    return [blocks[block].report for block in sorted(blocks)]


def invalidate(store: Store, array: str, chunk: str) -> str:
    """Delete the marker of the block that wrote a damaged chunk, so that the next run repeats it; returns its name."""
    for key, record in recorded_steps(store).items():
        if not damage.wrote(record, array):
            continue
        reports = finished_blocks(store, key, record.fingerprint)
        if (block := damage.block_of_damage(record, array, chunk, reports)) is not None:
            store.objects.delete_objects([marker_name(key, block)])
            return f"block {block} of {key}"
        delete_markers(store, key)
        if chunk == "zarr.json":  # without a fingerprint in the record, the next run creates the arrays again
            store.put_record(record_name(key), replace(record, fingerprint=""))
        return f"all of {key}"
    return "nothing (no step wrote it)"
