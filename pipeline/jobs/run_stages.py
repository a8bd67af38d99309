"""Every stage of a run in one store, in order; finished blocks are reused."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from ..clusters.connect import connect
from ..clusters.limits import Section, memory_of_high_memory, memory_of_task, memory_of_workers, memory_resource
from ..config.models import Config
from ..core.errors import BoundsNotMet, InputChanged
from ..core.signals import interruptible
from ..engine import checkpoint, current_config
from ..engine.execute import Executor, run_step
from ..engine.plan import History, Layout, RunResult, Steps, Walker, deleted_inputs, planned
from ..engine.progress import RunProgress
from ..engine.step import BlockReport, Report, Step
from ..engine.task_costs import check_plan
from ..inputs import Source
from ..inputs.consistency import one_state
from ..linalg.component_solve import Solutions
from ..report.findings import most_invalid
from ..report.metrics import Metrics
from ..stages import ingest, write_report
from ..stages.registry import stages_of_run
from ..storage.lock import RunLock
from ..storage.run_group import FIT
from ..storage.store import Store, has_fit
from .expected_time import foreseen, placement
from .layout import layout_of, run_attributes
from .output_file import folders_of_run

if TYPE_CHECKING:
    from distributed import Client

FEWER_POINTS = 0.8
"""Share of the input's rows that are distinct and valid below which the expected seconds are estimated again."""


@dataclass(frozen=True)
class Shared:
    """What a sweep or fit_and_place passes to its runs: an executor, so that the run starts no cluster, and its sizes.

    Steps that are finished in one of the `source_stores` under the same fingerprint are copied from there. `keeps_all`:
    no data are freed, because other runs copy them.
    """

    executor: Executor
    layout: Layout
    source_stores: tuple[Store, ...] = ()
    keeps_all: bool = False


def run_store(
    config: Config,
    store: Store,
    fresh: bool,
    progress: RunProgress,
    profile: bool,
    history: History,
    closing: contextlib.ExitStack,
    shared: Shared | None = None,
) -> RunResult:
    """Run every stage in one store. `closing` receives the cluster if the run succeeds."""
    started = time.perf_counter()
    source = ingest.open_input(config)
    resumed = not fresh and store.can_resume()
    earlier = next(iter([*([store] if resumed else []), *history.source_stores]), None)
    layout = shared.layout if shared else layout_of(config, source, earlier)
    steps, _ = planned(stages_of_run(config), layout)
    announcement, seconds = ("", dict[str, float]()) if shared else foreseen(config, steps)
    if not resumed and not shared:
        check_plan(steps, memory_of_task(config.execution.cluster))
        if announcement:
            progress.print_line(announcement)
    if not resumed:
        _require_gpu(config)
    with begun(config, source, store, fresh, history, progress, started) as finished_steps:
        if shared is None:
            progress.start(store, seconds)
        placed = placement(config.execution.cluster, steps, needs_workers=profile)
        with contextlib.ExitStack() as opened:
            executor = shared.executor if shared else opened.enter_context(executing(progress, *placed))
            keeps_all = shared is not None and shared.keeps_all
            run = StageRun(store, executor, progress, finished_steps, keeps_all, history=history)
            unchanging = one_state(source, partial(ingest.open_input, config))
            with unchanging, profiled(run) if profile else contextlib.nullcontext():
                unmet = _run_stages(config, layout, run, shared is None)
            # Not reached after an error: then the cluster closes here, before the lock is released.
            closing.push(opened.pop_all())
        result = result_of(store, progress, started)
    require_met(unmet, result)
    return replace(result, unchanged=unmet is None)


def _require_gpu(config: Config) -> None:
    """Raise ConfigError if this process needs a GPU for the eigensolver and has none: now, not after the search."""
    needed = config.eigensolver.device == "gpu" and config.method != "pca"
    if needed and memory_resource(config.execution.cluster) is None:
        from ..kernels.eigensolver.device import gpu  # numba, and CuPy

        gpu()


@contextlib.contextmanager
def begun(
    config: Config, source: Source, store: Store, fresh: bool, history: History, progress: RunProgress, started: float
) -> Iterator[set[str]]:
    """Context of the stages of a run, which holds the lock of its store; yields the set of finished steps, still empty.

    If a missed bound stops the run, metrics.json is written from the finished steps. At the end the record of the run's
    progress is deleted. Raises ConfigError if `fresh` would erase other files.
    """
    if fresh:
        store.may_erase()
    with interruptible(), RunLock(store):
        _begin_store(config, source, store, fresh, history, progress)
        finished_steps = set[str]()
        try:
            yield finished_steps
        except BoundsNotMet as error:
            current_config.add_finished_steps(store, finished_steps)
            write_report.write_metrics(store, time.perf_counter() - started, finished_steps, error.args[0])
            error.result = result_of(store, progress, started)
            error.advice = "the run stopped here, before the embedding"
            raise
        finally:
            progress.leave_store()


def _begin_store(
    config: Config, source: Source, store: Store, fresh: bool, history: History, progress: RunProgress
) -> None:
    """Prepare the store: erase it if `fresh`, remove partial files, write the group with the resolved config."""
    if not fresh and store.mend({FIT: {}} if store.objects.names(FIT) else {}):
        progress.print_line(f"{store.url}: its zarr.json was damaged and is written again; finished blocks are kept")
    if fresh or (store.is_run() and has_fit(store) != (FIT in history.attributes)):
        store.erase()
    store.objects.delete_partial_files()
    identity = run_attributes(config, source)
    if not fresh and store.is_run():
        current_config.begin_run(store, identity["config"], identity["input_fingerprint"])
    store.create_group({**identity, "folders": folders_of_run(store.url), **history.attributes})


def result_of(store: Store, progress: RunProgress, started: float) -> RunResult:
    """The result of a run that began at `started` (perf_counter), from its metrics.json."""
    metrics = store.metrics() or {}
    return RunResult(store.url, metrics, progress.computed, progress.reused, time.perf_counter() - started)


def require_met(unmet: str | None, result: RunResult) -> None:
    """Raises BoundsNotMet, with the result of a complete run, if there is a text about bounds that were not met."""
    if unmet:
        error = BoundsNotMet(unmet)
        error.result = result
        raise error


@contextlib.contextmanager
def executing(progress: RunProgress, cluster: Section, n_threads: int = 1) -> Iterator[Executor]:
    """An executor on the cluster of a config, which is closed at the end; without one, `n_threads` compute blocks."""

    def start() -> "Client | None":
        if (client := opened.enter_context(connect(cluster))) is not None:
            progress.print_line(f"dashboard: {client.dashboard_link}")
        return client

    with contextlib.ExitStack() as opened:
        limits = memory_of_workers(cluster), memory_of_high_memory(cluster)
        yield Executor(None, memory_resource(cluster), *limits, n_threads, start)


@contextlib.contextmanager
def profiled(run: "StageRun") -> Iterator[None]:
    """Save Dask's performance report of the `with` block, which writes the report of the run before."""
    run.executor.start()
    if run.executor.client is None:
        yield
        run.progress.print_line("performance: the run had no workers (kind: serial), so there is nothing to show")
        return
    from distributed import performance_report

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "performance.html"
        with performance_report(filename=str(page), mode="inline"):  # inline: the page works without a network
            yield
        run.store.objects.put("report/performance.html", page.read_bytes())
    run.progress.print_line(f"performance: {run.store.url}/report/performance.html")


@dataclass
class StageRun(Walker):
    """Runs the steps of the stages. `keeps_all`: as in `Shared`.

    Attributes:
        unmet: bounds that were not met, as a text.
        retry: markers to delete at the end, so that the next run computes these blocks again.
        digests: of everything read so far.
        of_stage: the steps of the stage so far, each with the fingerprint that it depends on.
    """

    store: Store
    executor: Executor
    progress: RunProgress
    finished_steps: set[str] = field(default_factory=set)
    keeps_all: bool = False
    unmet: str = ""
    peak_bytes: int = 0
    retry: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    of_stage: list[tuple[Step[Report], str]] = field(default_factory=list)

    def walk_stage(self, name: str, steps: Steps) -> Layout:
        """Run the steps of a stage, and delete its other steps from the store."""
        self.peak_bytes, self.of_stage = 0, []
        started = time.perf_counter()
        layout = self.drive(steps)
        checkpoint.delete_unused_steps(self.store, name, {step.key for step, _ in self.of_stage})
        current_config.add_finished_steps(self.store, self.finished_steps)
        self.progress.end_stage(name, time.perf_counter() - started, self.peak_bytes)
        return layout

    def drive(self, steps: Steps) -> Layout:
        try:
            return super().drive(steps)
        except InputChanged:  # raised by a task or the stage: blocks of this step come from two states of the input
            checkpoint.delete_step_record(self.store, self.steps[-1].key)
            raise

    def visit(self, step: Step[Report]) -> list[Report]:
        reports = super().visit(step)
        if text := _unmet(step, reports):
            self.unmet = text
            self.retry = [
                checkpoint.marker_name(step.key, block)
                for block, report in enumerate(reports)
                if isinstance(report, Solutions) and not all(part.converged for part in report.components)
            ]
            # The next run computes these blocks again. It must not reuse later steps of this run, so their fingerprints
            # are those of no other run.
            self.upstream = f"{self.upstream}-{time.time_ns()}"
        return reports

    def reports_of(self, step: Step[Report]) -> list[Report]:
        """Run one step, or take its blocks from the store."""
        step = checkpoint.with_records(self.store, step)
        computed_before = self.progress.computed.get(step.stage, 0)
        results = self._run_step(step, self.upstream)
        self.of_stage.append((step, self.upstream))
        self.finished_steps.add(step.key)
        self.peak_bytes = max([self.peak_bytes, *(result.peak_bytes for result in results)])
        reports = [result.report for result in results]
        if self.progress.computed.get(step.stage, 0) > computed_before:
            for text in filter(None, (report.message for report in reports)):
                self.progress.print_line(text)
        if step.task.locations:
            self.digests += [report.digest for report in reports if report.digest]
        return reports

    def _run_step(self, step: Step[Report], upstream: str) -> list[BlockReport[Report]]:
        """Run a step, and delete the data of the stage's earlier steps that no later step reads."""
        results = run_step(
            step,
            upstream,
            self.store,
            self.executor,
            self.progress,
            self.finished_steps,
            self.history.source_stores,
            partial(self._restore, step),
        )
        for writer, _ in self.of_stage if step.deletes and not self.keeps_all else ():
            if names := writer.written.intersection(step.deletes):
                checkpoint.delete_data(self.store, writer.key, names)
        return results

    def _restore(self, reader: Step[Report]) -> None:
        """Compute deleted data of the stage again that an unfinished step may read."""
        before = list(takewhile(lambda entry: entry[0].key != reader.key, self.of_stage))
        steps = [step for step, _ in before]
        for number in deleted_inputs(list(zip(steps, checkpoint.deleted_data(self.store, steps), strict=True))):
            step, upstream = before[number]
            self.progress.computed_again(step)
            checkpoint.delete_markers(self.store, step.key)
            self._run_step(step, upstream)


def _run_stages(config: Config, layout: Layout, run: StageRun, is_whole: bool) -> str | None:
    """Run every stage; returns a text about bounds that were not met, empty if all were.

    Returns None, without running the later stages, if the input equals that of the published version. If far fewer rows
    are left after ingest, the expected seconds are estimated again. `is_whole`: no other stages follow these.
    """
    stages = stages_of_run(config)
    for name, stage in stages.items():
        layout = run.walk_stage(name, stage(layout))
        if run.history.is_known(run.store, name, run.digests):
            return None
        if is_whole and name == "ingest" and layout.n_points < FEWER_POINTS * layout.n_input:
            rest, _ = planned({key: stages[key] for key in stages if key != "ingest"}, layout)
            run.progress.time_left.expect(foreseen(config, rest)[1])
    run.store.objects.delete_objects(run.retry)  # only after the report, which shows the residuals of these blocks
    lost = lost_rows(Metrics.read(run.store.metrics() or {}), config.output.min_rows)
    current_config.delete_leftovers(run.store, run.finished_steps)
    current_config.end_run(run.store)
    return "\n".join(filter(None, [run.unmet, lost]))


def lost_rows(metrics: Metrics, min_rows: float) -> str:
    """A message if less than the share `min_rows` of the input's rows has coordinates; empty otherwise."""
    n_rows, dropped = metrics.n_input, metrics.dropped or {}
    n_lost = sum(dropped.values())
    if n_rows - n_lost >= min_rows * n_rows:
        return ""
    reason = max(dropped, key=dropped.__getitem__)
    cause, cures = "in components that were not embedded", "set graph.components to separate or connect"
    if reason == "invalid":
        cause = f"with NaN or infinity{most_invalid(metrics)}"
        cures = "leave columns with many of them out with input.columns, fill the gaps"
    return (
        f"rows: output.min_rows is {min_rows:g}, and only {n_rows - n_lost:,} of {n_rows:,} rows have coordinates; "
        f"{dropped[reason]:,} are rows {cause}; {cures}, or lower min_rows. The run is complete"
    )


def _unmet(step: Step[Report], reports: list[Report]) -> str:
    """A message for each component whose eigenpairs did not converge: its residuals, and what to change."""
    lines, parameters = [], step.task.parameters
    solved = [part for report in reports if isinstance(report, Solutions) for part in report.components]
    for number, solution in enumerate(solved):
        if not solution.converged:
            residuals = ", ".join(f"{residual:.2e}" for residual in solution.residuals)
            advice = "Raise eigensolver.tol or max_memory, or choose another eigensolver.method"
            if solution.stats["method"].startswith("multigrid"):
                advice = (
                    f"Set weights.reg to auto or raise it (lle, modified), or raise eigensolver.max_steps (now "
                    f"{parameters['max_steps']:,}): the next run continues where this one stopped; or raise "
                    f"eigensolver.tol or max_memory"
                )
            lines.append(
                f"eigensolver: component {number} did not reach eigensolver.tol {parameters['tol']:g}: residuals "
                f"{residuals} ({solution.stats['reason']}). The run is complete, with the best vectors. {advice}"
            )
    return "\n".join(lines)
