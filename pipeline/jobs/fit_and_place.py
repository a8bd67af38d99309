"""A run with input.fit_sample: the stages run on a sample of the rows, in the group `fit`; then all rows are placed.

Placing is the out-of-sample transform of `lle transform`, with a task for each block of rows, so no process holds all
rows. Fitted rows keep their coordinates.
"""

import contextlib
import time
from functools import partial

from ..clusters.limits import memory_of_task
from ..config.models import Config
from ..core.errors import BoundsNotMet
from ..engine import checkpoint, current_config
from ..engine.plan import History, RunResult
from ..engine.progress import RunProgress
from ..engine.task_costs import check_plan
from ..inputs.consistency import one_state
from ..report.metrics import Metrics
from ..stages import ingest, write_report
from ..storage.run_group import FIT
from ..storage.store import Store, fitted_store
from . import placing
from .expected_time import foreseen, placement
from .layout import check_layout, layout_of
from .plan_preview import steps_of_fit_and_placing
from .run_stages import Shared, begun, executing, lost_rows, profiled, require_met, result_of, run_store


def fit_and_place(config: Config, fresh: bool, progress: RunProgress, profile: bool) -> RunResult:
    """Run the config; finished blocks are reused. Raises LleError; BoundsNotMet after placing, if the fit allows it."""
    started = time.perf_counter()
    store, source = Store(config.output.store), placing.open_all_rows(config)
    history = History(attributes={FIT: {"rows": config.input.fit_sample, "n_input": source.n_rows}})
    with begun(config, source, store, fresh, history, progress, started) as finished_steps:
        earlier = fitted_store(store) if fitted_store(store).can_resume() else None
        layout = layout_of(placing.config_of_fit(config), ingest.open_input(config), earlier)
        all_steps = steps_of_fit_and_placing(config, layout)
        placed = placement(config.execution.cluster, all_steps, needs_workers=profile)
        with executing(progress, *placed) as executor:
            reopen = partial(placing.open_all_rows, config)
            run = placing.PlacingRun(
                store, executor, progress, finished_steps, source=source, reopen=reopen, config=config
            )
            text, seconds = foreseen(config, all_steps)
            progress.start(store, seconds)
            if earlier is None:
                check_layout(placing.config_of_fit(config), layout)
                if text:
                    progress.print_line(text)
            with one_state(source, reopen), profiled(run) if profile else contextlib.nullcontext():
                missed = _fit(config, fitted_store(store), Shared(executor, layout), progress)
                after = ("transform.", "write_report.")
                progress.time_left.expect({key: value for key, value in seconds.items() if key.startswith(after)})
                _place(config, run)
        result = result_of(store, progress, started)
    lost = lost_rows(Metrics.read(result.metrics), config.output.min_rows)
    require_met("\n".join(filter(None, [missed, lost])), result)
    return result


def _fit(config: Config, fitted: Store, shared: Shared, progress: RunProgress) -> str:
    """Run the stages on the sample; returns a text about missed bounds. One without an embedding is raised."""
    try:
        with contextlib.ExitStack() as closing:
            run_store(placing.config_of_fit(config), fitted, False, progress, False, History(), closing, shared)
    except BoundsNotMet as missed:
        if current_config.embedding_record(fitted) is None:
            raise
        return str(missed)
    return ""


def _place(config: Config, run: placing.PlacingRun) -> None:
    store, source = run.store, run.source
    job = placing.job_of_all_rows(config, placing.fit_of(fitted_store(store)), source)
    layout = placing.layout_of_all_rows(config, job, source, store)
    check_plan(placing.steps_of_job(job, layout), memory_of_task(config.execution.cluster))
    run.walk_stage("transform", placing.steps(config, job, layout, source))
    checkpoint.delete_unused_steps(store, "ingest", run.finished_steps)
    run.walk_stage("write_report", write_report.steps(config, layout))
    current_config.delete_leftovers(store, run.finished_steps)
    current_config.end_run(store)
