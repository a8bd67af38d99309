"""The barycentric weights of every point over its neighbours, a block at a time, no point waiting for another."""

import numpy as np

from pipeline import schema
from pipeline.config import Config
from pipeline.kernels.barycenter import barycenter_weights
from pipeline.plan import Layout, PlannedArray, Report, Step, Steps, block_rows
from pipeline.store import Store

BATCH_BYTES = 64 * 2**20


def steps(config: Config, layout: Layout) -> Steps:
    """solve."""
    n, k, block = layout.n_points, layout.k_max, layout.block_points
    row_bytes = layout.n_features * np.dtype(layout.dtype).itemsize
    yield Step(
        "solve_weights", "solve", solve_block, layout.point_blocks(),
        block * (6 * row_bytes + 60 * k) + 4 * BATCH_BYTES,
        {"reg": config.weights.reg, "rule": config.weights.rule, "size": block, "n_points": n},
        arrays=(PlannedArray(schema.WEIGHTS, (n, k), "float64", block),),
    )  # fmt: skip
    return layout


def solve_block(store: Store, block: int, reg: float, rule: str, size: int, n_points: int) -> Report:
    """Weights of a block; reports the reconstruction error and how many Gram matrices had no trace."""
    start, stop = block_rows(block, size, n_points)
    indices = store.read(schema.NEIGHBOR_INDICES.name, start, stop)
    rows = np.arange(start, stop)
    unique, positions = np.unique(np.concatenate([indices.ravel(), rows]), return_inverse=True)
    points = store.gather(schema.POINTS.name, unique[unique >= 0])
    positions = positions - int((unique < 0).sum())
    neighbors, own = positions[: indices.size].reshape(indices.shape), positions[indices.size :]
    weights = np.empty(indices.shape, np.float64)
    squared_error, zero_trace = 0.0, 0
    batch = max(1, BATCH_BYTES // (8 * indices.shape[1] * (points.shape[1] + indices.shape[1])))
    for first in range(0, len(rows), batch):
        part = slice(first, first + batch)
        valid = indices[part] >= 0
        solved = barycenter_weights(points[own[part]], points[neighbors[part]], valid, reg, rule)
        weights[part] = solved.weights
        squared_error += float(solved.squared_error.sum())
        zero_trace += int(solved.zero_trace.sum())
    store.write(schema.WEIGHTS.name, start, weights)
    return {"squared_error": squared_error, "zero_trace": zero_trace, "rows_read": len(points)}
