"""Three small stages that replace those between input and report, for tests of bookkeeping.

`solve_weights` writes a block for each block of the input, `solve_embedding` sums the blocks and writes an embedding.
Input, report, markers, fingerprints, versions and locks are those of a real run, at a tenth of its cost.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from lle.engine.plan import Layout, Steps
from lle.engine.step import WHOLE_DATA, Report, Resource, Step, task
from lle.linalg.component_solve import Solution, Solutions
from lle.stages import ingest, write_report
from lle.stages.solve_embedding import WrittenRows
from lle.stages.solve_weights import WeightReport
from lle.storage import array_specs
from lle.storage.blocks import Blocks
from lle.storage.store import Store

TASK_BYTES = 1000


def weigh(config: Any, layout: Layout) -> Steps:
    """One step with one task for each block."""
    layout = replace(layout, k_max=layout.n_features)
    reg = 1.0 if config.weights.reg == "auto" else config.weights.reg
    blocks = layout.input_blocks
    solve = task(weigh_block, reg=reg, n_neighbors=config.neighbors.n_neighbors, blocks=blocks)
    arrays = (array_specs.WEIGHTS.sized(blocks, layout.n_features),)
    yield from Step("solve_weights.solve", solve, blocks.count, TASK_BYTES, arrays=arrays)
    return layout


def weigh_block(store: Store, block_index: int, reg: float, n_neighbors: int, blocks: Blocks) -> WeightReport:
    start, stop = blocks.rows(block_index)
    rows = store.read(array_specs.RAW.name, start, stop)
    store.write(array_specs.WEIGHTS.name, start, rows * reg + n_neighbors)
    return WeightReport(0.0, 0)


def embed(config: Any, layout: Layout) -> Steps:
    """A task sums all blocks, then one task runs for each block.

    The second component does not converge with `eigensolver.method: multigrid`.
    """
    solver, n_components = config.eigensolver, config.eigensolver.n_components
    total = task(
        sum_blocks, n_components=n_components, method=solver.method, tol=solver.tol, max_steps=solver.max_steps
    )
    bundles = {"_work/eigen/00000.npz": 0}
    yield from Step("solve_embedding.solve", total, 1, TASK_BYTES, runs_on=WHOLE_DATA, bundles=bundles)
    blocks = layout.input_blocks
    write = task(write_block, scale=config.embedding.scale, blocks=blocks)
    arrays = array_specs.EMBEDDING.sized(blocks, n_components), array_specs.COMPONENT.sized(blocks)
    yield from Step("solve_embedding.write", write, blocks.count, TASK_BYTES, arrays=arrays)
    return layout


def score(config: Any, layout: Layout) -> Steps:
    """One step on which no other depends."""
    score = task(score_sample, sample=config.quality.sample)
    yield from Step("measure_quality.score", score, 1, TASK_BYTES, is_measurement=True)
    return layout


def sum_blocks(
    store: Store, block_index: int, n_components: int, method: str, tol: float, max_steps: Resource[int]
) -> Solutions:
    total = store.read_all(array_specs.WEIGHTS.name).sum(axis=0)
    store.write_bundle("_work/eigen/00000", total=np.resize(total, n_components))
    values = [0.0] * n_components
    stats = {"method": method, "reason": "a toy"}
    first = Solution(1, values, values, values, [0] * n_components, True, stats)
    return Solutions([first, replace(first, converged=method != "multigrid")])


def write_block(store: Store, block_index: int, scale: str, blocks: Blocks) -> WrittenRows:
    start, stop = blocks.rows(block_index)
    total = store.read_bundle("_work/eigen/00000")["total"]
    factor = 1.0 if scale == "unit_covariance" else 0.5
    store.write(array_specs.EMBEDDING.name, start, factor * np.add.outer(np.arange(start, stop), total))
    store.write(array_specs.COMPONENT.name, start, np.zeros(stop - start, np.int32))
    return WrittenRows(0, 0)


def score_sample(store: Store, block_index: int, sample: int) -> Report:
    return Report()


TOY_STAGES = {
    "ingest": ingest.steps,
    "solve_weights": weigh,
    "solve_embedding": embed,
    "measure_quality": score,
    "write_report": write_report.steps,
}
