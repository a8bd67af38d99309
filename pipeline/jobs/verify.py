"""Read everything a store holds against its checksums, and forget what is damaged, so that a run computes it anew."""

from collections.abc import Callable
from typing import Any

from ..core.errors import CorruptChunk, StoreError
from ..engine import checkpoint
from ..engine.damage import damage_of_step
from ..storage.lock import RunLock, running
from ..storage.store import Store


def find_damage(store: Store) -> list[CorruptChunk]:
    """Every chunk and bundle of finished blocks that is missing or does not match its checksum."""
    found = list[CorruptChunk]()
    for (stage, step), record in checkpoint.recorded_steps(store).items():
        found += damage_of_step(store, record, checkpoint.finished_blocks(store, stage, step, record["fingerprint"]))
    return found


def forget_damage(store: Store, damage: list[CorruptChunk]) -> list[str]:
    """Forget the blocks that wrote it; says which. Raises StoreError while a run holds the store."""
    with RunLock(store):
        return sorted({checkpoint.invalidate(store, error.array, error.chunk) for error in damage})


def missing_blocks(store: Store) -> dict[str, int]:
    """Blocks without a marker by step, of the steps begun: still to be computed, or forgotten."""
    found = {
        f"{stage}.{step}": record["n_blocks"]
        - len(checkpoint.finished_blocks(store, stage, step, record["fingerprint"]))
        for (stage, step), record in checkpoint.recorded_steps(store).items()
    }
    return {step: missing for step, missing in found.items() if missing > 0}


def forgotten_blocks(store: Store) -> dict[str, int]:
    """Blocks by step that were done when the store was finished and are not any more.

    A run writes its report last, so where that is done everything begun before it was. None are forgotten where a run
    goes on; a step begun after the report is that of a run which was stopped. A component whose eigenpairs did not
    converge has no marker either, lest the next run take it for done.
    """
    records, found = checkpoint.recorded_steps(store), dict[str, int]()
    report = records.get(("write_report", "write"))
    if report is None or running(store):
        return found
    if not checkpoint.finished_blocks(store, "write_report", "write", report["fingerprint"]):
        return found
    metrics = store.get_record("report/metrics.json", {"solvers": [{"converged": bool}]}) or {"solvers": []}
    unmet = {block for block, solver in enumerate(metrics["solvers"]) if not solver["converged"]}
    for (stage, step), record in records.items():
        done = set(checkpoint.finished_blocks(store, stage, step, record["fingerprint"]))
        excused = unmet if (stage, step) == ("solve_embedding", "solve") else set[int]()
        missing = set(range(record["n_blocks"])) - done - excused
        if missing and record["begun"] <= report["begun"]:
            found[f"{stage}.{step}"] = len(missing)
    return found


def check(store: Store, others: Callable[[], list[Store]]) -> dict[str, Any]:
    """Find and forget damage; says what is not finished. Raises StoreError where something is damaged, or was before.

    `others` are stores that may share files with this one: the next run would take what is damaged from them.
    """
    earlier, damage, lines = forgotten_blocks(store), find_damage(store), []
    if damage:
        for other in others():
            forget_damage(other, find_damage(other))
        forgotten = forget_damage(store, damage)
        lines = [f"{len(damage)} damaged:", *map(str, damage[:10]), *(["..."] if len(damage) > 10 else []),
                 f"forgotten: {', '.join(forgotten)}; run the job again to compute this anew"]  # fmt: skip
    lines += [f"{count} block{'s' * (count > 1)} of {step} {'were' if count > 1 else 'was'} forgotten earlier "
              f"(damaged); run the job again to compute {'them' if count > 1 else 'it'}"
              for step, count in earlier.items()]  # fmt: skip
    if lines:
        raise StoreError("\n".join([*([] if damage else [f"{store.url}:"]), *lines]))
    return {"store": store.url, "damaged": 0, "unfinished": missing_blocks(store)}
