"""A run with input.fit_sample: the stages run on a sample of the rows, in the group `fit`; then all rows are placed.

Placing is the out-of-sample transform of `lle transform`, with a task for each block of rows, so no process holds all
rows. Fitted rows keep their coordinates.
"""

import contextlib
import time
from typing import cast

from ..config.models import Config
from ..core.errors import NAMED_ROWS, BoundsNotMet, InputError, counted, first_rows
from ..core.signals import interruptible
from ..engine import checkpoint, current_config
from ..engine.execute import Executor
from ..engine.plan import History, RunResult, planned
from ..engine.progress import RunProgress
from ..engine.step import Report, Step
from ..inputs import Source
from ..inputs.consistency import require_unchanged_input
from ..stages import embed_new, ingest, write_report
from ..stages.registry import stages_of_run
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.lock import RunLock
from ..storage.store import FIT, Store, block_of, fitted_store
from .expected_time import cluster_to_start
from .layout import check_layout, layout_of
from .placing import check_placing, config_of_fit, fit_of, job_of_all_rows, layout_of_placing, open_all_rows, steps
from .plan_preview import foreseen_placing
from .run_stages import Shared, StageRun, begin_store, executing, missed_bounds_recorded, profiled, result_of, run_store


def fit_and_place(config: Config, fresh: bool, progress: RunProgress, profile: bool) -> RunResult:
    """Run the config; finished blocks are reused. Raises LleError; BoundsNotMet after placing, if the fit allows it."""
    started = time.perf_counter()
    store, source = Store(config.output.store), open_all_rows(config)
    if fresh:
        store.may_erase()
    history = History()
    history.attributes = {FIT: {"rows": config.input.fit_sample, "n_input": source.n_rows}}
    with interruptible(), RunLock(store):
        begin_store(store, config, source, fresh, history, progress.print_line)
        fitted, finished_steps = fitted_store(store), set[str]()
        steps_of_all, _ = planned(stages_of_run(config), ingest.first_layout(config, source))
        cluster = cluster_to_start(config, steps_of_all)
        with (
            missed_bounds_recorded(store, progress, started, finished_steps),
            executing(cluster, progress) as executor,
            profiled(executor.client, store, progress) if profile else contextlib.nullcontext(),
        ):
            missed, seconds = _fit(config, store, executor, progress)
            placing = _Placing(store, executor, progress, History(), finished_steps)
            progress.time_left.expect(seconds)
            placing.place_and_report(config, fitted, source)
        result = result_of(store, progress, started)
    if missed is not None:
        missed.result = result
        raise missed
    return result


def _fit(
    config_of_all: Config, store: Store, executor: Executor, progress: RunProgress
) -> tuple[BoundsNotMet | None, dict[str, float]]:
    """Run the stages on the sample; returns a missed bound, and the expected seconds of the steps after them.

    A missed bound without an embedding is raised.
    """
    config, fitted = config_of_fit(config_of_all), fitted_store(store)
    earlier = fitted if fitted.can_resume() else None
    layout = layout_of(config, ingest.open_input(config), earlier)
    text, seconds = foreseen_placing(config_of_all, layout)
    progress.start(store, seconds)
    if earlier is None:
        check_layout(config, layout)
        if text:
            progress.print_line(text)
    after = {key: value for key, value in seconds.items() if key.startswith(("transform.", "write_report."))}
    try:
        with contextlib.ExitStack() as closing:
            run_store(config, fitted, False, progress, False, History(), closing, Shared(executor, layout))
    except BoundsNotMet as missed:
        if current_config.embedding_record(fitted) is None:
            raise
        return missed, after
    return None, after


class _Placing(StageRun):
    """The steps in the store of the run: place all rows among the fitted ones, and write the report."""

    def place_and_report(self, config: Config, fitted: Store, source: Source) -> None:
        """Place the rows. Raises InputChanged if the input changed during the run, InputError for rows with NaN."""
        self._config, self._source = config, source
        fit = fit_of(fitted)
        job = job_of_all_rows(config, fit, source)
        earlier = self.store.usable_array(array_specs.EMBEDDING.name)
        stored = block_of(earlier) if earlier is not None and earlier.shape[0] == source.n_rows else None
        layout = layout_of_placing(fit, job, source, config.execution, stored)
        check_placing(job, layout, config.execution.cluster)
        self.walk_stage("transform", steps(config, job, layout, source))
        checkpoint.delete_unused_steps(self.store, "ingest", self.finished_steps)
        self.walk_stage("write_report", write_report.steps(config, layout))
        current_config.end_run(self.store)

    def visit(self, step: Step[Report]) -> list[Report]:
        reports = super().visit(step)
        placed = [report for report in reports if isinstance(report, embed_new.PlacedRows)]
        if placed:
            blocks, states = cast(Blocks, step.task.parameters["blocks"]), [report.state for report in placed]
            require_unchanged_input(self._source, open_all_rows(self._config), blocks, states)
        count = sum(report.invalid for report in placed)
        if count and self._config.preprocess.invalid == "error":
            rows = [row for report in placed for row in report.first_invalid][:NAMED_ROWS]
            raise InputError(
                f"input: {counted(count, 'row')} with NaN or infinity (rows {first_rows(rows, count)}; the first is "
                f"{self._source.locate(rows[0])}). Correct them, or set preprocess.invalid: drop to leave them out "
                f"(their embedding is NaN); the other rows are placed and kept"
            )
        return reports
