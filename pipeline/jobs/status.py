"""Progress of a run as its store records it: blocks done and seconds by stage (`lle status`)."""

from typing import Any

from pipeline.engine import checkpoint
from pipeline.jobs.reprocess import root_status
from pipeline.linalg.solver_checkpoint import kept_heads
from pipeline.stages.registry import stages_of
from pipeline.storage.lock import running
from pipeline.storage.store import Store
from pipeline.storage.versions import Versions


def status(store: Store) -> dict[str, Any]:
    """Per stage: blocks done and all, seconds, and whether a run is going on."""
    store.require_run()
    stages: dict[str, dict[str, Any]] = {}
    now: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    for (stage, step), record in checkpoint.recorded_steps(store).items():
        done = len(checkpoint.finished_blocks(store, stage, step, record["fingerprint"]))
        entry = stages.setdefault(stage, {"done": 0, "blocks": 0, "seconds": 0.0, "steps": {}})
        entry["done"] += done
        entry["blocks"] += record["n_blocks"]
        entry["seconds"] = round(entry["seconds"] + record.get("seconds", 0.0), 3)
        entry["steps"][step] = {"done": done, "blocks": record["n_blocks"]}
        last = {"stage": stage, "step": step, "done": done, "blocks": record["n_blocks"]}
        now = last if done < record["n_blocks"] else now
    names = stages_of(store.attributes()["config"]["method"])
    ordered = {name: stages.get(name, {"done": 0, "blocks": None, "seconds": 0.0, "steps": {}}) for name in names}
    finished = all(entry["done"] == entry["blocks"] for entry in ordered.values())
    state = "running" if running(store) else "done" if finished else "stopped"
    return {"store": store.url, "state": state, "now": now if state == "running" else None, "stages": ordered,
            "stopped_in": (now or last) if state == "stopped" else None,
            "filters": kept_heads(store, "_work/eigen")}  # fmt: skip


def status_of(url: str) -> dict[str, Any]:
    """As `status`; of a root of versions that of the published one, with the one being computed and the pointer."""
    root = Versions(url)
    return root_status(root, status) if root.store.has_versions() else status(root.store)
