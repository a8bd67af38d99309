"""The barycentric weights of every point over its neighbours, computed independently for each block of points."""

from dataclasses import dataclass

import numpy as np

from ..config.models import Config
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import barycentric_weights
from ..engine.row_exchange import exchange, exchanged, positions_of, receive_rows
from ..engine.step import Report, Step, Work, task
from ..kernels.batches import BATCH_BYTES, batches
from ..kernels.factors.lle_weights import barycenter_weights
from ..linalg.reg_step import reg_for_weights
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store


def steps(config: Config, layout: Layout) -> Steps:
    """(choose_reg ->) request -> send -> solve."""
    n, k, blocks = layout.n_points, layout.k_max, layout.blocks
    reg = yield from reg_for_weights("solve_weights", config, layout)  # it needs no exchanged rows
    received = yield from exchange("solve_weights", layout, array_specs.POINTS.name, layout.row_bytes)
    n_bytes = received + 6 * BATCH_BYTES + 48 * blocks.size * k
    solve = task(solve_block, reg=reg, rule=config.weights.rule, blocks=blocks)
    arrays = array_specs.WEIGHTS.sized(blocks, k), array_specs.RECONSTRUCTION_ERROR.sized(blocks)
    deletes, d = exchanged(blocks.count), layout.n_features
    sending = n * (3e-7 + 1.5e-8 * d) if blocks.count > 1 else 0.0
    work = Work(parallel=barycentric_weights(n, d, k) + n * (1.5e-6 + 2.3e-9 * k * d) + sending)
    yield from Step(
        "solve_weights.solve", solve, blocks.count, n_bytes, arrays=arrays, deletes=deletes, version=2, work=work
    )
    return layout


@dataclass(frozen=True)
class WeightReport(Report):
    """Sum of the squared reconstruction errors of a block, and points whose neighbours coincide."""

    squared_error: float
    zero_trace: int


def solve_block(store: Store, block_index: int, reg: float, rule: str, blocks: Blocks) -> WeightReport:
    """Compute the weights of a block and the reconstruction error of each of its points."""
    start, stop = blocks.rows(block_index)
    indices = store.read(array_specs.NEIGHBOR_INDICES.name, start, stop)
    rows, points = receive_rows(store, block_index, array_specs.POINTS.name, blocks, indices)
    own_positions = np.searchsorted(rows, np.arange(start, stop))
    weights = np.empty(indices.shape, np.float64)
    errors, zero_trace = np.empty(len(own_positions)), 0
    for part in batches(len(own_positions), 8 * indices.shape[1] * (points.shape[1] + indices.shape[1])):
        neighbors = positions_of(indices[part], rows, start, stop)  # empty slots are not valid
        solved = barycenter_weights(points[own_positions[part]], points[neighbors], indices[part] >= 0, reg, rule)
        weights[part] = solved.weights
        errors[part] = solved.squared_error
        zero_trace += int(solved.zero_trace.sum())
    store.write(array_specs.WEIGHTS.name, start, weights)
    store.write(array_specs.RECONSTRUCTION_ERROR.name, start, errors)
    return WeightReport(float(errors.sum()), zero_trace)
