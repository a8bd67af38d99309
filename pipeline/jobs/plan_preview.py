"""Preview of a run: the steps already done in the store or in earlier versions. Nothing is computed or changed."""

from collections import Counter
from typing import Any

from ..clusters.limits import memory_of_workers
from ..config.models import Config
from ..core.errors import NotEnoughMemory
from ..engine import checkpoint, task_costs
from ..engine.plan import BlockReport, Layout, Report, Step, disk_totals, freed_inputs, walk
from ..engine.task_costs import fits, where
from ..inputs import Source
from ..linalg.reg_step import STAGES, STEP, describe_reg
from ..report.findings import of_columns
from ..stages import ingest, solve_embedding
from ..stages.registry import stages_of_run
from ..storage.store import Store
from ..storage.versions import Versions
from .expected_time import expected_seconds
from .fit_and_place import config_of_fit
from .layout import layout_of, run_attributes
from .placing_preview import forecast_placing
from .reprocess import History, begin, identity, is_current, version_id


class Forecast:
    """The blocks that a run would not have to compute, determined step by step in the order of the run.

    Attributes:
        stores: stores with finished blocks: the store itself, or the version to resume and the source stores.
        reports: reports of the steps whose blocks are all done.
        matrices: the store that holds the matrices of the eigensolver, None if there is none.
        solver: the predicted or previous choice of the eigensolver, None if it is unknown.
        reg: value of weights.reg, as far as it is known.
    """

    def __init__(self, config: Config, source: Source) -> None:
        self.steps: list[Step] = []
        self.reused: dict[tuple[str, str], int] = {}
        self.reports: dict[tuple[str, str], list[Report]] = {}
        self.matrices: Store | None = None
        self.solver: dict[str, Any] | None = None
        self.reg: dict[str, Any] | None = None
        self.layout: Layout | None = None
        self._upstream, self._history, self._unread = "", History(), 0
        self._unread_files, self._of_stage = False, list[tuple[Step, set[str]]]()
        self.unchanged, self._built_on = False, ""
        self._all_done = self._inputs_done = True  # all steps so far; all steps that others depend on
        self._now = run_attributes(config, source)
        without_m = {("solve_weights", "solve"), ("local_factors", "solve")}
        self._matrix_steps = {("assemble_cost", "merge")} if config.output.cost_matrix else without_m
        self.columns: dict[str, Any] | None = self._now["columns"]
        store = Store(config.output.store)
        if config.output.keep is None:
            self.stores = [store] if store.is_run() else []
            self._own = next(iter(self.stores), None)
            return
        root = Versions(config.output.store)
        root.check_place()
        fingerprint = identity(config, source)
        version, self._history = begin(root, config, source, fingerprint, False, forecast=True)
        self._own = version if version.is_run() else None
        self.stores = [*([version] if self._own else []), *self._history.source_stores]
        self.unchanged = is_current(root, fingerprint, source)
        self._built_on = version_id(self.stores[0]) if self.stores else ""

    def finished_reports(self, step: Step) -> list[Report] | None:
        """The reports of a step if all its blocks are done under the fingerprint it would have now, else None."""
        step = self._history.prepared(step)
        if step.decides.shows_records and self._own and self._all_done:
            now = {**self._own.attributes(), **self._now}
            step = checkpoint.with_records(self._own, step, now, self.reused)
        fingerprint, best = checkpoint.fingerprint_of(self._upstream, step), dict[int, BlockReport]()
        holder: Store | None = None
        for store in self.stores:
            finished = checkpoint.finished_blocks(store, step.stage, step.name, fingerprint)
            if len(finished) > len(best):
                best, holder = finished, store
        if (step.stage, step.name) == ("ingest", "read") and len(best) < step.n_blocks:
            best |= self._unread_blocks(step)
            self._unread = step.n_blocks - len(best)
        elif step.decides.digested and step.feeds:
            self._unread_files = len(best) < step.n_blocks
        self.reused[step.stage, step.name] = step.n_blocks if self.unchanged else len(best)
        self._all_done &= len(best) == step.n_blocks
        self._inputs_done &= len(best) == step.n_blocks or not step.feeds
        if len(best) < step.n_blocks:
            reports = None
        else:
            reports = self.reports[step.stage, step.name] = [best[block].report for block in sorted(best)]
            if step.key in self._matrix_steps and self._inputs_done:
                self.matrices = holder
        self._of_stage = [entry for entry in self._of_stage if entry[0].stage == step.stage]
        if reports is None:
            self._count_again(self._of_stage)
        self._of_stage.append((step, set() if holder is None else checkpoint.freed_data(holder, [step])[0]))
        if step.feeds:
            self._upstream = self._history.chained(self._upstream, step, reports or [])
        return reports

    def _count_again(self, before: list[tuple[Step, set[str]]]) -> None:
        """Steps whose freed data the next step reads are computed again, and so are those that they read."""
        for number in freed_inputs(before):
            self.reused[before[number][0].key] = 0
            self._count_again(before[:number])

    def _unread_blocks(self, step: Step) -> dict[int, BlockReport]:
        """Blocks of the input in an earlier version whose files or chunks have not changed since."""
        earlier = step.runs.resources.get("earlier", {"blocks": []})
        if not earlier["blocks"]:
            return {}
        source_store = Store(earlier["url"])
        record = checkpoint.step_record(source_store, "ingest", "read") or {"fingerprint": ""}
        reports = checkpoint.finished_blocks(source_store, "ingest", "read", record["fingerprint"])
        return {block: reports[block] for block in earlier["blocks"] if block < step.n_blocks}

    def expected(
        self, config: Config, planned: list[tuple[Step, int]], placing: Layout | None
    ) -> dict[str, Any] | None:
        """Expected seconds of the stages that are not finished; None if all are.

        planned: each step with the number of its finished blocks. placing: the layout of steps that place rows.
        """
        n_steps = Counter(step.stage for step, reused in planned if reused < step.n_blocks)
        if self.layout is None or self.unchanged or not n_steps:
            return None
        return expected_seconds(config, self.layout, n_steps, placing=placing)

    def summary(self) -> dict[str, Any]:
        """The version to build on, whether nothing would be computed, and a text about both."""
        note = ""
        if self.unchanged:
            note = f"nothing has changed: version {self._built_on} stays published"
        elif self._built_on:
            note = f"kept: what version {self._built_on} holds"
            if self._unread:
                note += (
                    f"; {self._unread} blocks of the input have other files or dates and are read: if their bytes are "
                    f"unchanged, later steps are kept too"
                )
            if self._unread_files:
                note += (
                    "; the file of neighbors.k_per_point or neighbors.precomputed is read too, because its date, path "
                    "or the input has changed: if its content is unchanged, later steps are kept"
                )
        return {"unchanged": self.unchanged, "from": self._built_on or None, "says": note}


def forecast(config: Config) -> Forecast:
    """The steps of a run with their sizes as far as they are known before it, and the blocks it would reuse."""
    source = ingest.open_input(config)
    preview = Forecast(config, source)
    layout = layout_of(config, source, preview.stores[0] if preview.stores else None)
    preview.steps, preview.layout = walk(stages_of_run(config), config, layout, preview.finished_reports)
    chosen = next((preview.reports[stage, STEP][0] for stage in STAGES if (stage, STEP) in preview.reports), None)
    preview.reg = describe_reg(config.method, config.weights.reg, chosen)
    if (solved := preview.reports.get(("solve_embedding", "solve"))) is not None:
        preview.solver = {**solved[0]["stats"], "basis": "an earlier run"}
    elif preview.matrices is not None and config.method != "pca":
        preview.solver = solve_embedding.predict_solver(config, preview.matrices, layout)
    return preview


def plan_summary(config: Config) -> dict[str, Any]:
    """The plan of a run. Raises NotEnoughMemory, with the plan, if a step does not fit its workers."""
    limit, placing = memory_of_workers(config.execution.cluster), None
    if config.input.fit_sample is None:
        preview = forecast(config)
    else:
        preview = forecast(config_of_fit(config))
        assert preview.layout is not None
        fit_is_done = all(
            preview.reused.get(step.key, 0) == step.n_blocks for step in preview.steps if step.stage != "write_report"
        )
        placing = forecast_placing(config, preview.layout, fit_is_done)
    planned = [(step, preview.reused.get(step.key, 0)) for step in preview.steps]
    if placing is not None:
        planned = [(step, reused) for step, reused in planned if step.stage != "write_report"] + placing.steps
    [graph] = preview.reports.get(("mend_graph", "analyse"), [{}])
    freed = {name for step, _ in planned for name in step.frees}
    largest_bytes, bytes_at_end = disk_totals(step for step, _ in planned)
    plan = {
        "steps": [_row(step, reused, config) for step, reused in planned],
        "disk_bytes": largest_bytes,
        "disk_bytes_at_end": bytes_at_end,
        "array_bytes": sum(
            array.nbytes for step, _ in planned for array in step.writes.arrays if array.spec.name not in freed
        ),
        "graph": graph.get("says"),
        "solver": preview.solver,
        "reg": preview.reg,
        "worker_memory": limit,
        "worker_room": None if limit is None else task_costs.task_room(limit),
        "columns": preview.columns,
        "warnings": [finding.text() for finding in of_columns(preview.columns)],
        "expected": preview.expected(config, planned, None if placing is None else placing.layout),
        "fit_sample": None if placing is None else placing.counts,
        **preview.summary(),
    }
    try:
        task_costs.check_plan((step for step, reused in planned if reused < step.n_blocks), limit)
    except NotEnoughMemory as error:
        error.plan = plan
        raise
    return plan


def _row(step: Step, reused: int, config: Config) -> dict[str, Any]:
    return {
        "stage": step.stage,
        "step": step.name,
        "tasks": step.n_blocks,
        "bytes_per_task": step.runs.bytes_per_task,
        "disk_bytes": step.writes.disk_bytes,
        "where": where(step, config),
        "fits": fits(step, config),
        "reused": reused,
    }
