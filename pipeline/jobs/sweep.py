"""Many experiments that share common steps: a tree of runs, in which each step is computed once.

The plan of each experiment gives the fingerprints of its steps. Two experiments share a step if its fingerprints are
equal. Each run copies shared steps from the store of its `parent`: the earlier experiment with most steps in common.
Small runs are sent to the workers as a whole, one task for each run. Larger runs are executed one after the other, each
with all workers.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import dask
import numpy as np
from distributed import Client

from ..clusters.limits import may_have_threads, memory_of_workers, n_workers, without_workers
from ..clusters.version_check import require_versions, required_versions
from ..config.models import Cluster
from ..core.errors import ConfigError, ExperimentsFailed, LleError
from ..core.signals import interruptible
from ..engine import current_config
from ..engine.execute import Executor
from ..engine.plan import planned
from ..engine.progress import RunProgress, SilentProgress
from ..engine.step import Report, Step
from ..engine.task_costs import fit_workers
from ..engine.worker_tasks import RETRIES, Submitted
from ..report.sweep_page import Row, best_experiments, flat_metrics, render_sweep, table_bytes
from ..stages.registry import stages_of_run
from ..stages.report_columns import color_column
from ..storage import array_specs
from ..storage.lock import RunLock, wait_for_lock
from ..storage.store import Store
from .expected_time import placement
from .run import run
from .run_stages import Shared, executing
from .sweep_plan import Experiment, plan_sweep, worker_limit

if TYPE_CHECKING:
    from ..report.sweep_figure import Cell


NAMED = 10
SMALL_POINTS = 20_000
"""Up to this number of points a run is one task: it needs little memory, and most of its time is starting steps."""


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep: a row for each experiment, and how many steps were needed, computed and reused."""

    url: str
    rows: list[Row]
    counts: dict[str, int]
    seconds: float


class StepCounts(SilentProgress):
    """Prints nothing, because many runs are active; counts steps: computed, reused."""

    KINDS = ("computed", "reused")

    def __init__(self) -> None:
        super().__init__()
        self.steps = dict.fromkeys(self.KINDS, 0)

    def computed_again(self, step: Step[Report]) -> None:
        super().computed_again(step)
        self.steps["reused"] -= 1

    def end(self, step: Step[Report], seconds: float, computed: int) -> None:
        self.steps["computed" if computed else "reused"] += 1


def run_sweep(url: str, experiments: list[Experiment], fresh: bool, progress: RunProgress) -> SweepResult:
    """Run every experiment, write table and contact sheet. If an experiment fails, the others still run.

    Raises:
        ConfigError: the store at `url` holds a run or versions of it.
        StoreError: the store cannot be used.
        ExperimentsFailed: some experiments failed; raised after all have ended.
    """
    seconds = max((experiment.config.execution.lock_wait for experiment in experiments if experiment.config), default=0)
    return wait_for_lock(lambda: _run_sweep(url, experiments, fresh, progress), seconds, progress.print_line)


def _run_sweep(url: str, experiments: list[Experiment], fresh: bool, progress: RunProgress) -> SweepResult:
    started, root = time.perf_counter(), Store(url)
    if root.objects.exists("zarr.json") or root.has_versions():
        raise ConfigError(
            f"{root.url}: expected an empty folder or one of a sweep, found the store of a run or its versions; choose "
            f"another output.store"
        )
    rows: dict[str, Row] = {}
    with interruptible(), RunLock(root):
        for row in _rows(plan_sweep(experiments, worker_limit(experiments), fresh), fresh, progress):
            rows[row["experiment"]] = row
            progress.print_line(_line(row, len(rows), len(experiments)))
        table = [rows[experiment.name] for experiment in experiments]
        counts = {kind: sum(row[f"steps_{kind}"] for row in table) for kind in ("asked", *StepCounts.KINDS)}
        result = SweepResult(root.url, table, counts, time.perf_counter() - started)
        _write_results(root, experiments, result)
    failed = [row for row in table if row["exit_code"]]
    if failed:
        lines = [f"  {row['experiment']}: {_brief(row['message'])}" for row in failed[:NAMED]]
        more = [f"  and {len(failed) - NAMED} more"] if len(failed) > NAMED else []
        head = f"{len(failed)} of {len(table)} experiments failed; {root.url}/sweep.html has all results:"
        codes = [row["exit_code"] for row in failed]
        raise ExperimentsFailed("\n".join([head, *lines, *more]), exit_code=1 if 1 in codes else max(codes))
    return result


def _brief(message: str) -> str:
    """The first two lines as one: that of an invalid config is followed by what is wrong in it."""
    return " ".join(line.strip().removeprefix("- ") for line in message.splitlines()[:2])


def _line(row: Row, number: int, n_experiments: int) -> str:
    counts = ", ".join(f"{row[f'steps_{kind}']} {kind}" for kind in StepCounts.KINDS)
    outcome = f"{row['seconds']:.1f} s, steps: {counts}" if row["state"] != "failed" else _brief(row["message"])
    return f"[{number}/{n_experiments}] {row['experiment']}: {row['state']}, {outcome}"


def _write_results(root: Store, experiments: list[Experiment], result: SweepResult) -> None:
    """Write sweep.parquet, contact_sheet.png and sweep.html next to the stores of the runs."""
    from ..report.sweep_figure import draw_contact_sheet  # matplotlib

    parameters = list(dict.fromkeys(name for experiment in experiments for name in experiment.values))
    title = f"{root.url.rsplit('/', 1)[-1]}: {len(experiments)} experiments"
    _, best = best_experiments(result.rows)
    cells = [
        cell._replace(is_best=experiment.name in best)
        for experiment in experiments
        for cell in _cells(experiment, len(experiments))
    ]
    curves = all(experiment.config.eigensolver.n_components == 1 for experiment in experiments if experiment.config)
    has_values = any(cell.key.label and not cell.key.names for cell in cells)
    axes = "; upwards the coordinate, to the right the true one" if curves and has_values else ""
    pictures = draw_contact_sheet(cells, title + axes)
    root.objects.put("sweep.parquet", table_bytes(result.rows))
    root.objects.put("contact_sheet.png", pictures.light)
    addresses = {experiment.name: f"{experiment.name}.zarr/report/index.html" for experiment in experiments}
    reports = {name: address for name, address in addresses.items() if root.objects.exists(address)}
    page = render_sweep(title, parameters, result.rows, result.counts, result.seconds, pictures, reports)
    root.objects.put("sweep.html", page.encode())


def _cells(experiment: Experiment, n_cells: int) -> list["Cell"]:
    """Cells of the contact sheet for an experiment: its largest component, a cell for each pair of coordinates."""
    from ..report.point_colors import paint_points
    from ..report.sweep_figure import Cell, sampled_rows

    if experiment.config is None:
        return [Cell(experiment.values, None, None, "cannot run")]
    store = Store(experiment.config.output.store)
    try:
        current_config.require_embedding(store)  # the arrays may be those of an earlier config
        embedding, component = store.read_all(array_specs.EMBEDDING.name), store.read_all(array_specs.COMPONENT.name)
        color = color_column(store, np.arange(len(embedding)))
    except LleError:
        return [Cell(experiment.values, None, None, "failed")]
    members = np.flatnonzero(component == 0)
    rows = members[sampled_rows(len(members), n_cells)]
    if embedding.shape[1] == 1:  # a curve: plot its coordinate against the true one
        x_values = np.zeros(len(embedding)) if color is None else color.values
        embedding = np.column_stack([x_values, embedding[:, 0]])
    note = f"1 of {component.max() + 1} components" if component.max() > 0 else ""
    paint = paint_points(color, np.ones(len(embedding), bool))
    colors, key = paint.rgba(rows), paint._replace(codes=None, values=None)
    pairs = list(combinations(range(min(3, embedding.shape[1])), 2))
    named = [{"coordinates": f"{x + 1} and {y + 1}"} if len(pairs) > 1 else {} for x, y in pairs]
    return [
        Cell(experiment.values | name, embedding[rows][:, pair], colors, note, key)
        for pair, name in zip(pairs, named, strict=True)
    ]


def _rows(ordered: list[Experiment], fresh: bool, progress: RunProgress) -> Iterator[Row]:
    """Run the experiments; yield the row of each as it ends."""
    stores = {experiment.name: experiment.config.output.store for experiment in ordered if experiment.config}
    ready = [experiment for experiment in ordered if experiment.config]
    for experiment in ordered:
        if experiment.config is None:
            yield _row(experiment, StepCounts(), "failed", 2, experiment.error, 0.0)
    cluster = ready[0].config.execution.cluster if ready and ready[0].config else Cluster(kind="serial")
    if isinstance(cluster, Cluster) and cluster.kind == "local" and min(n_workers(cluster), len(ready)) == 1:
        cluster = without_workers(cluster)
    small, n_threads = all(experiment.layout.n_input <= SMALL_POINTS for experiment in ready if experiment.layout), 1
    plans = [planned(stages_of_run(one.config), one.layout)[0] for one in ready if one.config and one.layout]
    if not small:
        cluster, n_threads = placement(cluster, plans[0])
    limit = memory_of_workers(cluster)
    if may_have_threads(cluster) and not all(fit_workers(steps, limit) for steps in plans):
        cluster = without_workers(cluster)
    with executing(progress, cluster, n_threads) as executor:
        executor.start()
        if executor.client is not None and small:
            yield from _on_workers(executor.client, limit, ready, stores, fresh)
            return
        for experiment in ready:
            yield run_experiment(experiment, stores.get(experiment.parent), fresh, executor)


def _on_workers(
    client: Client, limit: int | None, ready: list[Experiment], stores: dict[str, str], fresh: bool
) -> Iterator[Row]:
    """Run each experiment as one task, submitted when its parent has ended; yield the rows.

    Experiments with many children have priority. Raises LleError if the scheduler was lost.
    """
    children: dict[str, list[Experiment]] = {}
    for experiment in ready:
        children.setdefault(experiment.parent, []).append(experiment)
    programs, submitted = required_versions(client), Submitted[Experiment](client)

    def submit(parent: str) -> None:
        for experiment in children.get(parent, ()):
            priority = len(children.get(experiment.name, ()))
            arguments = experiment, stores.get(parent), fresh, limit, programs
            future = client.submit(_task, *arguments, pure=False, retries=RETRIES, priority=priority)
            submitted.add(experiment, future)

    submit("")
    for experiment, outcome in submitted.ended():
        yield _failed_row(experiment, outcome) if isinstance(outcome, BaseException) else outcome
        submit(experiment.name)  # only now: a child copies steps from the store of its parent, which must be finished


def _failed_row(experiment: Experiment, error: BaseException) -> Row:
    code = error.exit_code if isinstance(error, LleError) else 1
    return _row(experiment, StepCounts(), "failed", code, f"{type(error).__name__}: {error}", 0.0)


def _task(
    experiment: Experiment, source_store: str | None, fresh: bool, limit: int | None, programs: dict[str, str] | None
) -> Row:
    require_versions(programs)
    with dask.config.set(scheduler="synchronous"):
        return run_experiment(experiment, source_store, fresh, Executor(None, memory=limit))


def run_experiment(experiment: Experiment, source_store: str | None, fresh: bool, executor: Executor) -> Row:
    """Run one experiment, reusing steps of the source store; returns its row of the table, also after a failure."""
    assert experiment.config is not None
    assert experiment.layout is not None
    counts, started = StepCounts(), time.perf_counter()
    state, code, message = "done", 0, ""
    try:
        source_stores = tuple(filter(Store.is_readable, map(Store, filter(None, [source_store]))))
        run(experiment.config, fresh, counts, shared=Shared(executor, experiment.layout, source_stores, True))
    except LleError as error:
        state, code, message = ("failed" if error.exit_code != 3 else "bound not met"), error.exit_code, str(error)
    except Exception as error:
        state, code, message = "failed", 1, f"{type(error).__name__}: {error}. This is an error in the program"
    return _row(experiment, counts, state, code, message, time.perf_counter() - started)


def _row(experiment: Experiment, counts: StepCounts, state: str, code: int, message: str, seconds: float) -> Row:
    n_steps = max(experiment.n_steps, sum(counts.steps.values()))
    row = {
        "experiment": experiment.name,
        **experiment.values,
        "state": state,
        "exit_code": code,
        "message": message,
        "seconds": round(seconds, 3),
        "steps_asked": n_steps,
    }
    row |= {f"steps_{kind}": counts.steps[kind] for kind in StepCounts.KINDS}
    if experiment.config is not None and state != "failed":
        row |= flat_metrics(Store(experiment.config.output.store).metrics() or {}) | experiment.values
    return row
