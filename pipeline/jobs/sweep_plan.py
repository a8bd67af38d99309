"""The experiments of a sweep, their block sizes and the steps they share, before anything runs."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..clusters.limits import memory_of_workers
from ..config.models import Config, check_config, read_settings
from ..config.sweep import apply_value, experiment_name, experiments, short_names
from ..core.errors import ConfigError, LleError
from ..engine import checkpoint
from ..engine.plan import Layout, Step, walk
from ..stages import registry
from ..stages.ingest import open_input
from ..storage.store import Store
from .layout import check_layout, layout_of

Row = dict[str, Any]


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
        layout = layout_of(config, open_input(config), store if store.is_run() else None, limit)
        check_layout(config, layout, limit)
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
    for step in walk(registry.stages_of(experiment.config.method), experiment.config, experiment.layout)[0]:
        marks += [checkpoint.fingerprint_of(upstream, step), *_search_for_any_k(upstream, step)]
        upstream = checkpoint.fingerprint_of(upstream, step) if step.feeds else upstream
    n_steps = sum(1 for mark in marks if not mark.startswith(ANY_K))
    return replace(experiment, marks=frozenset(marks), n_steps=n_steps)


def _search_for_any_k(upstream: str, step: Step) -> list[str]:
    """What an exact search has in common with those for other numbers of neighbours."""
    if (step.stage, step.name) != ("find_neighbors", "search"):
        return []
    parameters = {**step.decides.parameters, "n_neighbors": 0}
    any_k = replace(step, decides=replace(step.decides, parameters=parameters))
    return [ANY_K + checkpoint.fingerprint_of(upstream, any_k)]


def count_steps(planned: list[Experiment]) -> dict[str, Any]:
    """How many steps the experiments ask for and how many different ones those are, before anything is run."""
    distinct = {mark for experiment in planned for mark in experiment.marks if not mark.startswith(ANY_K)}
    asked = sum(experiment.n_steps for experiment in planned)
    cannot = sum(experiment.config is None for experiment in planned)
    return {"experiments": len(planned), "cannot_run": cannot, "steps": {"asked": asked, "to_do": len(distinct)}}
