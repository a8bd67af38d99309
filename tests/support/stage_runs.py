"""Run some stages one after the other on a separate store."""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import dask

from lle.config.models import Config
from lle.engine.execute import Executor, run_step
from lle.engine.plan import Layout, Walker
from lle.engine.step import BlockReport, Report, Step
from lle.stages import ingest, registry
from lle.storage.store import Store

STAGES = tuple(registry.STAGES)


class Progress:
    """Records all events."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.advanced: list[int] = []
        self.ended: list[tuple[str, int]] = []

    def begin(self, step: Step[Report], n_done: int, state: Callable[[], object] | None = None) -> None:
        self.begun.append((step.name, n_done))

    def advance(self, step: Step[Report], report: BlockReport[Report]) -> None:
        self.advanced.append(report.block)

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        self.ended.append((step.name, computed))


class StagesRun(NamedTuple):
    """Result of some stages: the store, the layout, and the reports of each (stage, step) in block order."""

    store: Store
    layout: Layout
    reports: dict[str, list[Report]]


def drive_stage(
    name: str,
    config: Config,
    layout: Layout,
    store: Store,
    executor: Executor,
    upstream: str,
    finished_steps: set[str] | None,
) -> tuple[StagesRun, str]:
    """Run the steps of one stage on a store as a run does; also returns the fingerprint for the next stage."""
    steps = import_module(f"lle.stages.{name}").steps(config, layout)
    reports: dict[str, list[Report]] = {}

    class Run(Walker):
        def reports_of(self, step: Step[Report]) -> list[Report]:
            with dask.config.set(scheduler="synchronous" if executor.client is None else "distributed"):
                blocks = run_step(step, self.upstream, store, executor, Progress(), finished_steps)
            if finished_steps is not None:
                finished_steps.add(step.key)
            reports[step.key] = [block.report for block in blocks]
            return reports[step.key]

    run = Run()
    run.upstream = upstream
    layout = run.drive(steps)
    return StagesRun(store, layout, reports), run.upstream


def drive_stages(config: Config, upto: str, executor: Executor | None = None) -> StagesRun:
    """Run the stages from ingest to `upto`; an existing store is resumed."""
    store = Store(config.output.store)
    store.create_group({})
    layout = ingest.first_layout(config, ingest.open_input(config))
    reports: dict[str, list[Report]] = {}
    upstream, finished_steps = "", set[str]()
    for name in STAGES[: STAGES.index(upto) + 1]:
        run, upstream = drive_stage(name, config, layout, store, executor or Executor(None), upstream, finished_steps)
        layout, reports = run.layout, reports | run.reports
    return StagesRun(store, layout, reports)
