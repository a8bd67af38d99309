"""Write the report of a store again; for an unfinished run, from its finished steps."""

from ..engine import current_config
from ..engine.checkpoint import delete_step_record, finished_blocks
from ..report.metrics import Stopped
from ..stages.write_report import write_report
from ..storage.lock import running
from ..storage.store import Store
from .status import stages_of_store, steps_of_run


def rebuild_report(store: Store) -> None:
    """Write the report of a store from the steps of its config. A run that a bound stopped keeps its reason."""
    stopped = unfinished_stage(store)
    metrics = store.metrics() if current_config.has_metrics(store) else None
    before = (metrics or {}).get("stopped")
    if stopped and not stopped["running"] and before and before["reason"]:
        stopped = before
    if stopped and stopped["stage"] != "write_report":  # a later run of a finished config writes its report again
        delete_step_record(store, "write_report.write")
    write_report(store, 0, stopped=stopped)


def unfinished_stage(store: Store) -> Stopped | None:
    """The first stage of the store's config that has not finished, and whether a run is computing it; None if all have.

    A stage has finished if a later one has begun, or all blocks of its steps are done and the report was written.
    """
    begun, open_stages = set[str](), set[str]()
    for holder, key, record in steps_of_run(store, current_config.current_steps):
        stage = key.partition(".")[0]
        begun.add(stage)
        if len(finished_blocks(holder, key, record.fingerprint)) < record.n_blocks:
            open_stages.add(stage)
    for stage in stages_of_store(store):
        if stage not in begun or stage in open_stages:
            return {"stage": stage, "running": running(store), "reason": None}
    return None
