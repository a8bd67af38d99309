"""Place new points in the embedding of a finished run: the steps of stages/embed_new.py, then one output file."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..clusters.limits import memory_of_workers
from ..config.models import Execution
from ..core.errors import NAMED_ROWS, ConfigError, StoreError
from ..core.signals import interruptible
from ..engine.progress import RunProgress
from ..engine.step import Json
from ..engine.task_costs import check_plan
from ..inputs import Source
from ..inputs.consistency import one_state
from ..stages import embed_new
from ..storage import array_specs
from ..storage.lock import LOCK, RunLock, wait_for_lock
from ..storage.store import Store, fitted_store
from ..storage.versions import result_of_whole
from .expected_time import placement
from .export import RowColumns, columns_of_input, export_embedding, reader_of_columns
from .new_rows import open_new, open_section
from .output_file import check_out, refuse_input
from .placing import PlacingRun, fit_of, layout_of_placing, state_of, steps_of_job
from .run_stages import executing

WAIT_FOR_OTHERS = 86_400.0  # seconds, for another transform that writes to the same file


@dataclass(frozen=True)
class NewRows:
    """Rows to place in the embedding of a run, and the file (.npy, .parquet, .arrow or .csv) for their coordinates.

    settings: key=value pairs of the config's input section. names: further columns of the new table to copy.
    execution: None: a single block is computed in this process, more blocks on local workers.
    max_ratio: distance ratio above which a row is far; None: a thousandth of the training points is above it.
    far_as_nan: rows that are far get no coordinates.
    work_url: store for the finished blocks, if workers cannot write to the folder of `out`.
    """

    run_url: str
    new: str
    out: str
    settings: tuple[str, ...] = ()
    execution: Execution | None = None
    max_ratio: float | None = None
    far_as_nan: bool = False
    work_url: str | None = None
    names: tuple[str, ...] = ()


def transform(rows: NewRows, progress: RunProgress) -> Json:
    """Embed new rows and write their coordinates, in the order of the input; returns counts of the rows.

    Columns: row, component, y1, y2, ..., distance_ratio; .npy has y1, y2, ..., distance_ratio. Finished blocks are
    written to a separate store, which is deleted at the end. After a kill the same command continues from it.

    Raises:
        ConfigError: the store has no finished embedding.
        InputError: the columns are not those of the run.
        StoreError: the run changed during the transform.
        OlderVersionRead: the rows were placed in an older version, because the published one is damaged.
        InputChanged: the new rows changed during the transform.
    """
    check_out(rows.out)
    seconds = WAIT_FOR_OTHERS if rows.execution is None else rows.execution.lock_wait

    def place(opened: Store) -> Json:
        run = fitted_store(opened)
        return wait_for_lock(lambda: _transform(run, rows, progress), seconds, progress.print_line)

    return result_of_whole(rows.run_url, place)


def _transform(run: Store, rows: NewRows, progress: RunProgress) -> Json:
    out = rows.out
    started, work, fit = time.perf_counter(), Store(rows.work_url or f"{out}.work"), fit_of(run)
    own_input, n_features = fit.config["input"], int(run.array(array_specs.RAW.name).shape[1])
    section, source = open_new(rows.new, rows.settings, own_input, n_features, run.attributes().get("columns"))
    parameters = section.model_dump(mode="json")
    id_column = None if Path(out).suffix == ".npy" else parameters.get("id")
    further = [] if id_column is None else [_reader_of_ids(source, section.kind, id_column)]
    further += columns_of_input(source, [name for name in rows.names if name != id_column], out)
    refuse_input(out, run, parameters)
    where = rows.execution or Execution()
    job = embed_new.Job(fit, parameters, source.fingerprint(), rows.max_ratio, rows.far_as_nan)
    layout = layout_of_placing(job, source, where)
    steps = steps_of_job(job, layout)
    cluster, n_threads = placement(where.cluster, steps)
    check_plan(steps, memory_of_workers(cluster))
    if work.is_run("choose another --work") and "transform" not in work.attributes():
        raise ConfigError(f"{work.url}: is the store of a run; the finished blocks of a transform need another place")
    with interruptible(), RunLock(work, LOCK, "Wait until it has ended, stop it, or choose another --work"):
        work.create_group({"transform": {"run": run.url, "input": section.model_dump(mode="json")}})
        try:
            reopen = partial(open_section, section)
            with executing(progress, cluster, n_threads) as executor, one_state(source, reopen):
                placing = PlacingRun(work, executor, progress, source=source, reopen=reopen)
                placing.drive(embed_new.steps(job, layout))
        finally:
            progress.stop()
        if state_of(run) != fit.state:
            raise StoreError(f"{run.url}: was computed again during the transform; run the same command again")
        export_embedding(work, out, further)
        work.erase()
    work.objects.delete_empty_folders()
    reports = placing.placed
    return {
        "path": out,
        "rows": source.n_rows,
        "invalid": sum(report.invalid for report in reports),
        "first_invalid": [row for report in reports for row in report.first_invalid][:NAMED_ROWS],
        "far": sum(report.far for report in reports),
        "max_ratio": reports[0].limit,
        "mixed_components": sum(report.mixed for report in reports),
        "training_points": sum(report.coincident for report in reports),
        "seconds": round(time.perf_counter() - started, 2),
    }


def _reader_of_ids(source: Source, kind: str, name: str) -> RowColumns:
    if kind == "npy":  # the name is that of a file
        return lambda start, stop: {"id": source.read_columns(["id"], start, stop).column("id")}
    return reader_of_columns(source, [name])
