"""Which recorded steps, arrays and metrics of a store belong to its present config.

While a run with a changed config is under way, `_run/current.json` lists the steps it has finished. Results of the
earlier config stay in the store, but export, open_run and the report ignore them.
"""

import json
from collections.abc import Collection
from typing import Any

from ..core.errors import ConfigError
from ..storage import records
from ..storage.store import Store
from .checkpoint import finished_blocks, recorded_steps, step_record

CURRENT = "_run/current.json"
EMBEDDING_STEPS = (("solve_embedding", "write"), ("transform", "embed"))
"""The steps that write an embedding: of the fitted points, and of placed rows."""
NOTHING: dict[str, Any] = {"steps": [], "arrays": [], "metrics": False}


def begin_run(store: Store, config: dict[str, Any], input_fingerprint: Any) -> None:
    """Let no step count as one of this config until the run gets to it, unless the store's last run had the same.

    Call it before the store is given the new config: a kill in between then shows less than there is, not more.
    """
    attributes = store.attributes()
    then = [attributes.get("config"), attributes.get("input_fingerprint")]
    if json.dumps(then, sort_keys=True) != json.dumps([config, input_fingerprint], sort_keys=True):
        store.put_json(CURRENT, NOTHING)


def _current(store: Store) -> dict[str, Any] | None:
    """The list of what is of the store's config; None if all is. A list that cannot be read is taken as empty."""
    current = store.get_record(CURRENT, records.CURRENT)
    return NOTHING if current is None and store.objects.exists(CURRENT) else current


def got_to(store: Store, done: Collection[tuple[str, str]]) -> None:
    """Let steps count as those of the store's config; nothing to do where all do."""
    if (current := _current(store)) is not None:
        before, arrays = set(map(tuple, current["steps"])), set(current["arrays"])
        for stage, name in set(done) - before:
            arrays |= set((step_record(store, stage, name) or {"arrays": []})["arrays"])
        store.put_json(CURRENT, {**current, "steps": sorted(before | set(done)), "arrays": sorted(arrays)})


def end_run(store: Store) -> None:
    """All steps of the store are those of its config."""
    store.objects.delete(CURRENT)


def metrics_written(store: Store) -> None:
    """Let metrics.json count as that of the store's config."""
    if (current := _current(store)) is not None:
        store.put_json(CURRENT, {**current, "metrics": True})


def has_metrics(store: Store) -> bool:
    """Whether a metrics.json that lies in the store tells of its config, and not of the one before."""
    current = _current(store)
    return current is None or bool(current["metrics"])


def current_steps(store: Store) -> dict[tuple[str, str], dict[str, Any]]:
    """The records of the steps that are known to be of the store's config, as `recorded_steps` has them."""
    recorded, current = recorded_steps(store), _current(store)
    if current is None:
        return recorded
    known = set(map(tuple, current["steps"]))
    return {key: record for key, record in recorded.items() if key in known}


def current_record(store: Store, stage: str, name: str) -> dict[str, Any] | None:
    """One of `current_steps`, without reading the others; None where it is not among them."""
    current = _current(store)
    if current is not None and [stage, name] not in current["steps"]:
        return None
    return step_record(store, stage, name)


def current_arrays(store: Store, among: Collection[tuple[str, str]] | None = None) -> set[str]:
    """Names of the arrays that the steps of the store's config write, or some of them. Others may lie there still."""
    return {name for key, record in current_steps(store).items() if among is None or key in among
            for name in record["arrays"]}  # fmt: skip


def holds_array(store: Store, name: str) -> bool:
    """Whether the store has an array, and of its config: nothing is listed, which not every place over HTTP allows."""
    current = _current(store)
    return (current is None or name in current["arrays"]) and store.has_array(name)


def embedding_record(store: Store) -> dict[str, Any] | None:
    """The record of the step that wrote the embedding of the store's config; None where it has none that is finished.

    Eigenpairs that did not converge are written too.
    """
    for stage, name in EMBEDDING_STEPS if store.is_run() else ():
        record = current_record(store, stage, name)
        if record and len(finished_blocks(store, stage, name, record["fingerprint"])) == record["n_blocks"]:
            return record
    return None


def require_embedding(store: Store) -> dict[str, Any]:
    """As `embedding_record`. Raises ConfigError where there is none: what lies there may be of an earlier config."""
    if (record := embedding_record(store)) is None:
        raise ConfigError(
            f"{store.url}: has no finished embedding of its config (`lle status` says how far it is); run the job "
            f"again, to its end"
        )
    return record
