"""Sizes of a run: rows of a block and the integers that follow from them, settled before the first step."""

from dataclasses import replace

from pipeline.clusters.connect import (
    memory_of_workers,
)
from pipeline.config.models import Config
from pipeline.engine import task_costs
from pipeline.engine.plan import Layout, walk
from pipeline.inputs import Source
from pipeline.stages import (
    ingest,
)
from pipeline.stages.registry import stages_of
from pipeline.storage.store import Store


def choose_layout(config: Config, source: Source, store: Store | None, limit: int | None = None) -> Layout:
    """Sizes of a run. auto blocks: those of the store if it has some, unless they no longer fit the workers.

    `limit` is what a worker may take in bytes; None asks the config's cluster.
    """
    layout = ingest.first_layout(config, source)
    if config.execution.block_points != "auto":
        return layout
    if store is not None and (size := ingest.stored_block(store, layout)):
        layout = replace(layout, block_points=size)
    if limit is None:
        limit = memory_of_workers(config.execution.cluster)
    return task_costs.fit_blocks(stages_of(config.method), config, layout, limit)


def check_plan(config: Config, layout: Layout) -> None:
    """Raises NotEnoughMemory where the plan already tells that a step will not fit its workers."""
    task_costs.check_plan(walk(stages_of(config.method), config, layout), memory_of_workers(config.execution.cluster))
