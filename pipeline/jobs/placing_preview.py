"""The steps that place the rows of a run with input.fit_sample, before it (`lle plan`); nothing is computed."""

from collections.abc import Sequence
from typing import NamedTuple

from ..config.load import resolved
from ..config.models import Config
from ..engine import checkpoint, current_config
from ..engine.plan import History, Layout, Walker, planned
from ..engine.step import BlockReport, Json, Report, Step
from ..stages import write_report
from ..stages.registry import stages_of_run
from ..storage.store import Store, fitted_store, has_fit
from .expected_time import foreseen
from .layout import run_attributes
from .placing import Fit, config_of_fit, fit_of, job_of_all_rows, layout_of_placing, open_all_rows, steps


class PlacingForecast(NamedTuple):
    """Steps with the number of their finished blocks, and the counts of fitted and placed rows."""

    steps: list[tuple[Step[Report], int]]
    counts: dict[str, int]


def forecast_placing(config: Config, layout: Layout, fit_is_done: bool) -> PlacingForecast:
    """The steps after a fit that ends with `layout`. Blocks are reused only if every step of the fit is done."""
    source = open_all_rows(config)
    store = Store(config.output.store)
    finished = fit_is_done and store.is_run() and has_fit(store)
    fitted = fitted_store(store) if finished else None
    if fitted is not None and current_config.embedding_record(fitted) is None:
        fitted = None
    planned_fit = Fit(resolved(config), layout, layout.dtype, config.eigensolver.n_components, {})
    fit = planned_fit if fitted is None else fit_of(fitted)
    job = job_of_all_rows(config, fit, source)
    sizes = layout_of_placing(fit, job, source, config.execution)
    counts = {"rows_fitted": layout.n_input, "rows_placed": source.n_rows - layout.n_input}
    preview = FinishedBlocks([] if fitted is None else [store], {**store.attributes(), **run_attributes(config, source)}
                             if fitted is not None else {})  # fmt: skip
    sizes = preview.drive(steps(config, job, sizes, source))
    preview.drive(write_report.steps(config, sizes))
    return PlacingForecast([(step, preview.n_done[step.key]) for step in preview.steps], counts)


def foreseen_placing(config: Config, first_layout: Layout) -> tuple[str, dict[str, float]]:
    """A line for the log of a run that takes long, and the expected seconds of each step of its fit and its placing."""
    fitting, layout = planned(stages_of_run(config_of_fit(config)), first_layout)
    placing = forecast_placing(config, layout, fit_is_done=False)
    all_steps = [step for step in fitting if step.stage != "write_report"] + [step for step, _ in placing.steps]
    return foreseen(config, all_steps)


class FinishedBlocks(Walker):
    """Looks up the blocks of each step that are finished in `stores`; nothing is computed or changed.

    `attributes` are those that the next run gives to the first store; empty if that store is not its own.

    Attributes:
        n_done: number of finished blocks of each step.
        all_done: whether all blocks of the steps so far are finished.
        holder: the store with most finished blocks of the last step, None if there is none.
    """

    def __init__(self, stores: Sequence[Store], attributes: Json, history: History | None = None) -> None:
        super().__init__(history)
        self.stores, self.attributes = list(stores), attributes
        self.n_done, self.all_done = dict[str, int](), True
        self.holder: Store | None = None

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
