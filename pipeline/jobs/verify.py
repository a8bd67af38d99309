"""Compare all data of a store with their checksums, and delete the markers of damaged blocks for the next run."""

from collections.abc import Callable

from ..core.errors import CorruptChunk, StoreError
from ..engine import checkpoint
from ..engine.damage import damage_of_step
from ..engine.step import Json
from ..storage.lock import FOR_A_COMMAND, LOCK, RunLock, running
from ..storage.run_group import METRICS
from ..storage.store import Store, fitted_store, has_fit


def find_damage(store: Store) -> list[CorruptChunk]:
    """Every chunk and bundle of finished blocks that is missing or does not match its checksum."""
    damage = list[CorruptChunk]()
    for key, record in checkpoint.recorded_steps(store).items():
        damage += damage_of_step(store, record, checkpoint.finished_blocks(store, key, record.fingerprint))
    return damage


def unmark_damaged_blocks(store: Store, damage: list[CorruptChunk]) -> list[str]:
    """Delete the markers of the blocks that wrote the damaged chunks; returns their names.

    Raises StoreError while a run holds the store.
    """
    with RunLock(store, LOCK, FOR_A_COMMAND):
        return sorted({checkpoint.invalidate(store, error.array, error.chunk) for error in damage})


def unmarked_blocks(store: Store) -> dict[str, int]:
    """Number of blocks of each step whose markers were deleted after the store was finished.

    A run writes its report last, so if the report is done, every step begun before it was done. A step begun after the
    report belongs to a later run that was stopped. While a run is active the result is empty. Components whose
    eigenpairs did not converge have no marker on purpose, so that the next run computes them again. So the step is not
    counted if metrics.json names such a component, or is missing.
    """
    records, counts = checkpoint.recorded_steps(store), dict[str, int]()
    report = records.get("write_report.write")
    if report is None or running(store):
        return counts
    if not checkpoint.finished_blocks(store, "write_report.write", report.fingerprint):
        return counts
    if (metrics := store.metrics()) is None or not all(each["converged"] for each in metrics.get("solvers") or []):
        records.pop("solve_embedding.solve", None)
    for key, record in records.items():
        finished = checkpoint.finished_blocks(store, key, record.fingerprint)
        n_missing = record.n_blocks - len(finished)  # of a damaged record any number
        if n_missing > 0 and record.begun <= report.begun:
            counts[key] = n_missing
    return counts


def check(store: Store, other_stores: Callable[[], list[Store]]) -> Json:
    """Find damage, delete the markers of damaged blocks, and return the number of unfinished blocks of each step.

    `other_stores` returns stores that may share files with this one. Their damaged blocks are treated in the same way,
    because the next run would copy from them. Raises StoreError if something is damaged, or was found damaged earlier.
    """
    if has_fit(store):
        check(fitted_store(store), lambda: [])
    earlier, damage, lines = unmarked_blocks(store), find_damage(store), []
    if earlier:
        with RunLock(store, LOCK, FOR_A_COMMAND):
            for key, record in checkpoint.recorded_steps(store).items():
                if key in earlier:
                    checkpoint.delete_damaged_markers(store, key, record.fingerprint)
    if damage:
        for other_store in other_stores():
            unmark_damaged_blocks(other_store, find_damage(other_store))
        unmarked = unmark_damaged_blocks(store, damage)
        lines = [
            f"{len(damage)} damaged:",
            *map(str, damage[:10]),
            *(["..."] if len(damage) > 10 else []),
            f"marked as not done: {', '.join(unmarked)}; run the job again to compute this again",
        ]
    lines += [
        f"{count} block{'s' * (count > 1)} of {step} {'were' if count > 1 else 'was'} damaged and "
        f"marked as not done by an earlier check; run the job again to compute {'them' if count > 1 else 'it'}"
        for step, count in earlier.items()
    ]
    if not running(store) and store.objects.exists(METRICS) and store.metrics() is None:
        lines.append(f"{METRICS} is not as it was written; run the job again to write the report again")
    if lines:
        raise StoreError("\n".join([*([] if damage else [f"{store.url}:"]), *lines]))
    records = checkpoint.recorded_steps(store).items()
    missing = {
        key: record.n_blocks - len(checkpoint.finished_blocks(store, key, record.fingerprint))
        for key, record in records
    }
    return {"store": store.url, "damaged": 0, "unfinished": {key: count for key, count in missing.items() if count > 0}}
