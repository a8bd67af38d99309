"""What is done and what remains: fingerprints, records of steps, markers of blocks.

A marker `_done/<stage>/<step>.<block>.json` is written after the block's data and holds the step's fingerprint. It
counts only while the fingerprint matches, so a changed config, input or step invalidates exactly what it affects.

A run with another config than the last one writes it into the store first, and gets to its steps one by one. What it
has not got to is not known to be of this config: `_run/current.json` lists what is, until the run ends.
"""

import contextlib
import hashlib
import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any

from pipeline.core.errors import CorruptChunk, StageIncomplete, StoreError
from pipeline.engine.markers import pack, unpack
from pipeline.engine.plan import BlockReport, Step
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
    records = {".".join(key): {name: record.get(name) for name in ("fingerprint", "begun", "seconds")}
               for key, record in recorded_steps(store).items()
               if key[0] != step.stage and (among is None or key in among)}  # fmt: skip
    attributes = store.attributes() if attributes is None else attributes
    identity = {**step.decides.identity, "attributes": attributes, "records": records}
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
    record = store.get_json(f"_run/steps/{step.stage}.{step.name}.json")
    if record is None or record.get("fingerprint") != mark or not _is_there(store, step):
        forget_step(store, step.stage, step.name)
        others = begun_steps(store) - set(before or ())
        for stage, name in others if step.feeds and before is not None else _rivals(store, step, others):
            forget_step(store, stage, name)
        if (donor := _best_donor(donors, step, mark)) is not None:
            return _adopt(store, donor, step, mark)
        for bundle in step.writes.bundles:
            store.objects.delete(bundle)
        for array in step.writes.arrays:
            store.create(array)
        arrays = [array.spec.name for array in step.writes.arrays]
        content = {"begun": time.time(), "fingerprint": mark, "n_blocks": step.n_blocks, "arrays": arrays,
                   "bundles": list(step.writes.bundles)}  # fmt: skip
        store.put_json(f"_run/steps/{step.stage}.{step.name}.json", content)
        return {}
    return finished_blocks(store, step.stage, step.name, mark)


def _best_donor(donors: Sequence[Store], step: Step, mark: str) -> Store | None:
    """The store that has most blocks of this fingerprint, the first of equals.

    One without any counts too: what an iteration keeps between two runs lies with the results it has not got yet.
    """
    best, most = None, -1
    for donor in donors:
        record = donor.get_json(f"_run/steps/{step.stage}.{step.name}.json")
        if (
            record is None
            or record["fingerprint"] != mark
            or not all(_opens(donor, a.spec.name) for a in step.writes.arrays)
        ):
            continue
        if (n_done := len(finished_blocks(donor, step.stage, step.name, mark))) > most:
            best, most = donor, n_done
        if most == step.n_blocks:
            break
    return best


def _opens(store: Store, array: str) -> bool:
    with contextlib.suppress(StoreError, CorruptChunk):
        store.array(array)
        return True
    return False


def _adopt(store: Store, donor: Store, step: Step, mark: str) -> dict[int, BlockReport]:
    """Take a step over from another store, data, markers, then the record; returns the reports of its finished blocks.

    Nothing counts before its record is there, so a kill on the way only means to begin again.
    """
    name = f"_run/steps/{step.stage}.{step.name}.json"
    record, done = donor.get_json(name), finished_blocks(donor, step.stage, step.name, mark)
    store.take(donor, [*record["arrays"], *record["bundles"]])
    store.objects.copy([marker_name(step.stage, step.name, block) for block in sorted(done)], donor.objects)
    store.put_json(name, {**record, "begun": time.time()})
    return done


def _is_there(store: Store, step: Step) -> bool:
    """Whether a step's arrays are there, and what it leaves for people, who may have removed it by hand."""
    return all(store.has_array(array.spec.name) for array in step.writes.arrays) and (
        not step.decides.shows_records or all(store.objects.names(bundle) for bundle in step.writes.bundles)
    )


def _rivals(store: Store, step: Step, others: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of some steps wrote the arrays that this one is about to replace (another way to the same result)."""
    names = {array.spec.name for array in step.writes.arrays} | set(step.writes.bundles)
    records = recorded_steps(store) if others else {}
    return [key for key in others if key in records and names & {*records[key]["arrays"], *records[key]["bundles"]}]


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
    store.objects.delete(f"_run/steps/{stage}.{name}.json")
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
    record = store.get_json(f"_run/steps/{step.stage}.{step.name}.json")
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
    name = f"_run/steps/{step.stage}.{step.name}.json"
    record = store.get_json(name)
    if record is not None and seconds:
        store.put_json(name, {**record, "seconds": round(record.get("seconds", 0.0) + seconds, 3)})


def begun_steps(store: Store) -> set[tuple[str, str]]:
    """(stage, step) of every step this store has begun; by one list of names, where `recorded_steps` reads each."""
    return {_stage_and_step(name) for name in store.objects.names("_run/steps")}


def recorded_steps(store: Store) -> dict[tuple[str, str], dict[str, Any]]:
    """Every step this store has begun: (stage, step) -> its record, in the order they were begun."""
    found = {_stage_and_step(name): store.get_json(name) for name in store.objects.names("_run/steps")}
    steps = {key: record for key, record in found.items() if record is not None}
    return dict(sorted(steps.items(), key=lambda item: item[1]["begun"]))


def _stage_and_step(record: str) -> tuple[str, str]:
    stage, step = record.rsplit("/", 1)[1].removesuffix(".json").split(".", 1)
    return stage, step


def read_reports(store: Store) -> dict[tuple[str, str], list[BlockReport]]:
    """(stage, step) -> reports of its finished blocks in block order."""
    found = {}
    for (stage, step), record in recorded_steps(store).items():
        done = finished_blocks(store, stage, step, record["fingerprint"])
        found[stage, step] = [done[block] for block in sorted(done)]
    return found


def invalidate(store: Store, array: str, chunk: str) -> str:
    """Forget the block that wrote a damaged chunk, so that the next run computes it again; says what was forgotten."""
    for (stage, step), record in recorded_steps(store).items():
        bundles = [bundle.removesuffix(".npz") for bundle in record["bundles"]]
        within = [array.removeprefix(f"{bundle}/").split("/") for bundle in bundles if array.startswith(f"{bundle}/")]
        if array not in record["arrays"] and array not in bundles and not within:
            continue
        # A bundle's last number is the block that wrote it; of rows of M the first, before the part's name.
        numbers = [part for part in within[0] if part.isdigit()][-1:] if within else []
        block = int([chunk, *numbers][-1]) if (array in record["arrays"] and chunk.isdigit()) or numbers else None
        if block is not None and record["n_blocks"] > max(1, block):
            store.objects.delete(marker_name(stage, step, block))
            return f"block {block} of {stage}.{step}"
        forget_markers(store, stage, step)
        if chunk == "zarr.json":  # a record of no fingerprint: the arrays are created anew, and the store is not whole
            store.put_json(f"_run/steps/{stage}.{step}.json", {**record, "fingerprint": ""})
        return f"all of {stage}.{step}"
    return "nothing (no step wrote it)"
