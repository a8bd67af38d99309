"""A run from its config to its report: the stages in order, resuming what is there."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipeline.clusters.connect import (
    Section,
    connect,
    memory_of_high_memory,
    memory_of_workers,
    memory_resource,
    performance,
)
from pipeline.config.models import Cluster, Config, resolved
from pipeline.core.errors import BoundsNotMet, InputChanged
from pipeline.core.machine import versions
from pipeline.core.signals import interruptible
from pipeline.engine import checkpoint, current_config
from pipeline.engine.execute import Executor, run_step
from pipeline.engine.plan import BlockReport, Layout, RunResult, Step
from pipeline.engine.progress import RunProgress
from pipeline.jobs.layout import check_plan, choose_layout
from pipeline.jobs.reprocess import History, reprocess
from pipeline.report.prometheus import reported
from pipeline.search.shorter_lists import cut_step
from pipeline.stages import (
    ingest,
    write_report,
)
from pipeline.stages.registry import METHOD_ARRAYS, stages_of
from pipeline.storage.lock import RunLock, wait_for_lock
from pipeline.storage.store import Store
from pipeline.storage.versions import Versions


@dataclass(frozen=True)
class Shared:
    """What a run of a sweep has from outside: an executor instead of a cluster of its own, and its sizes.

    Steps that one of the stores `donors` has under the same fingerprint are taken from there.
    """

    executor: Executor
    layout: Layout
    donors: tuple[Store, ...] = ()


def run(
    config: Config, fresh: bool, progress: RunProgress, profile: bool = False, shared: Shared | None = None
) -> RunResult:
    """Run every stage. Raises LleError with the exit code of what went wrong; finished blocks are kept.

    `profile` saves Dask's performance report of the run beside its own.
    """
    versioned = config.output.keep is not None

    def published() -> dict[str, Any] | None:
        return Versions(config.output.store).pointer() if versioned else None

    def once() -> RunResult:
        if versioned:
            return _run_version(config, fresh, progress, profile, closing)
        history = History()
        history.donors = shared.donors if shared else ()
        return _run(config, Store(config.output.store), fresh, progress, profile, history, closing, shared)

    with (
        reported(config.output.prometheus, config.output.store, published) as report,
        contextlib.ExitStack() as closing,  # the cluster of a good run closes after its version is published
    ):
        result = wait_for_lock(once, config.execution.lock_wait, progress.say)
        report(result)
    return result


def _run_version(
    config: Config, fresh: bool, progress: RunProgress, profile: bool, closing: contextlib.ExitStack
) -> RunResult:
    def work(store: Store, history: History) -> RunResult:
        return _run(config, store, False, progress, profile, history, closing)

    with interruptible():
        return reprocess(config, ingest.open_input(config), fresh, work, progress.say)


def _run(
    config: Config, store: Store, fresh: bool, progress: RunProgress, profile: bool, history: History,
    closing: contextlib.ExitStack, shared: Shared | None = None,
) -> RunResult:  # fmt: skip
    started = time.perf_counter()
    source = ingest.open_input(config)
    if fresh:
        store.may_erase()
    resumed = not fresh and store.is_run()
    earlier = next(iter([*([store] if resumed else []), *history.donors]), None)
    layout = history.begun(shared.layout if shared else choose_layout(config, source, earlier), progress.say)
    if not resumed and not shared:
        check_plan(config, layout)
    with interruptible(), RunLock(store):
        if fresh:
            store.erase()
        store.objects.sweep()
        identity = {"config": resolved(config), "input_fingerprint": source.fingerprint(), "versions": versions()}
        if not fresh and store.is_run():
            current_config.begin_run(store, identity["config"], identity["input_fingerprint"])
        store.create_group({**identity, **history.attributes})
        done = set[tuple[str, str]]()
        try:
            cluster = _worthwhile(config.execution.cluster, layout)
            with contextlib.ExitStack() as opened:
                executor = shared.executor if shared else opened.enter_context(executing(cluster, progress))
                with performance(executor.client if profile else None) as profiled:
                    unmet = _run_stages(config, layout, store, executor, progress, history, done)
                closing.push(opened.pop_all())
            if profile:
                _save_profile(store, profiled, progress)
        except BoundsNotMet as missed:
            current_config.got_to(store, done)
            write_report.write_metrics(store, time.perf_counter() - started, done)
            missed.result = _result(store, progress, started)
            raise
        finally:
            progress.stop()
        result = _result(store, progress, started)
    if unmet:
        late = BoundsNotMet(unmet)
        late.result = result
        raise late
    return replace(result, unchanged=unmet is None)


def _result(store: Store, progress: RunProgress, started: float) -> RunResult:
    metrics = store.get_json("report/metrics.json") or {}
    return RunResult(store.url, metrics, progress.computed, progress.reused, time.perf_counter() - started)


@contextlib.contextmanager
def executing(cluster: Section, progress: RunProgress) -> Iterator[Executor]:
    """An executor on the cluster of a config, which is closed at the end."""
    with connect(cluster) as client:
        if client is not None:
            progress.say(f"dashboard: {client.dashboard_link}")
        yield Executor(client, memory_resource(cluster), memory_of_workers(cluster), memory_of_high_memory(cluster))


def _save_profile(store: Store, profiled: list[bytes], progress: RunProgress) -> None:
    """Dask's performance report, after the run's own, which replaces the folder."""
    for page in profiled:
        store.objects.put("report/performance.html", page)
        progress.say(f"performance: {store.url}/report/performance.html")
    if not profiled:
        progress.say("performance: the run had no workers (kind: serial, or one block), so there is nothing to show")


def _worthwhile(cluster: Section, layout: Layout) -> Section:
    """Serial instead of a local cluster for a single block: starting workers would take longer than the work."""
    alone = cluster.kind == "local" and cluster.workers == "auto" and layout.input_blocks() == 1
    return Cluster(kind="serial") if alone else cluster


def _run_stages(
    config: Config, layout: Layout, store: Store, executor: Executor, progress: RunProgress, history: History,
    before: set[tuple[str, str]],
) -> str | None:  # fmt: skip
    """Drive every stage's steps; returns what the solver did not reach, empty when all is met.

    None when the input turned out to be that of the published version: nothing more is computed then. The steps done
    are added to `before`.
    """
    upstream, unmet, digests, again = "", "", list[str](), list[str]()
    for name, stage in stages_of(config.method).items():
        steps, used = stage(config, layout), set()
        started, peak_bytes = time.perf_counter(), 0
        try:
            step = next(steps)
            while True:
                used.add(step.name)
                step = checkpoint.with_records(store, history.prepared(step))
                step = cut_step(step, upstream, history.donors)
                reports = run_step(step, upstream, store, executor, progress, before, history.donors)
                before.add((step.stage, step.name))
                peak_bytes = max([peak_bytes, *(report.peak_bytes for report in reports)])
                found = [report.report for report in reports]
                for text in filter(None, (report.get("says") for report in found)):
                    progress.say(text)
                digests += [report["digest"] for report in found if step.digested and "digest" in report]
                if step.feeds:
                    upstream = history.chained(upstream, step, found)
                if text := _unmet(step, reports):
                    unmet = text
                    again = [checkpoint.marker_name(step.stage, step.name, report.block)
                             for report in reports if not report.report["converged"]]  # fmt: skip
                    upstream = f"{upstream}-{time.time_ns()}"  # what rests on it is computed again too
                step = steps.send(found)
        except InputChanged:  # blocks of two states, under the name of one that may come back
            checkpoint.forget_step(store, step.stage, step.name)
            raise
        except StopIteration as stop:
            layout = stop.value
        checkpoint.forget_unused(store, name, used)
        current_config.got_to(store, before)
        progress.end_stage(name, time.perf_counter() - started, peak_bytes)
        if history.is_known(store, name, digests):
            return None
    for marker in again:  # after the report, which says how far it got; the next run tries again
        store.objects.delete(marker)
    checkpoint.delete_unrecorded(store, METHOD_ARRAYS)
    current_config.end_run(store)
    return unmet


def _unmet(step: Step, reports: list[BlockReport]) -> str:
    """A sentence for every component whose eigenpairs did not converge: what was reached, what to change."""
    if (step.stage, step.name) != ("solve_embedding", "solve"):
        return ""
    lines = []
    for number, report in enumerate(report.report for report in reports):
        if not report["converged"]:
            reached = ", ".join(f"{residual:.2e}" for residual in report["residuals"])
            cure = "Raise eigensolver.tol or max_memory, or choose another eigensolver.method"
            if report["stats"]["method"] == "chebyshev":
                cure = (
                    f"Raise eigensolver.max_degrees (now {step.resources['max_degrees']:,}): the next run goes on from "
                    f"where this one stopped; or raise eigensolver.tol or max_memory"
                )
            lines.append(
                f"eigensolver: component {number} did not reach eigensolver.tol {step.parameters['tol']:g}: residuals "
                f"{reached} ({report['stats']['reason']}). The vectors reached are stored. {cure}"
            )
    return "\n".join(lines)
