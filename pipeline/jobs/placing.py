"""The steps that place new rows among the fitted ones, for `lle transform` and for a run with input.fit_sample."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from ..clusters.limits import memory_of_task, memory_of_workers
from ..config.models import Config, Execution
from ..core.errors import DamagedStore
from ..engine import checkpoint, current_config, plan_sizes, task_costs
from ..engine.plan import Layout, Steps, planned
from ..engine.step import Json, Report, Step
from ..inputs import Source, open_source
from ..inputs.consistency import require_unchanged_input
from ..linalg.reg_step import reg_of_run
from ..stages import embed_new, ingest
from ..stages.embed_new import Fit
from ..stages.ingest_ids import read_ids_step
from ..stages.solve_embedding import ChosenComponents
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.run_group import FIT
from ..storage.store import Store, block_of
from .run_stages import StageRun


def fit_of(run: Store) -> Fit:
    """The fit of a run. Raises ConfigError if there is no finished embedding."""
    state, config = state_of(run), run.attributes()["config"]
    points, input_dtype = run.array(array_specs.POINTS.name), run.array(array_specs.RAW.name).dtype.name
    (n, d), k_max = points.shape, run.array(array_specs.NEIGHBOR_INDICES.name).shape[1]
    layout = Layout(0, 0, points.dtype.name, block_of(points), n_points=n, n_features=d, k_max=k_max)
    n_coordinates, n_embedded = run.array(array_specs.EMBEDDING.name).shape[1], 0
    if "solve_embedding.choose" in checkpoint.begun_steps(run):  # not with pca
        reports = checkpoint.reports_of_step(run, "solve_embedding.choose", ChosenComponents)
        if not reports:
            raise DamagedStore(f"{run.url}: the record of solve_embedding.choose is damaged; run its job again")
        n_embedded = reports[0].n_components if reports[0].n_components < reports[0].n_weak else 0
    return Fit(config, layout, input_dtype, n_coordinates, state, run.url, reg_of_run(run, config), n_embedded)


def state_of(run: Store) -> Json:
    """The state of the run's embedding. Raises ConfigError if there is no finished embedding."""
    record = current_config.require_embedding(run)
    return {"fingerprint": record.fingerprint, "begun": record.begun}


def layout_of_placing(job: embed_new.Job, source: Source, execution: Execution, block: int | None = None) -> Layout:
    """Sizes of the placing, with blocks that fit the workers; `block`, of an earlier run, is kept for auto."""
    fitted = job.fit.layout
    row = max(source.n_features * source.dtype.itemsize, fitted.row_bytes)
    requested = execution.block_points
    size = block if block and requested == "auto" else plan_sizes.block_points(requested, source.n_rows, row)
    layout = replace(fitted, n_input=source.n_rows, n_features_input=source.n_features, block_points=size)
    if execution.block_points != "auto":
        return layout
    limits = memory_of_workers(execution.cluster), memory_of_task(execution.cluster)
    return task_costs.fit_blocks({"transform": partial(embed_new.steps, job)}, layout, *limits)


def layout_of_all_rows(config: Config, job: embed_new.Job, source: Source, store: Store | None) -> Layout:
    """Sizes of the placing of all rows of a config, with the block size of an earlier run in `store`."""
    earlier = None if store is None else store.usable_array(array_specs.EMBEDDING.name)
    stored = block_of(earlier) if earlier is not None and earlier.shape[0] == source.n_rows else None
    return layout_of_placing(job, source, config.execution, stored)


def steps_of_job(job: embed_new.Job, layout: Layout) -> list[Step[Report]]:
    return planned({"transform": partial(embed_new.steps, job)}, layout)[0]


@dataclass(kw_only=True)
class PlacingRun(StageRun):
    """Runs the steps that place the rows of `source`; `placed` are the reports of its blocks.

    Raises InputChanged if `reopen` opens other files afterwards, and InputError for rows with NaN if the `config` of
    the run allows none.
    """

    source: Source
    reopen: Callable[[], Source]
    config: Config | None = None
    placed: list[embed_new.PlacedRows] = field(default_factory=list)

    def visit(self, step: Step[Report]) -> list[Report]:
        reports = super().visit(step)
        self.placed = [report for report in reports if isinstance(report, embed_new.PlacedRows)]
        if self.placed:
            blocks = cast(Blocks, step.task.parameters["blocks"])
            require_unchanged_input(self.source, self.reopen(), blocks, [report.state for report in self.placed])
        if self.config is not None:
            invalid = [(report.invalid, report.first_invalid) for report in self.placed]
            zero = ", or all zero" if self.config.neighbors.metric == "cosine" else ""
            note = "; the other rows are placed and kept"
            ingest.check_invalid(invalid, self.config, self.source, zero, note)
        return reports


def config_of_fit(config: Config) -> Config:
    """The config of the run on the sample of input.fit_sample, without a report or a bound on rows of its own."""
    store = f"{Store(config.output.store).url}/{FIT}"
    output = config.output.model_copy(update={"store": store, "report": False, "prometheus": None, "min_rows": 0.0})
    return config.model_copy(update={"output": output})


def open_all_rows(config: Config) -> Source:
    """The input of a config with all its rows. Raises InputError."""
    return open_source(**ingest.all_rows(config))


def job_of_all_rows(config: Config, fit: Fit, source: Source) -> embed_new.Job:
    return embed_new.Job(fit, ingest.without_labels(ingest.all_rows(config)), source.fingerprint())


def steps(config: Config, job: embed_new.Job, layout: Layout, source: Source) -> Steps:
    """read_labels (if the input has labels) -> calibrate -> embed, for all rows of a config."""
    parameters, blocks = ingest.all_rows(config), layout.input_blocks
    bytes_beside = source.bytes_beside(min(blocks.size, blocks.n))
    if source.labels.width:
        yield ingest.labels_step(parameters, blocks, source.labels.width, bytes_beside)
    if parameters.get("id") is not None:
        yield read_ids_step(parameters, blocks, bytes_beside)
    return (yield from embed_new.steps(job, layout))
