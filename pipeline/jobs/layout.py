"""Sizes of a run, determined before the first step: rows of a block, and the integers that follow from them."""

import math
from dataclasses import replace

from ..clusters.limits import expected_workers, memory_of_task, memory_of_workers
from ..config.load import resolved
from ..config.models import Config
from ..core.errors import ConfigError
from ..core.machine import available_memory, versions
from ..engine import task_costs
from ..engine.plan import Layout, disk_totals, planned
from ..engine.plan_sizes import block_points_for
from ..engine.step import Json
from ..inputs import Source
from ..inputs.strange_values import strange_values
from ..inputs.suspect_columns import suspect_columns
from ..linalg.component_solve import ISOLATED_POINTS
from ..report.findings import Columns
from ..stages import ingest
from ..stages.registry import stages_of_run
from ..storage.store import Store

MEMORY_STORE_BYTES = 512 * 2**20


def run_attributes(config: Config, source: Source) -> Json:
    """The attributes of a run's store: config, state of the input, its columns if it is a table, package versions.

    `names` of label and id, which files of arrays lack, are those that a caller in Python adds.
    """
    return {
        "config": resolved(config),
        "input_fingerprint": source.fingerprint(),
        "columns": described_columns(config, source),
        "names": {},
        "image_shape": image_shape_of(config, source),
        "versions": versions(),
    }


def image_shape_of(config: Config, source: Source) -> tuple[int, ...] | None:
    """The shape of the images that are the rows of the input; None if they are none.

    Raises ConfigError if output.image_shape does not have as many numbers as a row.
    """
    shape = config.output.image_shape
    if shape is None:
        return source.image_shape
    if math.prod(shape) != source.n_features or shape[2:] not in {(), (1,), (3,)}:
        raise ConfigError(
            f"output.image_shape: expected [height, width] or [height, width, 3] with {source.n_features} numbers, as "
            f"many as the input has columns, found {list(shape)} with {math.prod(shape)}; correct it or remove it"
        )
    return shape


def described_columns(config: Config, source: Source) -> Columns | None:
    """The role of each column of a table; None for arrays.

    Features that the config lists are there on purpose, so none of them is suspect.
    """
    if (roles := source.roles) is None:
        return None
    looks = {} if getattr(config.input, "columns", None) is not None else suspect_columns(source)
    suspect = {name: look.says for name, look in looks.items()}
    possible_ids = [name for name, look in looks.items() if look.is_id]
    return {
        "features": list(roles.features),
        "label": roles.label,
        "id": roles.id,
        "left_out": dict(roles.left_out),
        "suspect": suspect,
        "possible_ids": possible_ids,
        "strange_values": strange_values(source),
    }


def layout_of(config: Config, source: Source, store: Store | None = None, limit: int | None = None) -> Layout:
    """Sizes of a run of this config on this input.

    With `execution.block_points: auto` the block size of `store` is used, if it has one and its blocks fit the workers;
    otherwise the largest size that fits and gives each worker three blocks. `limit` is the most memory of a task in
    bytes; None: as in the config's cluster. Raises ConfigError or InputError if a setting does not fit the input.
    """
    layout = ingest.first_layout(config, source)
    image_shape_of(config, source)
    if config.execution.block_points != "auto":
        return layout
    if store is not None and (size := ingest.stored_block(store, layout)):
        layout = replace(layout, block_points=size)
    elif n_workers := expected_workers(config.execution.cluster):
        layout = replace(layout, block_points=block_points_for(n_workers, layout))
    cluster = config.execution.cluster
    limits = memory_of_workers(cluster), memory_of_task(cluster) if limit is None else limit
    return task_costs.fit_blocks(stages_of_run(config), layout, *limits)


def check_layout(config: Config, layout: Layout, limit: int | None = None) -> None:
    """Raises NotEnoughMemory if a task of the plan needs more than `limit` bytes (None: as configured)."""
    steps, _ = planned(stages_of_run(config), layout)
    task_costs.check_plan(steps, memory_of_task(config.execution.cluster) if limit is None else limit)


def fits_memory(config: Config) -> bool:
    """Whether the temporary store of a run can be in the memory of this process: a small run without other processes.

    The plan's bound on the bytes of the store decides. It is up to five times what a run writes.
    """
    if (
        config.execution.cluster.kind != "serial"
        or config.output.keep is not None
        or config.input.fit_sample is not None
    ):
        return False
    layout = layout_of(config, ingest.open_input(config))
    steps, _ = planned(stages_of_run(config), layout)
    n_bytes, _ = disk_totals(steps)
    return layout.n_input < ISOLATED_POINTS and n_bytes <= min(MEMORY_STORE_BYTES, available_memory() // 8)
