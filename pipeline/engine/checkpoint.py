"""What is done and what remains: fingerprints, records of steps, markers of blocks.

A marker `_done/<stage>/<step>.<block>.json` is written after the block's data and holds the step's fingerprint. It
counts only while the fingerprint matches, so a changed config, input or step invalidates exactly what it affects.

A run with a new config first writes the config into the store, and then reaches the steps one by one. Steps that it
has not reached may belong to the earlier config. Until the run ends, `_run/current.json` lists the reached steps.
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ..core.errors import StageIncomplete, StoreError
from ..storage import records
from ..storage.locate import identify
from ..storage.store import Store
from . import damage
from .markers import pack, unpack
from .plan import BlockReport, Step

FinishedSteps = Collection[tuple[str, str]] | None
DAMAGED: dict[str, Any] = {"fingerprint": "", "n_blocks": 1, "arrays": [], "bundles": [], "begun": 0.0}
MARKER = re.compile(r"_done/([^/.]+)/([^/.]+)\.\d+\.json")


def fingerprint_of(upstream: str, step: Step) -> str:
    """SHA-256 over canonical JSON of what decides a step's result."""
    decides = step.decides
    content = [upstream, step.stage, step.name, decides.version, step.n_blocks, decides.parameters, decides.identity]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=asdict).encode()).hexdigest()[:32]


def with_records(
    store: Store, step: Step, attributes: dict[str, Any] | None = None, among: Collection[tuple[str, str]] | None = None
) -> Step:
    """Add the state of all records and the store's attributes to the identity of a step that `shows_records`.

    Other steps are returned unchanged. A record holds the start time and the seconds of its step, so it changes with
    every computed block. A preview passes the `attributes` of the next run and, in `among`, the steps it will have.
    """
    if not step.decides.shows_records:
        return step
    steps = {".".join(key): {name: record.get(name) for name in ("fingerprint", "begun", "seconds")}
               for key, record in recorded_steps(store).items()
               if key[0] != step.stage and (among is None or key in among)}  # fmt: skip
    attributes = store.attributes() if attributes is None else attributes
    identity = {**step.decides.identity, "attributes": attributes, "records": steps}
    return replace(step, decides=replace(step.decides, identity=identity))


def marker_name(stage: str, step: str, block: int) -> str:
    return f"_done/{stage}/{step}.{block:05d}.json"


def begin_step(
    store: Store,
    step: Step,
    fingerprint: str,
    finished_steps: FinishedSteps = None,
    source_stores: Sequence[Store] = (),
) -> dict[int, BlockReport]:
    """Prepare the store for a step; returns the reports of its finished blocks.

    A step recorded under another fingerprint is removed: first its markers, then its arrays, so a kill in between
    leaves no marker without data. Steps computed from it are removed as well, except the `finished_steps` of this run
    (None: all are kept). Blocks that a source store has finished under the same fingerprint are copied. A step whose
    data were freed begins again if the marker of a block is missing.
    """
    record = step_record(store, step.stage, step.name)
    is_current = record is not None and (record["fingerprint"], record["n_blocks"]) == (fingerprint, step.n_blocks)
    if record is not None and is_current and _outputs_exist(store, step, record):
        reports = finished_blocks(store, step.stage, step.name, fingerprint)
        if len(reports) == step.n_blocks or not damage.freed(record):
            return reports
        delete_step_record(store, step.stage, step.name)  # the data of all blocks were freed
        _create_outputs(store, step, fingerprint)
        return {}
    delete_step_record(store, step.stage, step.name)
    other_steps = begun_steps(store) - set(finished_steps or ())
    for stage, name in (
        other_steps if step.feeds and finished_steps is not None else _steps_to_replace(store, step, other_steps)
    ):
        delete_step_record(store, stage, name)
    adopted = _take_over(store, step, fingerprint, source_stores)
    if adopted is None:
        _create_outputs(store, step, fingerprint)
    return adopted or {}


def _create_outputs(store: Store, step: Step, fingerprint: str) -> None:
    """Create the arrays of a step without data, delete its bundles, and record the step last."""
    list(store.map_together(store.objects.delete, step.writes.bundles))
    list(store.map_together(store.create, step.writes.arrays))
    arrays = [array.spec.name for array in step.writes.arrays]
    content = {"begun": time.time(), "fingerprint": fingerprint, "n_blocks": step.n_blocks, "arrays": arrays,
               "bundles": list(step.writes.bundles)}  # fmt: skip
    store.put_json(record_name(step.stage, step.name), content)


def _take_over(
    store: Store, step: Step, fingerprint: str, source_stores: Sequence[Store]
) -> dict[int, BlockReport] | None:
    """Copy a step from the source store with most undamaged blocks of this fingerprint; returns their reports.

    None if no source store has the step. A source store without finished blocks counts as well: it may hold the saved
    state of an iteration.
    """
    offers = [
        (len(reports), source_store, reports)
        for source_store in source_stores
        if (reports := _undamaged(source_store, step, fingerprint)) is not None
    ]
    if not offers:
        return None
    _, source_store, reports = max(offers, key=lambda offer: offer[0])
    return _adopt(store, source_store, step, reports)


def _undamaged(source_store: Store, step: Step, fingerprint: str) -> dict[int, BlockReport] | None:
    """Reports of the undamaged blocks of a step in a source store, whose data are all read. None if it has none."""
    record = step_record(source_store, step.stage, step.name)
    if record is None or record["fingerprint"] != fingerprint or not _outputs_exist(source_store, step, record):
        return None
    reports = finished_blocks(source_store, step.stage, step.name, fingerprint)
    try:
        errors = damage.damage_of_step(source_store, record, reports)
    except StoreError:
        return None
    blocks = {damage.block_of_damage(record, error.array, error.chunk) for error in errors}
    undamaged = {block: report for block, report in reports.items() if block not in blocks}
    is_useless = bool(damage.freed(record)) and len(undamaged) < step.n_blocks
    return None if None in blocks or is_useless else undamaged


def _adopt(store: Store, source_store: Store, step: Step, reports: dict[int, BlockReport]) -> dict[int, BlockReport]:
    """Copy a step from another store: data, markers, then the record; returns the reports of its finished blocks.

    A step without a record does not count, so after a kill the copy begins again.
    """
    record = step_record(source_store, step.stage, step.name)
    assert record is not None
    store.take(source_store, [*record["arrays"], *record["bundles"]])
    store.objects.copy([marker_name(step.stage, step.name, block) for block in sorted(reports)], source_store.objects)
    store.put_json(record_name(step.stage, step.name), {**record, "begun": time.time()})
    return reports


def _outputs_exist(store: Store, step: Step, record: dict[str, Any]) -> bool:
    """Whether the arrays of a step exist unless freed, and its report files, which people may have changed."""
    arrays = [array for array in step.writes.arrays if array.spec.name not in damage.freed(record)]
    return all(map(store.holds, arrays)) and (not step.decides.shows_records or store.metrics() is not None)


def _steps_to_replace(store: Store, step: Step, candidates: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """The steps among `candidates` with arrays that this step writes too. They belong to another method."""
    steps = recorded_steps(store) if candidates else {}
    return [
        key for key in candidates if key in steps and step.written & {*steps[key]["arrays"], *steps[key]["bundles"]}
    ]


def delete_unused_steps(store: Store, stage: str, used: set[str]) -> None:
    """Remove the steps of a stage that this run does not use, and the data that only they wrote."""
    if all(recorded_stage != stage or name in used for recorded_stage, name in begun_steps(store)):
        return
    steps = recorded_steps(store)
    used_names = {name for key, record in steps.items() if key[0] != stage or key[1] in used
            for name in (*record["arrays"], *record["bundles"])}  # fmt: skip
    for (recorded_stage, name), record in steps.items():
        if recorded_stage == stage and name not in used:
            delete_step_record(store, stage, name)
            for written in {*record["arrays"], *record["bundles"]} - used_names:
                store.objects.delete(written)


def free(store: Store, stage: str, name: str, names: Collection[str]) -> None:
    """Delete arrays and bundles of a finished step. Its markers stay, and its record lists the names as freed.

    The record is written first, so a kill in between leaves no missing data that the record does not list.
    """
    record = step_record(store, stage, name)
    if record is None:
        return
    if not set(names) <= damage.freed(record):
        store.put_json(record_name(stage, name), {**record, "freed": sorted({*names, *damage.freed(record)})})
    list(store.map_together(store.delete, list(names)))


def freed_data(store: Store, steps: Sequence[Step]) -> list[set[str]]:
    """The freed arrays and bundles of each step."""
    records_of_steps = store.get_records([record_name(*step.key) for step in steps], records.STEP)
    return [damage.freed(record or {}) for record in records_of_steps]


def delete_step_record(store: Store, stage: str, name: str) -> None:
    """Remove the record of a step and the markers of its blocks."""
    store.objects.delete_objects([record_name(stage, name)])
    delete_markers(store, stage, name)


def delete_markers(store: Store, stage: str, name: str) -> None:
    """Remove the markers of a step's blocks. The record with its fingerprint is kept."""
    store.objects.delete_objects(_markers(store, stage, name))


def step_of(name: str) -> tuple[str, str] | None:
    """(stage, step) of a marker's name; None if this is not the name of a marker."""
    match = MARKER.fullmatch(name)
    return None if match is None else (match[1], match[2])


def _markers(store: Store, stage: str, name: str) -> list[str]:
    """Names of the markers of a step, sorted."""
    return [marker for marker in store.objects.names(f"_done/{stage}")
            if marker.rsplit("/", 1)[1].startswith(f"{name}.")]  # fmt: skip


def finished_blocks(store: Store, stage: str, name: str, fingerprint: str) -> dict[int, BlockReport]:
    """Reports of the blocks whose marker carries this fingerprint."""
    contents = store.get_jsons(_markers(store, stage, name))
    reports = (unpack(content, fingerprint) for content in contents)
    return {report.block: report for report in reports if report is not None}


def delete_damaged_markers(store: Store, stage: str, name: str, fingerprint: str) -> None:
    """Delete the markers of a step that do not carry this fingerprint and a correct checksum."""
    markers = _markers(store, stage, name)
    contents = zip(markers, store.get_jsons(markers), strict=True)
    store.objects.delete_objects([marker for marker, content in contents if unpack(content, fingerprint) is None])


def read_marker(store: Store, step: Step, fingerprint: str, block: int) -> BlockReport | None:
    """The report of a block that is done under this fingerprint, else None."""
    return unpack(store.get_json(marker_name(step.stage, step.name, block)), fingerprint)


def require_current(store: Store, step: Step, fingerprint: str, block: int) -> None:
    """Raises StageIncomplete if a run with another config or input has begun the step again."""
    record = step_record(store, step.stage, step.name)
    if record is None or record["fingerprint"] != fingerprint:
        raise StageIncomplete(f"{step.stage}.{step.name}, block {block}: a newer run has taken over the store")


def mark_done(store: Store, step: Step, fingerprint: str, report: BlockReport) -> None:
    """Write a block's marker; call it after the block's data. Raises StageIncomplete if the step has changed since."""
    require_current(store, step, fingerprint, report.block)
    store.put_json(marker_name(step.stage, step.name, report.block), pack(fingerprint, report))


def is_complete(store: Store) -> bool:
    """Whether the store has a readable run in which every block of every begun step has a marker.

    Markers are counted, not read; `lle verify` deletes damaged ones. Of the arrays only the metadata are read.
    """
    if identify(store.objects).kind != "run":
        return False
    n_done = Counter(step_of(marker) for marker in store.objects.names("_done"))
    steps = recorded_steps(store)
    return (
        bool(steps)
        and all(record["fingerprint"] for record in steps.values())
        and all(n_done[key] >= record["n_blocks"] for key, record in steps.items())
        and all(store.map_together(partial(has_metadata, store), list(steps.values())))
    )


def has_metadata(store: Store, record: dict[str, Any]) -> bool:
    """Whether the metadata of a step's arrays are undamaged; otherwise the next run begins the step again."""
    return all(map(store.has_metadata, damage.without_freed(record)["arrays"]))


def add_seconds(store: Store, step: Step, seconds: float) -> None:
    """Add wall-clock seconds to a step's record; a resumed step keeps what it took before."""
    record = step_record(store, step.stage, step.name)
    if record is not None and seconds:
        total = round(record.get("seconds", 0.0) + seconds, 3)
        store.put_json(record_name(step.stage, step.name), {**record, "seconds": total})


def begun_steps(store: Store) -> set[tuple[str, str]]:
    """(stage, step) of every step this store has begun. Lists names only, while `recorded_steps` reads each record."""
    keys = {tuple(name.rsplit("/", 1)[1].split(".")) for name in store.objects.names("_run/steps")}
    return {(key[0], key[1]) for key in keys if len(key) == 3 and key[2] == "json"}


def recorded_steps(store: Store) -> dict[tuple[str, str], dict[str, Any]]:
    """Every step this store has begun: (stage, step) -> its record, in the order they were begun.

    A step whose record is damaged has one block, which is not done.
    """
    keys = sorted(begun_steps(store))
    found = store.get_records([record_name(*key) for key in keys], records.STEP)
    steps = {key: record or DAMAGED for key, record in zip(keys, found, strict=True)}
    return dict(sorted(steps.items(), key=lambda item: (item[1]["begun"], item[0])))


def step_record(store: Store, stage: str, name: str) -> dict[str, Any] | None:
    """The record of a step; None if it was not begun or the record is damaged: then its blocks count as not done."""
    return store.get_record(record_name(stage, name), records.STEP)


def record_name(stage: str, name: str) -> str:
    return f"_run/steps/{stage}.{name}.json"


def read_reports(store: Store) -> dict[tuple[str, str], list[BlockReport]]:
    """(stage, step) -> reports of its finished blocks in block order."""
    steps, markers = recorded_steps(store), store.objects.names("_done")
    reports: dict[tuple[str, str], dict[int, BlockReport]] = {key: {} for key in steps}
    for marker, content in zip(markers, store.get_jsons(markers), strict=True):
        key = step_of(marker)
        if key in steps and (report := unpack(content, steps[key]["fingerprint"])) is not None:
            reports[key][report.block] = report
    return {key: [by_block[block] for block in sorted(by_block)] for key, by_block in reports.items()}


def reports_of_step(store: Store, stage: str, name: str) -> list[BlockReport]:
    """Reports of a step's finished blocks in block order; empty if it was not begun."""
    record = step_record(store, stage, name)
    reports = {} if record is None else finished_blocks(store, stage, name, record["fingerprint"])
    return [reports[block] for block in sorted(reports)]


def invalidate(store: Store, array: str, chunk: str) -> str:
    """Delete the marker of the block that wrote a damaged chunk, so that the next run repeats it; returns its name."""
    for (stage, step), record in recorded_steps(store).items():
        if not damage.wrote(record, array):
            continue
        if (block := damage.block_of_damage(record, array, chunk)) is not None:
            store.objects.delete_objects([marker_name(stage, step, block)])
            return f"block {block} of {stage}.{step}"
        delete_markers(store, stage, step)
        if chunk == "zarr.json":  # without a fingerprint in the record, the next run creates the arrays again
            store.put_json(record_name(stage, step), {**record, "fingerprint": ""})
        return f"all of {stage}.{step}"
    return "nothing (no step wrote it)"
