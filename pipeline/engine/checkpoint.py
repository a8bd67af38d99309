"""What is done and what remains: fingerprints, records of steps, markers of blocks.

A marker `_done/<stage>/<step>.<block>.json` is written after the block's data and holds the step's fingerprint. It
counts only while the fingerprint matches, so a changed config, input or step invalidates exactly what it affects.

A run with another config than the last one writes it into the store first, and gets to its steps one by one. What it
has not got to is not known to be of this config: `_run/current.json` lists what is, until the run ends.
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any

from pipeline.core.errors import StageIncomplete, StoreError
from pipeline.engine import damage
from pipeline.engine.markers import pack, unpack
from pipeline.engine.plan import BlockReport, Step
from pipeline.storage import records
from pipeline.storage.store import Store

Before = Collection[tuple[str, str]] | None


def fingerprint(upstream: str, step: Step) -> str:
    """SHA-256 over canonical JSON of what decides a step's result."""
    decides = step.decides
    content = [upstream, step.stage, step.name, decides.version, step.n_blocks, decides.parameters, decides.identity]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=asdict).encode()).hexdigest()[:32]


def with_records(
    store: Store, step: Step, attributes: dict[str, Any] | None = None, among: Collection[tuple[str, str]] | None = None
) -> Step:
    """A step that `shows_records`, with their state and the store's attributes as its identity; others as they are.

    A record says when its step was begun and how long it took, so it changes with every block that is computed.
    `attributes` and `among` are what a run would set and which steps it would have, where that is asked before it.
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
    store: Store, step: Step, mark: str, before: Before = None, donors: Sequence[Store] = ()
) -> dict[int, BlockReport]:
    """Make the store ready for a step and return the reports of its finished blocks.

    A step recorded under another fingerprint is forgotten: first its markers, then its arrays, so that a kill in
    between leaves no marker without data. What other steps computed from it is forgotten too: only the steps in
    `before`, those that this run has done already, still hold (None: all do). What one of the donors has finished under
    the same fingerprint is taken over from there.
    """
    record = step_record(store, step.stage, step.name)
    if record is None or record.get("fingerprint") != mark or not _is_there(store, step):
        forget_step(store, step.stage, step.name)
        others = begun_steps(store) - set(before or ())
        for stage, name in others if step.feeds and before is not None else _rivals(store, step, others):
            forget_step(store, stage, name)
        if (adopted := _take_over(store, step, mark, donors)) is not None:
            return adopted
        for bundle in step.writes.bundles:
            store.objects.delete(bundle)
        for array in step.writes.arrays:
            store.create(array)
        arrays = [array.spec.name for array in step.writes.arrays]
        content = {"begun": time.time(), "fingerprint": mark, "n_blocks": step.n_blocks, "arrays": arrays,
                   "bundles": list(step.writes.bundles)}  # fmt: skip
        store.put_json(_record_name(step.stage, step.name), content)
        return {}
    return finished_blocks(store, step.stage, step.name, mark)


def _take_over(store: Store, step: Step, mark: str, donors: Sequence[Store]) -> dict[int, BlockReport] | None:
    """Take a step over from the donor with most undamaged blocks of this fingerprint; the reports of these blocks.

    None if no donor has the step. A donor without finished blocks counts too: what an iteration keeps between two runs
    lies with the results it has not got yet.
    """
    offers = [(len(done), donor, done) for donor in donors if (done := _undamaged(donor, step, mark)) is not None]
    if not offers:
        return None
    _, donor, done = max(offers, key=lambda offer: offer[0])
    return _adopt(store, donor, step, done)


def _undamaged(donor: Store, step: Step, mark: str) -> dict[int, BlockReport] | None:
    """Reports of the blocks that a donor holds whole; everything it would give is read. None if it cannot give any."""
    record = step_record(donor, step.stage, step.name)
    if record is None or record["fingerprint"] != mark or not all(map(donor.holds, step.writes.arrays)):
        return None
    done = finished_blocks(donor, step.stage, step.name, mark)
    try:
        found = damage.damage_of_step(donor, record, done)
    except StoreError:
        return None
    blocks = {damage.block_of_damage(record, error.array, error.chunk) for error in found}
    return None if None in blocks else {block: report for block, report in done.items() if block not in blocks}


def _adopt(store: Store, donor: Store, step: Step, done: dict[int, BlockReport]) -> dict[int, BlockReport]:
    """Take a step over from another store, data, markers, then the record; returns the reports of its finished blocks.

    Nothing counts before its record is there, so a kill on the way only means to begin again.
    """
    record = step_record(donor, step.stage, step.name)
    assert record is not None
    store.take(donor, [*record["arrays"], *record["bundles"]])
    store.objects.copy([marker_name(step.stage, step.name, block) for block in sorted(done)], donor.objects)
    store.put_json(_record_name(step.stage, step.name), {**record, "begun": time.time()})
    return done


def _is_there(store: Store, step: Step) -> bool:
    """Whether a step's arrays are there, and what it leaves for people, who may have removed it by hand."""
    return all(map(store.holds, step.writes.arrays)) and (
        not step.decides.shows_records or all(store.objects.names(bundle) for bundle in step.writes.bundles)
    )


def _rivals(store: Store, step: Step, others: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of some steps wrote the arrays that this one is about to replace (another way to the same result)."""
    names = {array.spec.name for array in step.writes.arrays} | set(step.writes.bundles)
    steps = recorded_steps(store) if others else {}
    return [key for key in others if key in steps and names & {*steps[key]["arrays"], *steps[key]["bundles"]}]


def forget_unused(store: Store, stage: str, used: set[str]) -> None:
    """Forget the steps of a stage that this run does not have, and what only they wrote."""
    if all(other != stage or name in used for other, name in begun_steps(store)):
        return
    steps = recorded_steps(store)
    kept = {name for key, record in steps.items() if key[0] != stage or key[1] in used
            for name in (*record["arrays"], *record["bundles"])}  # fmt: skip
    for (other, name), record in steps.items():
        if other == stage and name not in used:
            forget_step(store, stage, name)
            for written in {*record["arrays"], *record["bundles"]} - kept:
                store.objects.delete(written)


def delete_unrecorded(store: Store, names: Collection[str]) -> None:
    """Delete those of the arrays that no step of this store has written: another method left them."""
    written = {name for record in recorded_steps(store).values() for name in (*record["arrays"], *record["bundles"])}
    for name in set(names) - written:
        store.objects.delete(name)


def forget_step(store: Store, stage: str, name: str) -> None:
    """Remove the record of a step and the markers of its blocks."""
    store.objects.delete(_record_name(stage, name))
    forget_markers(store, stage, name)


def forget_markers(store: Store, stage: str, name: str) -> None:
    """Remove the markers of a step's blocks; its record stays, so that nothing computed from equal bytes is lost."""
    for marker in store.objects.names(f"_done/{stage}"):
        if marker.rsplit("/", 1)[1].startswith(f"{name}."):
            store.objects.delete(marker)


def finished_blocks(store: Store, stage: str, name: str, mark: str) -> dict[int, BlockReport]:
    """Reports of the blocks whose marker carries this fingerprint."""
    done = {}
    for marker in store.objects.names(f"_done/{stage}"):
        named = marker.rsplit("/", 1)[1].startswith(f"{name}.")
        if named and (report := unpack(store.get_json(marker), mark)) is not None:
            done[report.block] = report
    return done


def read_marker(store: Store, step: Step, mark: str, block: int) -> BlockReport | None:
    """The report of a block that is done under this fingerprint, else None."""
    return unpack(store.get_json(marker_name(step.stage, step.name, block)), mark)


def require_current(store: Store, step: Step, mark: str, block: int) -> None:
    """Raises StageIncomplete if a run with another config or input has begun the step anew."""
    record = step_record(store, step.stage, step.name)
    if record is None or record["fingerprint"] != mark:
        raise StageIncomplete(f"{step.stage}.{step.name}, block {block}: a newer run has taken over the store")


def mark_done(store: Store, step: Step, mark: str, report: BlockReport) -> None:
    """Write a block's marker; call it after the block's data. Raises StageIncomplete if the step has changed since."""
    require_current(store, step, mark, report.block)
    store.put_json(marker_name(step.stage, step.name, report.block), pack(mark, report))


def is_whole(store: Store) -> bool:
    """Whether it is a store and every block of every step begun has its marker. Names only: no marker is read."""
    done = Counter(name.removesuffix(".json").rpartition(".")[0] for name in store.objects.names("_done"))
    steps = recorded_steps(store)
    return (
        bool(steps)
        and store.objects.exists("zarr.json")
        and all(done[f"_done/{stage}/{step}"] >= record["n_blocks"] for (stage, step), record in steps.items())
    )


def add_seconds(store: Store, step: Step, seconds: float) -> None:
    """Add wall-clock seconds to a step's record; a resumed step keeps what it took before."""
    record = step_record(store, step.stage, step.name)
    if record is not None and seconds:
        total = round(record.get("seconds", 0.0) + seconds, 3)
        store.put_json(_record_name(step.stage, step.name), {**record, "seconds": total})


def begun_steps(store: Store) -> set[tuple[str, str]]:
    """(stage, step) of every step this store has begun; by one list of names, where `recorded_steps` reads each."""
    keys = {tuple(name.rsplit("/", 1)[1].split(".")) for name in store.objects.names("_run/steps")}
    return {(key[0], key[1]) for key in keys if len(key) == 3 and key[2] == "json"}


def recorded_steps(store: Store) -> dict[tuple[str, str], dict[str, Any]]:
    """Every step this store has begun: (stage, step) -> its record, in the order they were begun."""
    found = {key: step_record(store, *key) for key in begun_steps(store)}
    steps = {key: record for key, record in found.items() if record is not None}
    return dict(sorted(steps.items(), key=lambda item: (item[1]["begun"], item[0])))


def step_record(store: Store, stage: str, name: str) -> dict[str, Any] | None:
    """The record of a step; None if it was not begun or the record is damaged: then its blocks count as not done."""
    return store.get_record(_record_name(stage, name), records.STEP)


def _record_name(stage: str, name: str) -> str:
    return f"_run/steps/{stage}.{name}.json"


def read_reports(store: Store) -> dict[tuple[str, str], list[BlockReport]]:
    """(stage, step) -> reports of its finished blocks in block order."""
    return {key: reports_of_step(store, *key) for key in recorded_steps(store)}


def reports_of_step(store: Store, stage: str, name: str) -> list[BlockReport]:
    """Reports of a step's finished blocks in block order; empty if it was not begun."""
    record = step_record(store, stage, name)
    done = {} if record is None else finished_blocks(store, stage, name, record["fingerprint"])
    return [done[block] for block in sorted(done)]


def invalidate(store: Store, array: str, chunk: str) -> str:
    """Forget the block that wrote a damaged chunk, so that the next run computes it again; says what was forgotten."""
    for (stage, step), record in recorded_steps(store).items():
        if not damage.wrote(record, array):
            continue
        if (block := damage.block_of_damage(record, array, chunk)) is not None:
            store.objects.delete(marker_name(stage, step, block))
            return f"block {block} of {stage}.{step}"
        forget_markers(store, stage, step)
        if chunk == "zarr.json":  # a record of no fingerprint: the arrays are created anew, and the store is not whole
            store.put_json(_record_name(stage, step), {**record, "fingerprint": ""})
        return f"all of {stage}.{step}"
    return "nothing (no step wrote it)"
