"""Many experiments that share the stages they have in common: a tree of runs, each step computed once.

The plan of each experiment gives the fingerprints of its steps. Two experiments share a step where the fingerprints
agree, so each run takes what it can from the store of the one planned before it that it shares most with (`parent`).
Small runs go whole to the workers, a run a task; larger ones follow each other and have all the workers.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import checkpoint, memory, schema
from pipeline import run as runs
from pipeline.cluster import memory_of_workers, n_workers
from pipeline.clusters.versions import expected, require
from pipeline.config import Cluster, Config, check_config, read_settings
from pipeline.config_sweep import apply_value, experiment_name, experiments, short_names
from pipeline.errors import ConfigError, ExperimentsFailed, Interrupted, LleError
from pipeline.execute import Executor
from pipeline.interrupts import interruptible
from pipeline.lock import RunLock
from pipeline.plan import Layout, Step, walk
from pipeline.progress import RunProgress, StepCounts
from pipeline.report.sweep_table import flat_metrics, render_sweep, table_bytes
from pipeline.stages.ingest import open_input
from pipeline.stages.write_report import color_source
from pipeline.store import Store
from pipeline.task_tree import run_tree

if TYPE_CHECKING:
    from pipeline.report.contact_sheet import Cell

Row = dict[str, Any]

NAMED = 10
SMALL_POINTS = 20_000
"""Up to here a run is a task: starting its steps takes longer than computing them, and its memory is small."""
ANY_K = "any k "


@dataclass(frozen=True)
class Experiment:
    """One run of a sweep: its name, the values it has of its own, and its config or what is wrong with it."""

    name: str
    values: dict[str, Any]
    config: Config | None
    error: str = ""
    marks: frozenset[str] = frozenset()
    n_steps: int = 0
    layout: Layout | None = None
    parent: str = ""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep leaves: a row for each experiment, and how many steps were asked for, computed, cut and reused."""

    url: str
    rows: list[Row]
    counts: dict[str, int]
    seconds: float


def load_sweep(paths: list[Path], overrides: tuple[str, ...], store: str | None) -> tuple[str, list[Experiment]]:
    """The place of a sweep and its experiments: of each file's section `sweep`, or the file as it is.

    Raises ConfigError for files that cannot be read, and where no experiment is a valid config.
    """
    found: list[Experiment] = []
    url: Any = store
    for path in paths:
        data, sweep = read_settings(path, overrides)
        output = data.get("output")
        url = store or (output.get("store") if len(paths) == 1 and isinstance(output, dict) else None)
        if not isinstance(url, str) or not url:
            raise ConfigError("sweep: no place for runs and table: set output.store in the one config, or --store URL")
        own: dict[str, Any] = {} if len(paths) == 1 else {"config": path.stem}
        for values in [{}] if sweep is None else experiments(sweep):
            short = short_names(list(values))
            shown = own | {short[key]: value for key, value in values.items()}
            found.append(_experiment(data, values, shown, path, url))
    if len({experiment.name for experiment in found}) < len(found):
        raise ConfigError("sweep: two experiments have the same name; let no value or file name occur twice")
    if all(experiment.config is None for experiment in found):
        raise ConfigError(found[0].error)
    if any(experiment.config.output.keep is not None for experiment in found if experiment.config):
        raise ConfigError("sweep: output.keep is for one job run again and again; leave it out")
    if any(experiment.config.output.prometheus is not None for experiment in found if experiment.config):
        raise ConfigError("sweep: output.prometheus is one file for one job, and has many here; leave it out")
    if any(experiment.config.embedding.align == "previous" for experiment in found if experiment.config):
        raise ConfigError(
            "sweep: embedding.align: 'previous' is what one store held before, and here each experiment has a store of "
            "its own that shares steps with the others; give the path or URL of one run to align them all with, or "
            "leave it out"
        )
    clusters = {repr(experiment.config.execution.cluster) for experiment in found if experiment.config}
    if len(clusters) > 1:
        raise ConfigError("sweep: execution.cluster differs between experiments; one cluster serves them all")
    return url.rstrip("/"), found


def _experiment(data: dict[str, Any], values: Row, shown: Row, path: Path, url: str) -> Experiment:
    settings, name = copy.deepcopy(data), experiment_name(shown)
    try:
        for key, value in values.items():
            apply_value(settings, key, value, f"config {path}: sweep: {key}")
        apply_value(settings, "output.store", f"{url.rstrip('/')}/{name}.zarr", f"config {path}: output")
        return Experiment(name, shown, check_config(settings, f"config {path}, experiment {name}"))
    except ConfigError as error:
        return Experiment(name, shown, None, str(error))


def plan_sweep(found: list[Experiment], limit: int | None) -> list[Experiment]:
    """The experiments with the fingerprints of their steps, each after its parent; those that cannot run first.

    limit: bytes of a worker, None where not known.
    """
    planned = _with_common_blocks([_with_layout(experiment, limit) for experiment in found])
    ready = [_with_marks(experiment) for experiment in planned if experiment.layout is not None]
    ready.sort(key=lambda experiment: -experiment.config.neighbors.n_neighbors if experiment.config else 0)
    ordered: list[Experiment] = [experiment for experiment in planned if experiment.layout is None]
    for number, experiment in enumerate(ready):
        shared = [len(experiment.marks & other.marks) for other in ready[:number]]
        most = max(shared, default=0)
        parent = ready[shared.index(most)].name if most else ""
        ordered.append(replace(experiment, parent=parent))
    return ordered


def worker_limit(found: list[Experiment]) -> int | None:
    """What a worker may take in bytes. Asked once, since free memory comes and goes, and blocks follow it."""
    configs = [experiment.config for experiment in found if experiment.config]
    return memory_of_workers(configs[0].execution.cluster) if configs else None


def _with_layout(experiment: Experiment, limit: int | None) -> Experiment:
    config = experiment.config
    if config is None:
        return experiment
    try:
        store = Store(config.output.store)
        layout = runs.choose_layout(config, open_input(config), store if store.is_run() else None, limit)
        memory.check_plan(walk(runs.stages_of(config.method), config, layout), limit)
        return replace(experiment, layout=layout)
    except LleError as error:
        return replace(experiment, config=None, error=str(error))


def _with_common_blocks(planned: list[Experiment]) -> list[Experiment]:
    """One size of blocks for all experiments with one input, the smallest: blocks of other sizes are other steps."""
    smallest: dict[str, int] = {}
    for experiment in planned:
        if experiment.config and experiment.layout:
            key = repr((experiment.config.input, experiment.config.execution))
            size = experiment.layout.block_points
            smallest[key] = min(size, smallest.get(key, size))
    return [
        replace(experiment, layout=replace(experiment.layout, block_points=smallest[
            repr((experiment.config.input, experiment.config.execution))]))
        if experiment.config and experiment.layout else experiment for experiment in planned
    ]  # fmt: skip


def _with_marks(experiment: Experiment) -> Experiment:
    """Fingerprints of the steps as planned; equal plans have equal steps, whatever the run finds out on its way."""
    assert experiment.config is not None
    assert experiment.layout is not None
    marks, upstream = [], ""
    for step in walk(runs.stages_of(experiment.config.method), experiment.config, experiment.layout):
        marks += [checkpoint.fingerprint(upstream, step), *_search_for_any_k(upstream, step)]
        upstream = checkpoint.fingerprint(upstream, step) if step.feeds else upstream
    n_steps = sum(1 for mark in marks if not mark.startswith(ANY_K))
    return replace(experiment, marks=frozenset(marks), n_steps=n_steps)


def _search_for_any_k(upstream: str, step: Step) -> list[str]:
    """What an exact search has in common with those for other numbers of neighbours."""
    if (step.stage, step.name) != ("find_neighbors", "search"):
        return []
    any_k = replace(step, parameters={**step.parameters, "n_neighbors": 0})
    return [ANY_K + checkpoint.fingerprint(upstream, any_k)]


def count_steps(planned: list[Experiment]) -> dict[str, Any]:
    """How many steps the experiments ask for and how many different ones those are, before anything is run."""
    distinct = {mark for experiment in planned for mark in experiment.marks if not mark.startswith(ANY_K)}
    asked = sum(experiment.n_steps for experiment in planned)
    cannot = sum(experiment.config is None for experiment in planned)
    return {"experiments": len(planned), "cannot_run": cannot, "steps": {"asked": asked, "to_do": len(distinct)}}


def run_sweep(url: str, found: list[Experiment], fresh: bool, progress: RunProgress) -> SweepResult:
    """Run every experiment, write table and contact sheet; one that fails is reported and the others go on.

    Raises ConfigError for a place that holds something else, StoreError, and ExperimentsFailed at the end.
    """
    started, root = time.perf_counter(), Store(url)
    if root.objects.exists("zarr.json"):
        raise ConfigError(f"{root.url}: holds one run, a sweep wants a folder of its own; choose another output.store")
    rows: dict[str, Row] = {}
    with interruptible(), RunLock(root):
        limit = worker_limit(found)
        for row in _rows(plan_sweep(found, limit), limit, fresh, progress):
            rows[row["experiment"]] = row
            progress.say(_line(row, len(rows), len(found)))
        kept = [rows[experiment.name] for experiment in found]
        counts = {kind: sum(row[f"steps_{kind}"] for row in kept) for kind in ("asked", *StepCounts.KINDS)}
        result = SweepResult(root.url, kept, counts, time.perf_counter() - started)
        _write_results(root, found, result)
    unwell = [row for row in kept if row["exit_code"]]
    if unwell:
        lines = [f"  {row['experiment']}: {row['message'].splitlines()[0]}" for row in unwell[:NAMED]]
        more = [f"  and {len(unwell) - NAMED} more"] if len(unwell) > NAMED else []
        head = f"{len(unwell)} of {len(kept)} experiments did not end well; the others did ({root.url}/sweep.html):"
        raise ExperimentsFailed("\n".join([head, *lines, *more]), [row["exit_code"] for row in unwell])
    return result


def _line(row: Row, number: int, n_experiments: int) -> str:
    counts = ", ".join(f"{row[f'steps_{kind}']} {kind}" for kind in StepCounts.KINDS)
    outcome = f"{row['seconds']:.1f} s, steps: {counts}" if row["state"] != "failed" else row["message"].splitlines()[0]
    return f"[{number}/{n_experiments}] {row['experiment']}: {row['state']}, {outcome}"


def _write_results(root: Store, found: list[Experiment], result: SweepResult) -> None:
    """sweep.parquet, contact_sheet.png and sweep.html beside the stores of the runs."""
    from pipeline.report.contact_sheet import draw_contact_sheet  # noqa: PLC0415 (matplotlib)

    parameters = list(dict.fromkeys(name for experiment in found for name in experiment.values))
    title = f"{root.url.rsplit('/', 1)[-1]}: {len(found)} experiments"
    cells = [cell for experiment in found for cell in _cells(experiment, len(found))]
    curves = all(one.config.eigensolver.n_components == 1 for one in found if one.config)
    axes = "; upwards the coordinate, to the right the true one" if curves and any(cell.key for cell in cells) else ""
    picture = draw_contact_sheet(cells, title + axes)
    root.objects.put("sweep.parquet", table_bytes(result.rows))
    root.objects.put("contact_sheet.png", picture)
    page = render_sweep(title, parameters, result.rows, result.counts, result.seconds, picture)
    root.objects.put("sweep.html", page.encode())


def _cells(experiment: Experiment, n_cells: int) -> list["Cell"]:
    """The largest component of an experiment's embedding for the contact sheet: a cell for each pair of up to three."""
    from pipeline.report.color_key import color_points  # noqa: PLC0415
    from pipeline.report.contact_sheet import Cell, sampled_rows  # noqa: PLC0415

    if experiment.config is None:
        return [Cell(experiment.values, None, None, "cannot run")]
    store = Store(experiment.config.output.store)
    try:
        embedding, component = store.read_all(schema.EMBEDDING.name), store.read_all(schema.COMPONENT.name)
        color = color_source(store)
    except LleError:
        return [Cell(experiment.values, None, None, "failed")]
    members = np.flatnonzero(component == 0)
    rows = members[sampled_rows(len(members), n_cells)]
    if embedding.shape[1] == 1:  # a curve: its one coordinate against the true one
        other = np.zeros(len(embedding)) if color is None else color.values
        embedding = np.column_stack([other, embedding[:, 0]])
    note = f"1 of {component.max() + 1} components" if component.max() > 0 else ""
    (colors, key), pairs = color_points(color, rows), list(combinations(range(min(3, embedding.shape[1])), 2))
    named = [{"coordinates": f"{x + 1} and {y + 1}"} if len(pairs) > 1 else {} for x, y in pairs]
    return [Cell(experiment.values | name, embedding[rows][:, pair], colors, note, key)
            for pair, name in zip(pairs, named, strict=True)]  # fmt: skip


def _rows(ordered: list[Experiment], limit: int | None, fresh: bool, progress: RunProgress) -> Iterator[Row]:
    """The row of each experiment as it ends."""
    stores = {experiment.name: experiment.config.output.store for experiment in ordered if experiment.config}
    ready = [experiment for experiment in ordered if experiment.config]
    for experiment in ordered:
        if experiment.config is None:
            yield _row(experiment, StepCounts(), "failed", 2, experiment.error, 0.0)
    cluster = ready[0].config.execution.cluster if ready and ready[0].config else Cluster(kind="serial")
    if isinstance(cluster, Cluster) and cluster.kind == "local" and min(n_workers(cluster), len(ready)) == 1:
        cluster = Cluster(kind="serial")
    with runs.executing(cluster, progress) as executor:
        executor.memory = limit
        small = all(experiment.layout.n_input <= SMALL_POINTS for experiment in ready if experiment.layout)
        if executor.client is not None and small:
            yield from _on_workers(executor, ready, stores, fresh)
            return
        for experiment in ready:
            yield run_experiment(experiment, stores.get(experiment.parent), fresh, executor)


def _on_workers(executor: Executor, ready: list[Experiment], stores: dict[str, str], fresh: bool) -> Iterator[Row]:
    """A task for each experiment, submitted when its parent has ended."""
    named = {experiment.name: experiment for experiment in ready}
    children: dict[str, list[str]] = {}
    for experiment in ready:
        children.setdefault(experiment.parent, []).append(experiment.name)
    same = (fresh, executor.memory, expected(executor.client) if executor.client else None)
    arguments = {name: (one, stores.get(one.parent), *same) for name, one in named.items()}
    for name, found in run_tree(executor.client, children, _task, arguments):
        if isinstance(found, BaseException):
            code = found.exit_code if isinstance(found, LleError) else 1
            found = _row(named[name], StepCounts(), "failed", code, f"{type(found).__name__}: {found}", 0.0)
        yield found


def _task(
    experiment: Experiment, donor: str | None, fresh: bool, limit: int | None, programs: dict[str, str] | None
) -> Row:
    require(programs)
    return run_experiment(experiment, donor, fresh, Executor(None, memory=limit))


def run_experiment(experiment: Experiment, donor: str | None, fresh: bool, executor: Executor) -> Row:
    """Run one experiment, taking from the donor what it has; its row of the table, whatever becomes of it."""
    assert experiment.config is not None
    assert experiment.layout is not None
    counts, started = StepCounts(), time.perf_counter()
    state, code, message = "done", 0, ""
    try:
        donors = tuple(store for store in (Store(donor) if donor else None,) if store is not None and store.is_run())
        runs.run(experiment.config, fresh, counts, shared=runs.Shared(executor, experiment.layout, donors))
    except Interrupted:
        raise
    except LleError as error:
        state, code, message = ("failed" if error.exit_code != 3 else "bound not met"), error.exit_code, str(error)
    except Exception as error:
        state, code, message = "failed", 1, f"{type(error).__name__}: {error}. This is a fault of the program"
    return _row(experiment, counts, state, code, message, time.perf_counter() - started)


def _row(experiment: Experiment, counts: StepCounts, state: str, code: int, message: str, seconds: float) -> Row:
    asked = max(experiment.n_steps, sum(counts.steps.values()))
    row = {"experiment": experiment.name, **experiment.values, "state": state, "exit_code": code, "message": message,
           "seconds": round(seconds, 3), "steps_asked": asked}  # fmt: skip
    row |= {f"steps_{kind}": counts.steps[kind] for kind in StepCounts.KINDS}
    if experiment.config is not None and state != "failed":
        row |= flat_metrics(Store(experiment.config.output.store).get_json("report/metrics.json") or {})
    return row
