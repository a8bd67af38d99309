"""Plan a sweep before it runs: its experiments, their block sizes, and the steps they share."""

import copy
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..clusters.limits import memory_of_task
from ..config.load import check_config, parse_override, read_settings
from ..config.models import Config
from ..config.sweep import apply_value, experiment_name, experiments, short_names
from ..core.errors import ConfigError, LleError
from ..engine.plan import Layout, Walker
from ..engine.step import Json, Report, Step
from ..stages import registry
from ..stages.ingest import open_input
from ..storage.store import Store
from .layout import check_layout, layout_of

Row = dict[str, object]


@dataclass(frozen=True)
class Experiment:
    """One run of a sweep: its name, the values that differ from the others, and its config or the error in it."""

    name: str
    values: dict[str, object]
    config: Config | None
    error: str = ""
    fingerprints: frozenset[str] = frozenset()
    n_steps: int = 0
    layout: Layout | None = None
    parent: str = ""


def load_sweep(paths: list[Path], overrides: tuple[str, ...], store: str | None) -> tuple[str, list[Experiment]]:
    """(URL of the sweep, its experiments), from the section `sweep` of each file; a file without it is one experiment.

    Raises ConfigError if a file cannot be read, or if no experiment has a valid config.
    """
    planned: list[Experiment] = []
    url: Any = store
    for path in paths:
        data, sweep = read_settings(path, overrides)
        output = data.get("output")
        url = store or (output.get("store") if len(paths) == 1 and isinstance(output, dict) else None)
        if not isinstance(url, str) or not url:
            raise ConfigError(
                "sweep: no store for the results: set output.store in a single config, or give --store URL"
            )
        file_values: dict[str, object] = {} if len(paths) == 1 else {"config": path.stem}
        swept = [{}] if sweep is None else experiments(sweep)
        set_keys = [key for override in overrides for key in _keys(*parse_override(override))]
        if lost := [key for key in set_keys if all(_hides(values, key) for values in swept)]:
            raise ConfigError(f"--set {lost[0]}: config {path} has values of {lost[0]} in its sweep; change them there")
        if any("output.store" in _keys(*entry) for values in swept for entry in values.items()):
            raise ConfigError(
                f"sweep: config {path} sweeps output.store; remove it: each experiment gets its own store"
            )
        for values in swept:
            short = short_names(list(values))
            row = file_values | {short[key]: value for key, value in values.items()}
            planned.append(_experiment(data, values, row, path, url))
    if len({experiment.name for experiment in planned}) < len(planned):
        raise ConfigError("sweep: two experiments have the same name; remove repeated values and file names")
    if all(experiment.config is None for experiment in planned):
        raise ConfigError(planned[0].error)
    configs = [experiment.config for experiment in planned if experiment.config]
    for config, key in product(configs, ("input.fit_sample", "output.keep", "output.prometheus")):
        if attrgetter(key)(config) is not None:
            raise ConfigError(f"sweep: {key} is for a single run; remove it")
    if any(config.embedding.align == "previous" for config in configs):
        raise ConfigError(
            "sweep: embedding.align: 'previous' aligns with the last embedding of the same store, but experiments copy "
            "steps from each other's stores; give the path or URL of one run to align them all with, or remove it"
        )
    if len({repr(config.execution.cluster) for config in configs}) > 1:
        raise ConfigError("sweep: execution.cluster differs between experiments; use the same cluster for all")
    return url.rstrip("/"), planned


def _hides(values: Row, key: str) -> bool:
    """Whether the values of an experiment replace a dotted key: they set it, or a section that holds it."""
    return any(f"{key}.".startswith(f"{swept}.") for swept in values)


def _keys(key: str, value: object) -> list[str]:
    """The dotted keys that a setting gives values to; the value may be a section."""
    if not isinstance(value, dict):
        return [key]
    return [one for name, entry in value.items() for one in _keys(f"{key}.{name}", entry)]


def _experiment(data: dict[str, object], values: Row, row: Row, path: Path, url: str) -> Experiment:
    settings, name = copy.deepcopy(data), experiment_name(row)
    try:
        for key, value in values.items():
            apply_value(settings, key, value, f"config {path}: sweep: {key}")
        apply_value(settings, "output.store", f"{url.rstrip('/')}/{name}.zarr", f"config {path}: output")
        return Experiment(name, row, check_config(settings, f"config {path}, experiment {name}"))
    except ConfigError as error:
        return Experiment(name, row, None, str(error))


def plan_sweep(experiments: list[Experiment], limit: int | None, fresh: bool = False) -> list[Experiment]:
    """The experiments with the fingerprints of their steps, each after its parent; invalid experiments first.

    limit: the most memory of a task in bytes, None if unknown. fresh: nothing of their stores is kept.
    """
    planned = [_with_layout(experiment, limit, fresh) for experiment in experiments]
    ordered = [experiment for experiment in planned if experiment.layout is None]
    valid = [(one, one.config, one.layout) for one in planned if one.config and one.layout]
    sizes: dict[str, list[int]] = {}  # experiments with the same input need the same block size to share steps
    for _, config, layout in valid:
        sizes.setdefault(repr((config.input, config.execution)), []).append(layout.block_points)
    ready = list[Experiment]()
    for experiment, config, layout in valid:
        size = min(sizes[repr((config.input, config.execution))])
        ready.append(_with_fingerprints(experiment, config, replace(layout, block_points=size)))
    for number, experiment in enumerate(ready):
        shared = [len(experiment.fingerprints & earlier.fingerprints) for earlier in ready[:number]]
        n_shared = max(shared, default=0)
        parent = ready[shared.index(n_shared)].name if n_shared else ""
        ordered.append(replace(experiment, parent=parent))
    return ordered


def worker_limit(experiments: list[Experiment]) -> int | None:
    """The most memory of a task in bytes. Determined once for all experiments, because free memory changes."""
    configs = [experiment.config for experiment in experiments if experiment.config]
    return memory_of_task(configs[0].execution.cluster) if configs else None


def _with_layout(experiment: Experiment, limit: int | None, fresh: bool) -> Experiment:
    config = experiment.config
    if config is None:
        return experiment
    try:
        store = Store(config.output.store)
        layout = layout_of(config, open_input(config), store if not fresh and store.can_resume() else None, limit)
        check_layout(config, layout, limit)
        return replace(experiment, layout=layout)
    except LleError as error:
        return replace(experiment, config=None, error=str(error))


def _with_fingerprints(experiment: Experiment, config: Config, layout: Layout) -> Experiment:
    """Add the fingerprints of the planned steps. Experiments with equal plans have equal steps in their runs too."""
    plan = _Fingerprints()
    plan.walk(registry.stages_of_run(config), layout)
    return replace(experiment, layout=layout, fingerprints=frozenset(plan.found), n_steps=len(plan.steps))


@dataclass
class _Fingerprints(Walker):
    """Collects the fingerprints of the planned steps."""

    found: set[str] = field(default_factory=set)

    def reports_of(self, step: Step[Report]) -> None:
        self.found.add(step.fingerprint(self.upstream))


def describe_sweep(url: str, planned: list[Experiment]) -> Json:
    """Numbers of experiments, the errors of those that cannot run, and the number of steps, all and distinct ones."""
    distinct = {fingerprint for experiment in planned for fingerprint in experiment.fingerprints}
    n_steps = sum(experiment.n_steps for experiment in planned)
    refused = {experiment.name: experiment.error for experiment in planned if experiment.config is None}
    return {
        "store": url,
        "experiments": len(planned),
        "cannot_run": len(refused),
        "refused": refused,
        "steps": {"asked": n_steps, "to_do": len(distinct)},
    }
