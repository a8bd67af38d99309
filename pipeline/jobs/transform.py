"""Place new points in the embedding of a finished run: the steps of stages/embed_new.py, then one output file."""

import os
import time
from dataclasses import asdict, dataclass
from functools import partial

from ..clusters.limits import Section, memory_of_workers
from ..config.models import Cluster, Execution
from ..core.errors import NAMED_ROWS, ConfigError, DamagedStore, InputChanged, OlderVersionRead, StoreError
from ..core.signals import interruptible
from ..engine import checkpoint, current_config, plan_sizes, task_costs
from ..engine.plan import History, Layout, planned
from ..engine.progress import RunProgress
from ..engine.step import Json
from ..inputs import Source
from ..inputs.consistency import require_unchanged_input
from ..linalg.reg_step import reg_of_run
from ..stages import embed_new
from ..stages.solve_embedding import ChosenComponents
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.lock import LOCK, RunLock, wait_for_lock
from ..storage.store import Store, block_of, fitted_store
from ..storage.versions import read_whole
from .export import columns_of_input, export_embedding
from .new_rows import open_new, open_section
from .output_file import PathOrUrl, check_out, refuse_input, suffix_of
from .run_stages import StageRun, executing

WAIT_FOR_OTHERS = 86_400.0  # seconds, for another transform that writes to the same file


@dataclass(frozen=True)
class Transformed:
    """Result of a transform: counts of its rows, and the distance ratio above which a row is far."""

    path: str
    rows: int
    invalid: int
    first_invalid: list[int]
    far: int
    max_ratio: float
    mixed_components: int
    training_points: int
    seconds: float


def transform(
    run_url: str, new: str, settings: tuple[str, ...], out: PathOrUrl, execution: Execution | None,
    max_ratio: float | None, far_as_nan: bool, work_url: str | None, progress: RunProgress, names: tuple[str, ...] = (),
) -> Transformed:  # fmt: skip
    """Embed the rows of `new` and write them to `out` (.npy, .parquet, .arrow or .csv), in the order of the input.

    Columns: row, component, y1, y2, ..., distance_ratio; .npy has y1, y2, ..., distance_ratio. Finished blocks are
    written to a separate store, which is deleted at the end. After a kill the same command continues from it.

    Args:
        settings: key=value pairs of the config's input section.
        execution: None: a single block is computed in this process, more blocks on local workers.
        max_ratio: distance ratio above which a row is far; None: a thousandth of the training points is above it.
        names: further columns of the new table to copy.
        work_url: store for the blocks, if workers cannot write to the folder of `out`.

    Raises:
        ConfigError: the store has no finished embedding.
        InputError: the columns are not those of the run.
        StoreError: the run changed during the transform.
        OlderVersionRead: the rows were placed in an older version, because the published one is damaged.
        InputChanged: the new rows changed during the transform.
    """
    out = os.fspath(out)
    check_out(out)
    seconds = WAIT_FOR_OTHERS if execution is None else execution.lock_wait

    def place(opened: Store) -> Transformed:
        run = fitted_store(opened)
        return wait_for_lock(
            lambda: _transform(run, new, settings, out, execution, max_ratio, far_as_nan, work_url, progress, names),
            seconds, progress.print_line,
        )  # fmt: skip

    done, warning = read_whole(run_url, place)
    if warning:
        raise OlderVersionRead(warning, asdict(done))
    return done


def _transform(
    run: Store, new: str, settings: tuple[str, ...], out: str, execution: Execution | None, max_ratio: float | None,
    far_as_nan: bool, work_url: str | None, progress: RunProgress, names: tuple[str, ...] = (),
) -> Transformed:  # fmt: skip
    started, work, state = time.perf_counter(), Store(work_url or f"{out}.work"), _state_of(run)
    run_config = run.attributes()["config"]
    n_features = int(run.array(array_specs.RAW.name).shape[1])
    section, source = open_new(new, settings, run_config["input"], n_features, run.attributes().get("columns"))
    id_column = source.roles.id if source.roles is not None and suffix_of(out) != ".npy" else None
    further = columns_of_input(source, [*([] if id_column is None else [id_column]), *names], out)
    parameters = section.model_dump(mode="json")
    refuse_input(out, parameters, run_config["input"])
    kind = parameters.pop("kind")
    job = new_rows_job(run, run_config, state, kind, parameters, source, max_ratio, far_as_nan)
    layout, cluster = new_rows_layout(run, job, source, execution)
    _require_own(work)
    with interruptible(), RunLock(work, LOCK, "Wait until it has ended, stop it, or choose another --work"):
        work.create_group({"transform": {"run": run.url, "input": section.model_dump(mode="json")}})
        try:
            with executing(cluster, progress) as executor:
                run_of_blocks = StageRun(work, executor, progress, History(), set())
                run_of_blocks.drive(embed_new.steps(job, layout))
        finally:
            progress.stop()
        try:
            reports = [report for report in run_of_blocks.last_reports if isinstance(report, embed_new.PlacedRows)]
            blocks = Blocks(source.n_rows, layout.block_points)
            require_unchanged_input(source, open_section(section), blocks, [report.state for report in reports])
        except InputChanged:
            checkpoint.delete_step_record(work, "transform.embed")
            raise
        if _state_of(run) != state:
            raise StoreError(f"{run.url}: was computed again during the transform; run the same command again")
        export_embedding(work, out, further)
        work.erase()
    work.objects.delete_empty_folders()
    first = [row for report in reports for row in report.first_invalid][:NAMED_ROWS]
    invalid, far, mixed, coincident = (
        sum(getattr(report, name) for report in reports) for name in ("invalid", "far", "mixed", "coincident")
    )
    return Transformed(
        out, source.n_rows, invalid, first, far, reports[0].limit, mixed, coincident, time.perf_counter() - started
    )


def _state_of(run: Store) -> Json:
    """The state of the run's embedding. Raises ConfigError if there is no finished embedding."""
    record = current_config.require_embedding(run)
    return {"fingerprint": record.fingerprint, "begun": record.begun}


def new_rows_job(
    run: Store, config: Json, state: Json, kind: str, parameters: Json, source: Source, max_ratio: float | None,
    far_as_nan: bool,
) -> embed_new.Job:  # fmt: skip
    """What decides the coordinates of new rows; `kind` and `parameters` open them as `source`."""
    points = run.array(array_specs.POINTS.name)
    blocks = -(-points.shape[0] // block_of(points))
    placement = embed_new.Placement(
        kind, parameters, run.array(array_specs.RAW.name).dtype.name,
        transform=config["preprocess"]["scale"] != "none" or config["preprocess"]["pca"] is not None,
        unit=config["neighbors"]["metric"] == "cosine", n_neighbors=config["neighbors"]["n_neighbors"],
        reg=reg_of_run(run, config), rule=config["weights"]["rule"], n_embedded=_n_embedded(run), far_as_nan=far_as_nan,
    )  # fmt: skip
    return embed_new.Job(
        run.url, state, placement, source.fingerprint(), seed=config["quality"]["seed"],
        n_coordinates=run.array(array_specs.EMBEDDING.name).shape[1], n_features_input=source.n_features,
        n_boxes=plan_sizes.max_boxes(plan_sizes.n_cells(points.shape[0]), blocks), stored_block=block_of(points),
        max_ratio=max_ratio,
    )  # fmt: skip


def _n_embedded(run: Store) -> int:
    """Number of weak components with coordinates; 0 if all points have coordinates."""
    if "solve_embedding.choose" not in checkpoint.begun_steps(run):  # pca
        return 0
    reports = checkpoint.reports_of_step(run, "solve_embedding.choose", ChosenComponents)
    if not reports:
        raise DamagedStore(f"{run.url}: the record of solve_embedding.choose is damaged; run its job again")
    chosen = reports[0]
    return 0 if chosen.n_components == chosen.n_weak else chosen.n_components


def new_rows_layout(
    run: Store, job: embed_new.Job, source: Source, execution: Execution | None, stored_block: int | None = None
) -> tuple[Layout, Section]:
    """Sizes, with blocks that fit the workers, and where to run; `stored_block` is the block size of an earlier run.

    Raises NotEnoughMemory.
    """
    points, settings = run.array(array_specs.POINTS.name), execution or Execution()
    row = max(job.n_features_input * source.dtype.itemsize, points.shape[1] * points.dtype.itemsize)
    layout = Layout(
        source.n_rows, job.n_features_input, points.dtype.name,
        stored_block or plan_sizes.block_points(settings.block_points, source.n_rows, row), n_points=points.shape[0],
        n_features=points.shape[1], k_max=run.array(array_specs.NEIGHBOR_INDICES.name).shape[1],
    )  # fmt: skip
    cluster = settings.cluster
    stages = {"transform": partial(embed_new.steps, job)}
    if settings.block_points == "auto":
        layout = task_costs.fit_blocks(stages, layout, memory_of_workers(cluster))
    if execution is None and layout.input_blocks() == 1:
        cluster = Cluster(kind="serial")
    task_costs.check_plan(planned(stages, layout)[0], memory_of_workers(cluster))
    return layout, cluster


def _require_own(work: Store) -> None:
    """Raises ConfigError unless the place is empty or holds blocks of a transform."""
    if work.is_run("choose another --work") and "transform" not in work.attributes():
        raise ConfigError(f"{work.url}: is the store of a run; the finished blocks of a transform need another place")
