"""The steps that place the rows of a run with input.fit_sample, before it (`lle plan`); nothing is computed."""

from collections import Counter
from typing import NamedTuple

from ..clusters.limits import memory_of_workers
from ..config.models import Config
from ..engine import checkpoint, current_config, plan_sizes, task_costs
from ..engine.plan import Layout, Report, Step, walk
from ..inputs import Source
from ..stages import embed_new, ingest, write_report
from ..stages.registry import stages_of_run
from ..storage.fitted import fitted_store, has_fit
from ..storage.store import Store
from .expected_time import announcement
from .fit_and_place import config_of_fit, job_of_placing, open_all_rows, steps
from .layout import run_attributes


class PlacingForecast(NamedTuple):
    """Steps with the number of their finished blocks, their layout, and the counts of fitted and placed rows."""

    steps: list[tuple[Step, int]]
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
    reuse = _Reuse(config, store, source) if fitted is not None else None
    stages = {
        "transform": lambda _, layout: steps(config, job, layout, source),
        "write_report": lambda _, layout: write_report.steps(config, layout),
    }
    planned, sizes = walk(stages, job, sizes, None if reuse is None else reuse.finished_reports)
    return PlacingForecast([(step, reuse.n_done[step.key] if reuse else 0) for step in planned], sizes, counts)


def announced_placing(config: Config, first_layout: Layout) -> str:
    """A line for the log of a new run: the expected seconds of a fit with this layout, and of the placing."""
    fitting, layout = walk(stages_of_run(config), config_of_fit(config), first_layout)
    placing = forecast_placing(config, layout, fit_is_done=False)
    n_steps = Counter(step.stage for step in fitting if step.stage != "write_report")
    n_steps.update(step.stage for step, _ in placing.steps)
    return announcement(config, layout, n_steps, placing.layout)


class _Reuse:
    """The blocks of each step that an earlier run has finished."""

    def __init__(self, config: Config, store: Store, source: Source) -> None:
        self.store, self.n_done = store, dict[tuple[str, str], int]()
        self._attributes = {**store.attributes(), **run_attributes(config, source)}
        self._upstream, self._all_done = "", True

    def finished_reports(self, step: Step) -> list[Report] | None:
        """The reports of a finished step, None if a block is missing."""
        if self._all_done:
            step = checkpoint.with_records(self.store, step, self._attributes)
        fingerprint = checkpoint.fingerprint_of(self._upstream, step)
        reports = checkpoint.finished_blocks(self.store, step.stage, step.name, fingerprint)
        self.n_done[step.key] = len(reports)
        self._all_done &= len(reports) == step.n_blocks
        if step.feeds:
            self._upstream = fingerprint
        return [reports[block].report for block in sorted(reports)] if len(reports) == step.n_blocks else None


def _planned_job(config: Config, layout: Layout, source: Source) -> embed_new.Job:
    """The job of placing before the fit: sizes that `lle plan` can know."""
    kind, parameters = ingest.all_rows(config)
    return embed_new.Job(
        run="", run_state={}, kind=kind, source=ingest.without_labels(parameters), source_state=source.fingerprint(),
        n_neighbors=config.neighbors.n_neighbors, reg=0.0, rule=config.weights.rule, seed=config.quality.seed,
        n_embedded=0, n_coordinates=config.eigensolver.n_components, n_features_input=source.n_features,
        dtype_input=layout.dtype, transform=config.preprocess.scale != "none" or config.preprocess.pca is not None,
        unit=config.neighbors.metric == "cosine",
        n_boxes=plan_sizes.max_boxes(plan_sizes.n_cells(layout.n_points), layout.point_blocks()),
        stored_block=layout.block_points, max_ratio=None, far_as_nan=False,
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
    return task_costs.fit_blocks({"transform": embed_new.steps}, job, layout, limit)
