"""What a run would find done, told before it from the store or the earlier versions; nothing is computed or changed."""

from typing import Any

from ..clusters.limits import memory_of_workers
from ..config.models import Config
from ..core.errors import NotEnoughMemory
from ..engine import checkpoint, task_costs
from ..engine.placement import fits, where
from ..engine.plan import BlockReport, Layout, Report, Step, walk
from ..inputs import Source
from ..linalg.reg_choice import STAGES, STEP, describe_reg
from ..report.metrics import warnings_of_columns
from ..stages import ingest, solve_embedding
from ..stages.registry import stages_of
from ..storage.store import Store
from ..storage.versions import Versions
from .layout import layout_of, run_attributes
from .reprocess import History, begin, identity, is_current, version_id


class Forecast:
    """What a run would find done, asked step by step in the order of the run; it changes nothing.

    `stores` are where it would look: the store itself, or the version it would go on with and those it may take from.
    `reports` are those of the steps found whole, `matrices` is the store that holds what the eigensolver works on, and
    `solver` its choice, None while they are not known. `reg` is what weights.reg is or will be.
    """

    def __init__(self, config: Config, source: Source) -> None:
        self.steps: list[Step] = []
        self.reused: dict[tuple[str, str], int] = {}
        self.reports: dict[tuple[str, str], list[Report]] = {}
        self.matrices: Store | None = None
        self.solver: dict[str, Any] | None = None
        self.reg: dict[str, Any] | None = None
        self._upstream, self._history, self._unread = "", History(), 0
        self._unread_files = False
        self.unchanged, self._built_on, self._appended, self._why = False, "", False, ""
        self._whole = self._fed = True  # all steps so far, and those that others build on
        self._now = run_attributes(config, source)
        self.columns: dict[str, Any] | None = self._now["columns"]
        store = Store(config.output.store)
        if config.output.keep is None:
            self.stores = [store] if store.is_run() else []
            self._own = next(iter(self.stores), None)
            return
        root = Versions(config.output.store)
        root.check_place()
        mark = identity(config, source)
        mine, self._history = begin(root, config, source, mark, False, forecast=True)
        self._own = mine if mine.is_run() else None
        self.stores = [*([mine] if self._own else []), *self._history.source_stores]
        self.unchanged = is_current(root, mark, source)
        self._built_on = version_id(self.stores[0]) if self.stores else ""

    def begun(self, layout: Layout) -> Layout:
        """The layout with the earlier version that a run may build on."""
        said: list[str] = []
        layout = self._history.begun(layout, said.append)
        self._why = "".join(said)
        return layout

    def known(self, step: Step) -> list[Report] | None:
        """The reports of a step that is done under the fingerprint it would have now, None where a block is missing."""
        step = self._history.prepared(step)
        if step.decides.shows_records and self._own and self._whole:
            now = {**self._own.attributes(), **self._now}
            step = checkpoint.with_records(self._own, step, now, self.reused)
        mark, best = checkpoint.fingerprint_of(self._upstream, step), dict[int, BlockReport]()
        holder: Store | None = None
        for store in self.stores:
            done = checkpoint.finished_blocks(store, step.stage, step.name, mark)
            if len(done) > len(best):
                best, holder = done, store
        if (step.stage, step.name) == ("ingest", "read") and len(best) < step.n_blocks:
            best |= self._unread_blocks(step)
            self._unread = step.n_blocks - len(best)
        elif step.decides.digested and step.feeds:
            self._unread_files = len(best) < step.n_blocks
        self.reused[step.stage, step.name] = step.n_blocks if self.unchanged else len(best)
        self._whole &= len(best) == step.n_blocks
        self._fed &= len(best) == step.n_blocks or not step.feeds
        if len(best) < step.n_blocks:
            reports = None
        else:
            reports = self.reports[step.stage, step.name] = [best[block].report for block in sorted(best)]
            if (step.stage, step.name) == ("assemble_cost", "merge") and self._fed:
                self.matrices = holder
        self._appended |= (step.stage, step.name) == ("order_points", "keep_cells") and reports is None
        if step.feeds:
            self._upstream = self._history.chained(self._upstream, step, reports or [])
        return reports

    def _unread_blocks(self, step: Step) -> dict[int, BlockReport]:
        """Blocks of the input that an earlier version holds and whose files or chunks are those of then."""
        earlier = step.runs.resources.get("earlier", {"blocks": []})
        if not earlier["blocks"]:
            return {}
        source_store = Store(earlier["url"])
        record = checkpoint.step_record(source_store, "ingest", "read") or {"fingerprint": ""}
        done = checkpoint.finished_blocks(source_store, "ingest", "read", record["fingerprint"])
        return {block: done[block] for block in earlier["blocks"] if block < step.n_blocks}

    def summary(self) -> dict[str, Any]:
        """Of versions: which would be built on, whether nothing would be computed, and that in words."""
        says = ""
        if self.unchanged:
            says = f"nothing has changed: version {self._built_on} stays published"
        elif self._built_on:
            says = f"kept: what version {self._built_on} holds"
            if self._unread:
                says += (
                    f"; {self._unread} blocks of the input have other files or dates and are read: if their bytes are "
                    f"the same, what follows is kept too"
                )
            if self._unread_files:
                says += (
                    "; the file of neighbors.k_per_point or neighbors.precomputed has another date or place, or rows "
                    "before it are read anew: it is read, and if it says the same, what follows is kept too"
                )
            if self._appended:
                says += "; if the input begins with the same rows, " + (
                    "cells and order are kept: by brute force all points are searched, and what follows the lists is "
                    "computed anew"
                    if any((step.stage, step.name) == ("find_neighbors", "search") for step in self.steps)
                    else "cells, order and neighbour lists are kept: only new points are searched, and what follows "
                    "the lists is computed anew"
                )
            says += f"; {self._why}" * bool(self._why)
        return {"unchanged": self.unchanged, "from": self._built_on or None, "says": says}


def forecast(config: Config) -> Forecast:
    """Every step a run would do, with the sizes that can be known before it and what it would take over."""
    source = ingest.open_input(config)
    found = Forecast(config, source)
    layout = found.begun(layout_of(config, source, found.stores[0] if found.stores else None))
    found.steps, _ = walk(stages_of(config.method), config, layout, found.known)
    chosen = next((found.reports[stage, STEP][0] for stage in STAGES if (stage, STEP) in found.reports), None)
    found.reg = describe_reg(config.method, config.weights.reg, chosen)
    if (solved := found.reports.get(("solve_embedding", "solve"))) is not None:
        found.solver = {**solved[0]["stats"], "basis": "an earlier run"}
    elif found.matrices is not None and config.method != "pca":
        found.solver = solve_embedding.predict_solver(config, found.matrices, layout)
    return found


def plan_summary(config: Config) -> dict[str, Any]:
    """The plan of a run. Raises NotEnoughMemory, with the plan, if a step does not fit its workers."""

    preview, limit = forecast(config), memory_of_workers(config.execution.cluster)
    room = None if limit is None else task_costs.task_room(limit)
    rows = [
        {
            "stage": step.stage,
            "step": step.name,
            "tasks": step.n_blocks,
            "bytes_per_task": step.runs.bytes_per_task,
            "disk_bytes": step.writes.disk_bytes,
            "where": where(step, config),
            "fits": fits(step, config),
            "reused": preview.reused.get((step.stage, step.name), 0),
        }
        for step in preview.steps
    ]
    sizes = {
        "disk_bytes": sum(step.writes.disk_bytes for step in preview.steps),
        "array_bytes": sum(step.writes.disk_bytes - step.writes.bundle_bytes for step in preview.steps),
    }
    plan = {"steps": rows, **sizes, "solver": preview.solver, "reg": preview.reg, "worker_memory": limit,
            "worker_room": room, "columns": preview.columns, "warnings": warnings_of_columns(preview.columns),
            **preview.summary()}  # fmt: skip
    try:
        remaining = (step for step in preview.steps if preview.reused.get((step.stage, step.name), 0) < step.n_blocks)
        task_costs.check_plan(remaining, limit)
    except NotEnoughMemory as error:
        error.plan = plan
        raise
    return plan
