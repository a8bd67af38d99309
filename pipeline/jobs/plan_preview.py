"""Preview of a run: the steps already done in the store or in earlier versions. Nothing is computed or changed."""

from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

from ..clusters.limits import memory_of_task
from ..config.load import resolved
from ..config.models import Config
from ..core.errors import NotEnoughMemory
from ..engine import checkpoint, current_config, task_costs
from ..engine.plan import History, Layout, Walker, deleted_inputs, disk_totals, planned
from ..engine.step import BlockReport, Json, R, Report, Step
from ..engine.task_costs import fits, where
from ..inputs import Source
from ..linalg.component_solve import Solutions
from ..linalg.reg_step import ChosenReg, describe_reg
from ..report.findings import Columns, of_columns
from ..stages import ingest, solve_embedding, write_report
from ..stages.embed_new import Fit
from ..stages.registry import stages_of_run
from ..storage.records import to_json
from ..storage.store import Store, fitted_store, has_fit
from ..storage.versions import Versions
from .expected_time import expected
from .layout import layout_of, run_attributes
from .placing import config_of_fit, fit_of, job_of_all_rows, layout_of_all_rows, open_all_rows, steps
from .reprocess import begin, identity, is_current, version_id


@dataclass
class FinishedBlocks(Walker):
    """Looks up the blocks of each step that are finished in `stores`; nothing is computed or changed.

    `attributes` are those that the next run gives to the first store; empty if that store is not its own.

    Attributes:
        n_done: number of finished blocks of each step.
        all_done: whether all blocks of the steps so far are finished.
        holder: the store with most finished blocks of the last step, None if there is none.
    """

    stores: list[Store] = field(default_factory=list)
    attributes: Json = field(default_factory=dict)
    n_done: dict[str, int] = field(default_factory=dict)
    all_done: bool = True
    holder: Store | None = None

    def reports_of(self, step: Step[Report]) -> list[Report] | None:
        if self.all_done and self.attributes:
            step = checkpoint.with_records(self.stores[0], step, self.attributes, self.n_done)
        self.holder, finished = self.best_of(step)
        self.n_done[step.key] = len(finished)
        self.all_done &= len(finished) == step.n_blocks
        return [finished[block].report for block in sorted(finished)] if len(finished) == step.n_blocks else None

    def best_of(self, step: Step[Report]) -> tuple[Store | None, dict[int, BlockReport[Report]]]:
        """The store with most finished blocks of a step, None if there is none, and their reports."""
        fingerprint = step.fingerprint(self.upstream)
        found = [(store, checkpoint.finished_reports(store, step, fingerprint)) for store in self.stores]
        return max([(None, {}), *found], key=lambda entry: len(entry[1]))


class Forecast(FinishedBlocks):
    """The blocks that a run would not have to compute, determined step by step in the order of the run.

    Its stores are the store itself, or the version to resume and the source stores.

    Attributes:
        layout: sizes of the run; complete once its stages are walked.
        reports: reports of the steps whose blocks are all done.
        matrices: the store that holds the matrices of the eigensolver, None if there is none.
        solver: the predicted or previous choice of the eigensolver, None if it is unknown.
        reg: value of weights.reg, as far as it is known.
    """

    def __init__(self, config: Config, source: Source) -> None:
        now, history, self.unchanged, self._built_on = run_attributes(config, source), History(), False, ""
        own, store = None, Store(config.output.store)
        if config.output.keep is None:
            own = store if store.is_run() else None
        else:
            root = Versions(config.output.store)
            root.check_place()
            fingerprint = identity(config, source)
            version, history = begin(root, config, source, fingerprint, False, forecast=True)
            own = version if version.is_run() else None
            self.unchanged = is_current(root, fingerprint, source)
        stores = [*([own] if own else []), *history.source_stores]
        if config.output.keep is not None and stores:
            self._built_on = version_id(stores[0])
        super().__init__(stores, {**own.attributes(), **now} if own else {}, history=history)
        self.layout = layout_of(config, source, stores[0] if stores else None)
        self.columns: Columns | None = now["columns"]
        self.reports: dict[str, list[Report]] = {}
        self.matrices: Store | None = None
        self.solver: Json | None = None
        self.reg: Json | None = None
        self._n_unread, self._of_stage = 0, list[tuple[Step[Report], set[str]]]()
        self._inputs_done = True  # all steps that others depend on
        without_m = {"solve_weights.solve", "local_factors.solve"}
        self._matrix_steps = {"assemble_cost.merge"} if config.output.cost_matrix else without_m

    def reports_of(self, step: Step[Report]) -> list[Report] | None:
        reports, holder = super().reports_of(step), self.holder
        if reports is not None:
            self.reports[step.key] = reports
        if self.unchanged:
            self.n_done[step.key] = step.n_blocks
        self._inputs_done &= reports is not None or step.is_measurement
        if reports is not None and step.key in self._matrix_steps and self._inputs_done:
            self.matrices = holder
        self._of_stage = [entry for entry in self._of_stage if entry[0].stage == step.stage]
        if reports is None:
            self._count_again(self._of_stage)
        self._of_stage.append((step, set() if holder is None else checkpoint.deleted_data(holder, [step])[0]))
        return reports

    def best_of(self, step: Step[Report]) -> tuple[Store | None, dict[int, BlockReport[Report]]]:
        holder, best = super().best_of(step)
        if step.key == "ingest.read" and len(best) < step.n_blocks:
            best = best | self._unread_blocks(step)
        if step.task.locations and not step.is_measurement:
            self._n_unread += step.n_blocks - len(best)
        return holder, best

    def _count_again(self, before: list[tuple[Step[Report], set[str]]]) -> None:
        """Steps whose deleted data the next step reads are computed again, and so are those that they read."""
        for number in deleted_inputs(before):
            self.n_done[before[number][0].key] = 0
            self._count_again(before[:number])

    def _unread_blocks(self, step: Step[R]) -> dict[int, BlockReport[R]]:
        """Blocks of the input in an earlier version whose files or chunks have not changed since: the run copies them.

        Their reports say so: the files may have had other dates when that version read them.
        """
        url, blocks = cast(ingest.EarlierRows, step.task.parameters.get("earlier", ("", [])))
        if not blocks:
            return {}
        source_store = Store(url)
        record = checkpoint.step_record(source_store, step.key)
        reports = {} if record is None else checkpoint.finished_reports(source_store, step, record.fingerprint)
        return {
            block: replace(done, report=replace(done.report, is_read=False, state=None))
            for block in blocks
            if block < step.n_blocks and isinstance((done := reports[block]).report, ingest.RowsRead)
        }

    def summary(self) -> "Reuse":
        """The version to build on, whether nothing would be computed, and a text about both."""
        note = ""
        if self.unchanged:
            note = f"nothing has changed: version {self._built_on} stays published"
        elif self._built_on:
            note = f"kept: what version {self._built_on} holds"
            if self._n_unread:
                note += (
                    f"; {self._n_unread} blocks of the input may have changed (another file, date or earlier step). "
                    f"Each is read: if its content is unchanged, later steps are kept too"
                )
        return {"unchanged": self.unchanged, "from": self._built_on or None, "says": note}


def forecast(config: Config) -> Forecast:
    """The steps of a run with their sizes as far as they are known before it, and the blocks it would reuse."""
    source = ingest.open_input(config)
    preview = Forecast(config, source)
    preview.layout = preview.walk(stages_of_run(config), preview.layout)
    chosen = [report for reports in preview.reports.values() for report in reports if isinstance(report, ChosenReg)]
    preview.reg = describe_reg(config.method, config.weights.reg, to_json(chosen[0]) if chosen else None)
    [solved, *_] = preview.reports.get("solve_embedding.solve", [None])
    if isinstance(solved, Solutions):
        preview.solver = {**solved.components[0].stats, "basis": "an earlier run"}
    elif preview.matrices is not None and config.method != "pca":
        preview.solver = solve_embedding.predict_solver(config, preview.matrices, preview.layout)
    return preview


def forecast_placing(
    config: Config, layout: Layout, fit_is_done: bool
) -> tuple[list[tuple[Step[Report], int]], dict[str, int]]:
    """The steps after a fit that ends with `layout`, each with the number of its finished blocks; and counts of rows.

    Blocks with coordinates are reused only if every step of the fit is done.
    """
    source, store = open_all_rows(config), Store(config.output.store)
    placed = store if store.is_run() and has_fit(store) else None
    fit, preview = Fit(resolved(config), layout, layout.dtype, config.eigensolver.n_components, {}), FinishedBlocks()
    if placed is not None:
        preview = FinishedBlocks([placed], {**placed.attributes(), **run_attributes(config, source)})
        if fit_is_done and current_config.embedding_record(fitted_store(placed)) is not None:
            fit = fit_of(fitted_store(placed))
    job = job_of_all_rows(config, fit, source)
    sizes = preview.drive(steps(config, job, layout_of_all_rows(config, job, source, placed), source))
    preview.drive(write_report.steps(config, sizes))
    counts = {"rows_fitted": layout.n_input, "rows_placed": source.n_rows - layout.n_input}
    return [(step, preview.n_done[step.key]) for step in preview.steps], counts


def steps_of_fit_and_placing(config: Config, first_layout: Layout) -> list[Step[Report]]:
    """The steps of a run with input.fit_sample, whose fit begins with a layout."""
    fitting, layout = planned(stages_of_run(config_of_fit(config)), first_layout)
    placing, _ = forecast_placing(config, layout, fit_is_done=False)
    return [step for step in fitting if step.stage != "write_report"] + [step for step, _ in placing]


class PlannedStep(TypedDict):
    """A step: its tasks, those whose results are reused, its sizes in bytes, and whether it fits its worker."""

    stage: str
    step: str
    tasks: int
    bytes_per_task: int
    disk_bytes: int
    where: str
    fits: bool
    reused: int


Reuse = TypedDict("Reuse", {"unchanged": bool, "from": str | None, "says": str})
"""Whether nothing would be computed, the version to build on, and a text about both."""


class Plan(Reuse):
    """What a run would do; sizes in bytes."""

    steps: list[PlannedStep]
    disk_bytes: int
    disk_bytes_at_end: int
    array_bytes: int
    graph: str | None
    solver: Json | None
    reg: Json | None
    worker_memory: int | None
    worker_room: int | None
    columns: Columns | None
    warnings: list[str]
    expected: Json | None
    fit_sample: dict[str, int] | None


def plan_summary(config: Config) -> Plan:
    """The plan of a run. Raises NotEnoughMemory, with the plan, if a step does not fit its workers."""
    limit, counts, is_sampled = memory_of_task(config.execution.cluster), None, config.input.fit_sample is not None
    preview = forecast(config_of_fit(config) if is_sampled else config)
    rows = [(step, preview.n_done[step.key]) for step in preview.steps]
    if is_sampled:
        rows = [(step, reused) for step, reused in rows if step.stage != "write_report"]
        fit_is_done = all(reused == step.n_blocks for step, reused in rows)
        placing, counts = forecast_placing(config, preview.layout, fit_is_done)
        rows += placing
    unfinished = [step for step, reused in rows if reused < step.n_blocks]
    [graph] = preview.reports.get("mend_graph.analyse", [None])
    deleted = {name for step, _ in rows for name in step.deletes}
    largest_bytes, bytes_at_end = disk_totals(step for step, _ in rows)
    plan: Plan = {
        "steps": [
            {
                "stage": step.stage,
                "step": step.name,
                "tasks": step.n_blocks,
                "bytes_per_task": step.task_bytes,
                "disk_bytes": step.disk_bytes,
                "where": where(step, config),
                "fits": fits(step, config),
                "reused": reused,
            }
            for step, reused in rows
        ],
        "disk_bytes": largest_bytes,
        "disk_bytes_at_end": bytes_at_end,
        "array_bytes": sum(array.nbytes for step, _ in rows for array in step.arrays if array.spec.name not in deleted),
        "graph": graph.message or None if graph else None,
        "solver": preview.solver,
        "reg": preview.reg,
        "worker_memory": limit,
        "worker_room": None if limit is None else task_costs.task_room(limit),
        "columns": preview.columns,
        "warnings": [finding.text() for finding in of_columns(preview.columns)],
        "expected": expected(config.execution.cluster, unfinished).to_json()
        if unfinished and not preview.unchanged
        else None,
        "fit_sample": counts,
        **preview.summary(),
    }
    try:
        task_costs.check_plan(unfinished, limit)
    except NotEnoughMemory as error:
        error.plan = plan
        raise
    return plan
