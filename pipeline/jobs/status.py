"""Progress of a run from the records in its store (`lle status`), and the error that ended the last one."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NotRequired, TypedDict

from ..core.address_space import explained
from ..core.credentials import redact
from ..core.errors import Interrupted, LleError, NoRunYet, StoreError, StoreHeld
from ..engine import checkpoint
from ..engine.step import Json
from ..engine.time_left import RECORD, Look
from ..linalg.solver_progress import recorded_progress, saved_heads
from ..stages.registry import stages_of
from ..storage.lock import running
from ..storage.records import to_json
from ..storage.store import Store, fitted_store, has_fit
from ..storage.versions import Versions, unreadable

MAX_AGE = 120.0
"""Seconds after which a record of progress is of a process that was killed."""

FAILURE = "_run/failure.json"
"""The error that ended the last run in a store: its time, exit code and message. A run that succeeds deletes it."""


class StepStatus(TypedDict):
    """Finished blocks of a step, and all its blocks."""

    done: int
    blocks: int


class Position(StepStatus):
    """A step that is running, or in which a run was stopped."""

    stage: str
    step: str


class StageStatus(TypedDict):
    """Finished blocks of a stage, all blocks of its steps that have begun (None: no step has), and their seconds."""

    done: int
    blocks: int | None
    seconds: float
    steps: dict[str, StepStatus]


class Progress(TypedDict):
    """The share of a run that is done, and the seconds left (None: unknown)."""

    fraction: float
    seconds_left: float | None


class Status(TypedDict):
    """The state of a run. The last keys are those of a root of versions: the pointer and an unpublished version.

    `filters` are the heads of saved states of iterative eigensolvers, `last_failure` is the record FAILURE.
    """

    store: str
    state: str
    now: Position | None
    stages: dict[str, StageStatus]
    progress: Progress | None
    stopped_in: Position | None
    solving: list[Json]
    filters: list[Json]
    last_failure: Json | None
    published: NotRequired[Json | None]
    unpublished: NotRequired["Status | None"]
    versions: NotRequired[list[str]]


def status(store: Store) -> Status:
    """Finished blocks, all blocks and seconds of each stage, and whether a run is active. Raises ConfigError."""
    store.require_run()
    stages: dict[str, StageStatus] = {}
    now: Position | None = None
    last: Position | None = None
    for holder, key, record in steps_of_run(store, checkpoint.recorded_steps):
        stage, _, step = key.partition(".")
        n_done = _n_done(holder, key, record)
        entry = stages.setdefault(stage, {"done": 0, "blocks": 0, "seconds": 0.0, "steps": {}})
        entry["done"] += n_done
        entry["blocks"] = (entry["blocks"] or 0) + record.n_blocks
        entry["seconds"] = round(entry["seconds"] + record.seconds, 3)
        entry["steps"][step] = {"done": n_done, "blocks": record.n_blocks}
        last = {"stage": stage, "step": step, "done": n_done, "blocks": record.n_blocks}
        now = last if n_done < record.n_blocks else now
    names, fitted = stages_of_store(store), fitted_store(store)
    ordered = {name: stages.get(name, {"done": 0, "blocks": None, "seconds": 0.0, "steps": {}}) for name in names}
    finished = all(entry["done"] == entry["blocks"] for entry in ordered.values())
    state = "running" if running(store) else "done" if finished else "stopped"
    solving = recorded_progress(fitted) if state == "running" else []
    return {
        "store": store.url,
        "state": state,
        "now": now if state == "running" else None,
        "stages": ordered,
        "progress": progress_of(store) if state == "running" else None,
        "stopped_in": (now or last) if state == "stopped" else None,
        "solving": [to_json(record) | {"text": record.text} for record in solving],
        "filters": [to_json(head) for head in saved_heads(fitted, "_work/eigen")],
        "last_failure": store.get_json(FAILURE),
    }


def _n_done(store: Store, key: str, record: checkpoint.StepRecord) -> int:
    """Finished blocks of a step; 0 if the metadata of its arrays are damaged."""
    n_done = len(checkpoint.finished_blocks(store, key, record.fingerprint))
    if checkpoint.has_metadata(store, record):
        return n_done
    current = checkpoint.step_record(store, key)  # a run may have deleted the arrays since the record was read
    return n_done if current is not None and checkpoint.has_metadata(store, current) else 0


def progress_of(store: Store) -> Progress | None:
    """The share of the active run that is done, and the seconds left (None: unknown); None without a recent record."""
    look = store.read_record(RECORD, Look)
    if look is None or (passed := max(time.time() - look.time, 0.0)) > MAX_AGE:
        return None
    left = None if look.seconds_left is None else max(look.seconds_left - passed, 0.0)
    return {"fraction": look.fraction, "seconds_left": left}


def stages_of_store(store: Store) -> list[str]:
    """Names of the stages of a store's config in running order."""
    config = store.attributes()["config"]
    names = list(stages_of(config["method"], config["output"].get("cost_matrix", True)))
    if has_fit(store):
        names.insert(names.index("write_report"), "transform")
    return names


def steps_of_run(
    store: Store, records: Callable[[Store], dict[str, checkpoint.StepRecord]]
) -> Iterator[tuple[Store, str, checkpoint.StepRecord]]:
    """(store, step, record) of each step in `records`, in their order: those of the fit, then those of all rows."""
    for holder in [fitted_store(store), store] if has_fit(store) else [store]:
        for key, record in records(holder).items():
            if holder is store or not key.startswith("write_report."):
                yield holder, key, record


def status_of(url: str) -> Status:
    """As `status`; for a root of versions, that of the published version, the pointer, and the unpublished version.

    Raises NoRunYet if there are no versions yet.
    """
    root = Versions(url)
    if not root.store.has_versions():
        return status(root.store)
    pointer, unpublished = root.pointer(), list(filter(Store.is_readable, map(root.open, root.unpublished())))
    work = status(unpublished[0]) if unpublished else None
    if pointer is None and work is None:
        raise NoRunYet(f"{root.url}: no version has been begun there")
    is_deleted, busy = pointer is not None and not root.published().objects.exists("zarr.json"), running(root.store)
    if is_deleted and not (busy and work):  # a version that is being computed is shown instead
        raise unreadable(root.published())
    described = work if pointer is None or is_deleted else status(root.published())
    assert described is not None
    state = "running" if busy else described["state"]
    active = work if state == "running" else None
    return {
        **described,
        "store": root.url,
        "state": state,
        "now": active and active["now"],
        "progress": active and active["progress"],
        "published": None if pointer is None else asdict(pointer),
        "unpublished": work,
        "versions": root.ids(),
        "last_failure": root.store.get_json(FAILURE),
    }


@contextlib.contextmanager
def failure_recorded(url: str) -> Iterator[None]:
    """Context of a run: an error that ends it is recorded in its store, if there is one; success deletes the record.

    A run that is refused because another one holds the store is not recorded.
    """
    try:
        yield
    except StoreHeld:
        raise
    except (Exception, Interrupted) as error:
        store = Store(url)
        with contextlib.suppress(Exception):  # the store may be what failed
            if store.has_versions() or store.is_run():
                text, code = explained(error), 1
                if isinstance(error, LleError | Interrupted):
                    text, code = str(error), error.exit_code
                when = datetime.now(UTC).isoformat(timespec="seconds")
                message = " ".join(redact(text).encode(errors="backslashreplace").decode().split())
                store.put_json(FAILURE, {"when": when, "exit_code": code, "message": message})
        raise
    with contextlib.suppress(StoreError):
        Store(url).objects.delete(FAILURE)
