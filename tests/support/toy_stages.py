"""Three small stages that replace those between input and report, for tests of bookkeeping.

`solve_weights` writes a block for each block of the input, `solve_embedding` sums the blocks and writes an embedding.
Input, report, markers, fingerprints, versions and locks are those of a real run, at a tenth of its cost.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from lle.engine.plan import WHOLE_DATA, Decides, Layout, Report, Runs, Step, Steps, Writes
from lle.stages import ingest, write_report
from lle.storage import array_specs
from lle.storage.array_specs import ArraySpec, PlannedArray
from lle.storage.blocks import Blocks
from lle.storage.store import Store

TASK_BYTES = 1000


def weigh(config: Any, layout: Layout) -> Steps:
    """One step with one task for each block."""
    layout = replace(layout, k_max=layout.n_features)
    reg = 1.0 if config.weights.reg == "auto" else config.weights.reg
    yield Step(
        "solve_weights", "solve", weigh_block, layout.input_blocks(),
        Decides({"reg": reg, "n_neighbors": config.neighbors.n_neighbors, **_rows(layout)}),
        Runs(TASK_BYTES), Writes((_planned(array_specs.WEIGHTS, layout, layout.n_features),)),
        expected=lambda block: {"squared_error": 0.0, "zero_trace": 0},
    )  # fmt: skip
    return layout


def weigh_block(store: Store, block_index: int, reg: float, n_neighbors: int, blocks: Blocks) -> Report:
    start, stop = blocks.rows(block_index)
    rows = store.read(array_specs.RAW.name, start, stop)
    store.write(array_specs.WEIGHTS.name, start, rows * reg + n_neighbors)
    return {"squared_error": 0.0, "zero_trace": 0}


def embed(config: Any, layout: Layout) -> Steps:
    """A task sums all blocks, then one task runs for each block. `eigensolver.method: multigrid` does not converge."""
    n_components = config.eigensolver.n_components
    yield Step(
        "solve_embedding", "solve", sum_blocks, 1,
        Decides({"n_components": n_components, "method": config.eigensolver.method, "tol": config.eigensolver.tol}),
        Runs(TASK_BYTES, WHOLE_DATA, resources={"max_steps": config.eigensolver.max_steps}),
        Writes(bundles=("_work/eigen/00000.npz",)),
        expected=lambda block: {"converged": True},
    )  # fmt: skip
    yield Step(
        "solve_embedding", "write", write_block, layout.input_blocks(),
        Decides({"scale": config.embedding.scale, **_rows(layout)}), Runs(TASK_BYTES),
        Writes((_planned(array_specs.EMBEDDING, layout, n_components), _planned(array_specs.COMPONENT, layout))),
    )  # fmt: skip
    return layout


def score(config: Any, layout: Layout) -> Steps:
    """One step on which no other depends."""
    decides = Decides({"sample": config.quality.sample})
    yield Step("measure_quality", "score", score_sample, 1, decides, Runs(TASK_BYTES), feeds=False)
    return layout


def sum_blocks(store: Store, block_index: int, n_components: int, method: str, tol: float, max_steps: int) -> Report:
    total = store.read_all(array_specs.WEIGHTS.name).sum(axis=0)
    store.write_bundle("_work/eigen/00000", total=np.resize(total, n_components))
    values = [0.0] * n_components
    return {"eigenvalues": values, "residuals": values, "participation": values, "n_points": 1,
            "converged": method != "multigrid", "stats": {"method": method, "reason": "a toy"}}  # fmt: skip


def write_block(store: Store, block_index: int, scale: str, blocks: Blocks) -> Report:
    start, stop = blocks.rows(block_index)
    total = store.read_bundle("_work/eigen/00000")["total"]
    factor = 1.0 if scale == "unit_covariance" else 0.5
    store.write(array_specs.EMBEDDING.name, start, factor * np.add.outer(np.arange(start, stop), total))
    store.write(array_specs.COMPONENT.name, start, np.zeros(stop - start, np.int32))
    return {"rows_in_small_components": 0}


def score_sample(store: Store, block_index: int, sample: int) -> Report:
    return {}


def _rows(layout: Layout) -> dict[str, Blocks]:
    return {"blocks": Blocks(layout.n_input, layout.block_points)}


def _planned(spec: ArraySpec, layout: Layout, *tail: int) -> PlannedArray:
    dtype = "int32" if spec is array_specs.COMPONENT else "float64"
    return PlannedArray(spec, (layout.n_input, *tail), dtype, layout.block_points)


TOY_STAGES = {
    "ingest": ingest.steps, "solve_weights": weigh, "solve_embedding": embed, "measure_quality": score,
    "write_report": write_report.steps,
}  # fmt: skip
