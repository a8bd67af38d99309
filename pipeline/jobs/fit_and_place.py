"""A run with input.fit_sample: the stages run on a sample of the rows, in the group `fit`; then all rows are placed.

Placing is the out-of-sample transform of `lle transform`, with a task for each block of rows, so no process holds all
rows. Fitted rows keep their coordinates.
"""

import contextlib
import time
from functools import partial

from ..clusters.limits import memory_of_workers
from ..config.models import Config
from ..core.errors import BoundsNotMet
from ..engine import checkpoint, current_config
from ..engine.execute import Executor
from ..engine.plan import History, RunResult, planned
from ..engine.progress import RunProgress
from ..engine.task_costs import check_plan
from ..inputs.consistency import one_state
from ..stages import ingest, write_report
from ..stages.registry import stages_of_run
from ..storage import array_specs
from ..storage.store import FIT, Store, block_of, fitted_store
from . import placing
from .expected_time import cluster_to_start
from .layout import check_layout, layout_of
from .plan_preview import foreseen_placing
from .run_stages import Shared, begun, executing, profiled, result_of, run_store


def fit_and_place(config: Config, fresh: bool, progress: RunProgress, profile: bool) -> RunResult:
    """Run the config; finished blocks are reused. Raises LleError; BoundsNotMet after placing, if the fit allows it."""
    started = time.perf_counter()
    store, source = Store(config.output.store), placing.open_all_rows(config)
    history = History(attributes={FIT: {"rows": config.input.fit_sample, "n_input": source.n_rows}})
    with begun(config, source, store, fresh, history, progress, started) as finished_steps:
        steps_of_all, _ = planned(stages_of_run(config), ingest.first_layout(config, source))
        where = cluster_to_start(config.execution.cluster, steps_of_all, needs_workers=profile)
        with executing(progress, *where) as executor:
            reopen = partial(placing.open_all_rows, config)
            run = placing.PlacingRun(
                store, executor, progress, finished_steps, source=source, reopen=reopen, config=config
            )
            with one_state(source, reopen), profiled(run) if profile else contextlib.nullcontext():
                missed, seconds = _fit(config, store, executor, progress)
                progress.time_left.expect(seconds)
                _place(config, run)
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
    config, fitted = placing.config_of_fit(config_of_all), fitted_store(store)
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


def _place(config: Config, run: placing.PlacingRun) -> None:
    """Place all rows among the fitted ones, and write the report."""
    store, source = run.store, run.source
    job = placing.job_of_all_rows(config, placing.fit_of(fitted_store(store)), source)
    earlier = store.usable_array(array_specs.EMBEDDING.name)
    stored = block_of(earlier) if earlier is not None and earlier.shape[0] == source.n_rows else None
    layout = placing.layout_of_placing(job, source, config.execution, stored)
    check_plan(placing.steps_of_job(job, layout), memory_of_workers(config.execution.cluster))
    run.walk_stage("transform", placing.steps(config, job, layout, source))
    checkpoint.delete_unused_steps(store, "ingest", run.finished_steps)
    run.walk_stage("write_report", write_report.steps(config, layout))
    current_config.end_run(store)
