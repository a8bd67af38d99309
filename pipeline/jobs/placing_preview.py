"""The steps that place the rows of a run with input.fit_sample, before it (`lle plan`); nothing is computed."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..clusters.limits import memory_of_workers
from ..config.models import Config
from ..engine import checkpoint, current_config, plan_sizes, task_costs
from ..engine.plan import History, Layout, Walker, planned
from ..engine.step import BlockReport, Json, Report, Step
from ..inputs import Source
from ..stages import embed_new, ingest, write_report
from ..stages.registry import stages_of_run
from ..storage.store import Store, fitted_store, has_fit
from .expected_time import announcement, expected_steps
from .fit_and_place import config_of_fit, job_of_placing, open_all_rows, steps
from .layout import run_attributes


class PlacingForecast(NamedTuple):
    """Steps with the number of their finished blocks, their layout, and the counts of fitted and placed rows."""

    steps: list[tuple[Step[Report], int]]
    layout: Layout
    counts: dict[str, int]


def forecast_placing(config: Config, layout: Layout, fit_is_done: bool) -> PlacingForecast:
    """The steps after a fit that ends with `layout`. Blocks are reused only if every step of the fit is done."""
    source = open_all_rows(config)
    store = Store(config.output.store)
    finished = fit_is_done and store.is_run() and has_fit(store)
    fitted = fitted_store(store) if finished else None
    if fitted is not None and current_config.embedding_record(fitted) is not None:
        job = job_of_placing(config, fitted, source)
    else:
        fitted, job = None, _planned_job(config, layout, source)
    sizes = _layout(config, job, layout, source)
    counts = {"rows_fitted": layout.n_input, "rows_placed": source.n_rows - layout.n_input}
    preview = FinishedBlocks([] if fitted is None else [store], {**store.attributes(), **run_attributes(config, source)}
                             if fitted is not None else {})  # fmt: skip
    sizes = preview.drive(steps(config, job, sizes, source))
    sizes = preview.drive(write_report.steps(config, sizes))
    return PlacingForecast([(step, preview.n_done[step.key]) for step in preview.steps], sizes, counts)


def foreseen_placing(config: Config, first_layout: Layout) -> tuple[str, dict[str, float]]:
    """A line for the log of a run that takes long, and the expected seconds of each step of its fit and its placing."""
    fitting, layout = planned(stages_of_run(config_of_fit(config)), first_layout)
    placing = forecast_placing(config, layout, fit_is_done=False)
    all_steps = [step for step in fitting if step.stage != "write_report"] + [step for step, _ in placing.steps]
    return announcement(config, all_steps), expected_steps(config, all_steps)


class FinishedBlocks(Walker):
    """Looks up the blocks of each step that are finished in `stores`; nothing is computed or changed.

    `attributes` are those that the next run gives to the first store; empty if that store is not its own.

    Attributes:
        n_done: number of finished blocks of each step.
        all_done: whether all blocks of the steps so far are finished.
    """

    def __init__(self, stores: Sequence[Store], attributes: Json, history: History | None = None) -> None:
        super().__init__(history)
        self.stores, self.attributes = list(stores), attributes
        self.n_done, self.all_done = dict[str, int](), True

    def reports_of(self, step: Step[Report]) -> list[Report] | None:
        if self.all_done and self.attributes:
            step = checkpoint.with_records(self.stores[0], step, self.attributes, self.n_done)
        holder, finished = self.best_of(step)
        self.n_done[step.key] = len(finished)
        self.all_done &= len(finished) == step.n_blocks
        self.looked_up(step, holder, len(finished) == step.n_blocks)
        return [finished[block].report for block in sorted(finished)] if len(finished) == step.n_blocks else None

    def best_of(self, step: Step[Report]) -> tuple[Store | None, dict[int, BlockReport[Report]]]:
        """The store with most finished blocks of a step, None if there is none, and their reports."""
        fingerprint = step.fingerprint(self.upstream)
        found = [(store, checkpoint.finished_reports(store, step, fingerprint)) for store in self.stores]
        return max([(None, {}), *found], key=lambda entry: len(entry[1]))

    def looked_up(self, step: Step[Report], holder: Store | None, is_done: bool) -> None:
        """Called for each step, with the store that has its blocks."""


def _planned_job(config: Config, layout: Layout, source: Source) -> embed_new.Job:
    """The job of placing before the fit: sizes that `lle plan` can know."""
    kind, parameters = ingest.all_rows(config)
    placement = embed_new.Placement(
        kind, ingest.without_labels(parameters), layout.dtype,
        transform=config.preprocess.scale != "none" or config.preprocess.pca is not None,
        unit=config.neighbors.metric == "cosine", n_neighbors=config.neighbors.n_neighbors, reg=0.0,
        rule=config.weights.rule, n_embedded=0, far_as_nan=False,
    )  # fmt: skip
    boxes = plan_sizes.max_boxes(plan_sizes.n_cells(layout.n_points), layout.point_blocks())
    return embed_new.Job(
        "", {}, placement, source.fingerprint(), config.quality.seed, config.eigensolver.n_components,
        source.n_features, boxes, stored_block=layout.block_points, max_ratio=None,
    )  # fmt: skip


def _layout(config: Config, job: embed_new.Job, fit: Layout, source: Source) -> Layout:
    """Sizes of the placing, with blocks that fit the workers."""
    row = max(source.n_features * source.dtype.itemsize, fit.row_bytes)
    size = plan_sizes.block_points(config.execution.block_points, source.n_rows, row)
    layout = Layout(
        source.n_rows, source.n_features, fit.dtype, size, n_points=fit.n_points, n_features=fit.n_features,
        k_max=fit.k_max,
    )  # fmt: skip
    if config.execution.block_points != "auto":
        return layout
    limit = memory_of_workers(config.execution.cluster)
    return task_costs.fit_blocks({"transform": partial(embed_new.steps, job)}, layout, limit)
