"""A run with input.fit_sample: the stages run on a sample of the rows, in the group `fit`; then all rows are placed.

Placing is the out-of-sample transform of `lle transform`, with a task for each block of rows, so no process holds all
rows. Fitted rows keep their coordinates.
"""

import contextlib
import time

from ..clusters.connect import performance
from ..config.models import Config
from ..core.errors import NAMED_ROWS, BoundsNotMet, InputChanged, InputError, first_rows
from ..core.signals import interruptible
from ..engine import checkpoint, current_config
from ..engine.execute import Executor, run_step
from ..engine.plan import Json, Layout, Report, RunResult, Step, Steps, drive
from ..engine.progress import RunProgress
from ..inputs import Source, open_source
from ..inputs.consistency import require_unchanged_input
from ..stages import embed_new, ingest, write_report
from ..stages.ingest_ids import read_ids_step
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.fitted import FIT, fitted_store
from ..storage.lock import RunLock
from ..storage.store import Store, block_of
from .layout import check_layout, layout_of
from .reprocess import History
from .run_stages import Shared, begin_store, executing, result_of, run_store, save_profile, worthwhile
from .transform import new_rows_job, new_rows_layout

STAGES = ("ingest", "transform", "write_report")


def fit_and_place(config: Config, fresh: bool, progress: RunProgress, profile: bool = False) -> RunResult:
    """Run the config; finished blocks are reused. Raises LleError; BoundsNotMet after placing, if the fit allows it."""
    started = time.perf_counter()
    store, source = Store(config.output.store), open_all_rows(config)
    if fresh:
        store.may_erase()
    history = History()
    history.attributes = {FIT: {"rows": config.input.fit_sample, "n_input": source.n_rows}}
    with interruptible(), RunLock(store):
        begin_store(store, config, source, fresh, history)
        placing = _Placing(config, store, source, progress)
        cluster = worthwhile(config.execution.cluster, ingest.first_layout(config, source))
        missed: BoundsNotMet | None = None
        try:
            with (
                executing(cluster, progress) as executor,
                performance(executor.client if profile else None) as profiled,
            ):
                missed = _fit(config, placing.fitted, executor, progress)
                placing.run(executor)
            if profile:
                save_profile(store, profiled, progress)
        except BoundsNotMet as error:
            write_report.write_metrics(store, time.perf_counter() - started, placing.finished_steps, str(error))
            error.result = result_of(store, progress, started)
            raise
        finally:
            progress.stop()
        result = result_of(store, progress, started)
    if missed is not None:
        missed.result = result
        raise missed
    return result


def open_all_rows(config: Config) -> Source:
    """The input of a config with all its rows. Raises InputError."""
    kind, parameters = ingest.all_rows(config)
    return open_source(kind, **parameters)


def config_of_fit(config: Config) -> Config:
    """The config of the run on the sample, which has no report of its own."""
    output = config.output.model_copy(
        update={"store": f"{Store(config.output.store).url}/{FIT}", "report": False, "prometheus": None}
    )
    return config.model_copy(update={"output": output})


def _fit(config: Config, fitted: Store, executor: Executor, progress: RunProgress) -> BoundsNotMet | None:
    """Run the stages on the sample. A missed bound is returned if there is an embedding, else it is raised."""
    config = config_of_fit(config)
    earlier = fitted if fitted.is_run() else None
    layout = layout_of(config, ingest.open_input(config), earlier)
    if earlier is None:
        check_layout(config, layout)
    try:
        with contextlib.ExitStack() as closing:
            run_store(config, fitted, False, progress, False, History(), closing, Shared(executor, layout))
    except BoundsNotMet as missed:
        if current_config.embedding_record(fitted) is None:
            raise
        return missed
    return None


class _Placing:
    """The steps in the store of the run: place all rows among the fitted ones, and write the report."""

    def __init__(self, config: Config, store: Store, source: Source, progress: RunProgress) -> None:
        self.config, self.store, self.source, self.progress = config, store, source, progress
        self.fitted = fitted_store(store)
        self.finished_steps = set[tuple[str, str]]()
        self._upstream, self._peak_bytes = "", 0

    def run(self, executor: Executor) -> None:
        """Place the rows. Raises InputChanged if the input changed during the run, InputError for rows with NaN."""
        job = job_of_placing(self.config, self.fitted, self.source)
        stored = _stored_block(self.store, self.source.n_rows)
        layout, _ = new_rows_layout(self.fitted, job, self.source, self.config.execution, stored)
        parts = {
            "transform": steps(self.config, job, layout, self.source),
            "write_report": write_report.steps(self.config, layout),
        }
        for name, part in parts.items():
            started = time.perf_counter()
            drive(part, lambda step: self._run_step(step, executor))
            current_config.add_finished_steps(self.store, self.finished_steps)
            self.progress.end_stage(name, time.perf_counter() - started, self._peak_bytes)
        for stage in STAGES:
            checkpoint.forget_unused(self.store, stage, {name for used, name in self.finished_steps if used == stage})
        current_config.end_run(self.store)

    def _run_step(self, step: Step, executor: Executor) -> list[Report]:
        step = checkpoint.with_records(self.store, step)
        results = run_step(step, self._upstream, self.store, executor, self.progress, self.finished_steps)
        self.finished_steps.add(step.key)
        self._peak_bytes = max(result.peak_bytes for result in results)
        reports = [result.report for result in results]
        if step.feeds:
            self._upstream = checkpoint.fingerprint_of(self._upstream, step)
        if step.name == "embed":
            self._check(reports, step.decides.parameters["blocks"])
        return reports

    def _check(self, reports: list[Report], blocks: Blocks) -> None:
        try:
            require_unchanged_input(self.source, open_all_rows(self.config), blocks, reports)
        except InputChanged:
            checkpoint.forget_step(self.store, "transform", "embed")
            raise
        count = sum(report["invalid"] for report in reports)
        if count and self.config.preprocess.invalid == "error":
            rows = [row for report in reports for row in report["first_invalid"]][:NAMED_ROWS]
            raise InputError(
                f"input: {count} rows hold NaN or infinity (rows {first_rows(rows, count)}; the first is "
                f"{self.source.locate(rows[0])}). Correct them, or set preprocess.invalid: drop to leave them out "
                f"(their embedding is NaN); the other rows are placed and kept"
            )


def steps(config: Config, job: embed_new.Job, layout: Layout, source: Source) -> Steps:
    """read_labels (if the input has labels) -> calibrate -> embed."""
    if source.label_width:
        kind, parameters = ingest.all_rows(config)
        blocks = Blocks(layout.n_input, layout.block_points)
        bytes_beside = source.bytes_beside(min(blocks.size, blocks.n))
        yield ingest.labels_step(kind, parameters, blocks, source.label_width, bytes_beside)
    if config.input.model_dump().get("id") is not None:
        kind, parameters = ingest.all_rows(config)
        blocks = Blocks(layout.n_input, layout.block_points)
        yield read_ids_step(kind, parameters, blocks, source.bytes_beside(min(blocks.size, blocks.n)))
    return (yield from embed_new.steps(job, layout))


def job_of_placing(config: Config, fitted: Store, source: Source) -> embed_new.Job:
    """Everything that determines the coordinates of the rows, from the finished fit."""
    kind, parameters = ingest.all_rows(config)
    record = current_config.require_embedding(fitted)
    state: Json = {key: record[key] for key in ("fingerprint", "begun")}
    trained = fitted.attributes()["config"]
    return new_rows_job(fitted, trained, state, kind, ingest.without_labels(parameters), source, None, False)


def _stored_block(store: Store, n_rows: int) -> int | None:
    """Rows of a block in an earlier placing of the same number of rows; None if there is none."""
    if not store.has_array(array_specs.EMBEDDING.name):
        return None
    array = store.array(array_specs.EMBEDDING.name)
    return block_of(array) if array.shape[0] == n_rows else None
