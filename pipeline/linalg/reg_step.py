"""The step that chooses weights.reg from sampled neighbourhoods of a run, and the value that a finished run used."""

from collections.abc import Generator
from dataclasses import dataclass, fields, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64, Int64
from ..core.methods import METHODS
from ..engine import current_config, task_costs
from ..engine.checkpoint import finished_blocks
from ..engine.plan import Layout
from ..engine.plan_sizes import SURFACE_FEATURES
from ..engine.step import Json, Report, Step, Work, task
from ..kernels.batches import BATCH_BYTES
from ..kernels.factors.choose_reg import SAMPLE_REGS, SURFACE_REG, WHOLE_REGS, RegChoice, reg_of_lists
from ..kernels.neighbors.knn import NO_POINT, NeighborLists, brute_neighbors, empty_lists, select_nearest
from ..kernels.trial_embedding import PATCHES, few_dimensions, patch_points, reg_by_trial, trial_points
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

STEP = "choose_reg"
STAGES = ("solve_weights", "local_factors")
SAMPLE_POINTS = (50, 1000)
SAMPLE_BYTES = 64 * 2**20
TRIAL_POINT_BYTES = 48 * 2**10
"""For a point of the trial: a third in the eigensolver, the rest for its distances to the measured points, twice."""
PATCH_POINT_BYTES = 16 * 2**10
"""For a point of a patch: twice its distances to the measured ones."""
NOT_CHOSEN_YET = 0.0
"""Value of reg in plans."""


def sample_points(n_neighbors: int, n_features: int) -> int:
    """Points to sample, so that they and their neighbours in float64 take at most SAMPLE_BYTES.

    >>> sample_points(12, 3), sample_points(12, 784), sample_points(12, 10**6)
    (1000, 823, 50)
    """
    return int(np.clip(SAMPLE_BYTES // (8 * (n_neighbors + 1) * n_features), *SAMPLE_POINTS))


def reg_for_weights(stage: str, config: Config, layout: Layout) -> Generator[Step[Report], list[Report], float]:
    """The number in weights.reg, or for auto the number that a step chooses.

    Later steps depend on the chosen number, not on this step, so an unchanged number keeps their results.
    """
    if config.weights.reg != "auto":
        return config.weights.reg
    # Only the nearest neighbours: added reverse neighbours are farther and mostly outside, which would hide the noise.
    k, d = config.k_bounds[1], layout.n_features
    sample = min(layout.n_points, sample_points(k, d))
    m, row, blocks = config.eigensolver.n_components, layout.row_bytes, layout.blocks
    has_trial = config.method == "lle"
    # At most: whether the points have few dimensions is measured later.
    trial = trial_points(layout.n_points, d, is_simple=True) if has_trial else 0
    in_patches = PATCHES * patch_points(d) if layout.n_points > trial > 0 else 0
    n_bytes = task_costs.TASK_BYTES + blocks.size * (3 * row + 16 * layout.k_max + 64) + 6 * BATCH_BYTES
    n_bytes += sample * (layout.k_max + 1) * (2 * row + 48)
    n_bytes += (trial + in_patches) * (4 * row + 64 * layout.k_max) + trial * TRIAL_POINT_BYTES
    n_bytes += in_patches * PATCH_POINT_BYTES
    rule, connects = config.weights.rule, config.graph.components == "connect"
    expected = ChosenReg(NOT_CHOSEN_YET, 0.0, 0.0, m, 0)
    choose = task(
        choose_from_sample,
        sample=sample,
        n_neighbors=k,
        n_components=m,
        has_trial=has_trial,
        rule=rule,
        connects=connects,
        n_more=max(config.more_pairs[:1], default=0),
        blocks=blocks,
    )
    [chosen] = yield from Step(
        f"{stage}.{STEP}",
        choose,
        1,
        n_bytes,
        version=11,
        expected=lambda b: expected,
        is_measurement=True,
        work=Work(
            3e-7 * layout.n_points + (trial + in_patches) * (3e-5 if d <= SURFACE_FEATURES else 2.8e-4 + 7e-7 * d)
        ),
    )
    return chosen.reg


@dataclass(frozen=True)
class ChosenReg(RegChoice, Report):
    """The choice as the report of its task."""


def choose_from_sample(
    store: Store,
    block_index: int,
    sample: int,
    n_neighbors: int,
    n_components: int,
    has_trial: bool,
    rule: str,
    connects: bool,
    n_more: int,
    blocks: Blocks,
) -> ChosenReg:
    """Choose reg from `sample` points and their nearest neighbours, and by a trial embedding.

    The samples and their order depend on the values of the input rows only, not on the order or the blocks of rows.
    """
    rows, order = _points_with_smallest_hashes(store, sample)
    ids = store.gather(array_specs.NEIGHBOR_INDICES.name, rows)[order, :n_neighbors].astype(np.int64)
    needed = np.union1d(rows, ids[ids >= 0])
    points = store.gather(array_specs.POINTS.name, needed)
    positions = np.where(ids >= 0, np.searchsorted(needed, ids), -1)
    chosen = reg_of_lists(points[np.searchsorted(needed, rows[order])], points, positions, n_components)
    if has_trial:
        trial = trial_points(blocks.n, points.shape[1], few_dimensions(chosen))
        rows, order = _points_with_smallest_hashes(store, trial)
        points = store.gather(array_specs.POINTS.name, rows)[order].astype(np.float64)
        is_whole = trial == blocks.n
        lists = _stored_lists(store, order) if is_whole else None

        def patches() -> list[Float64]:
            size = patch_points(points.shape[1])
            return [] if is_whole or not size else _patches(store, points[:PATCHES], size)

        chosen = reg_by_trial(
            points, chosen, n_neighbors, n_components, rule, is_whole, lists, connects, n_more, patches
        )
    else:
        chosen = replace(chosen, no_trial="method")
    return ChosenReg(**vars(chosen), message=f"weights.reg: {chosen.reg:g}: {chosen.reason}")


def _stored_lists(store: Store, order: Int64) -> NeighborLists:
    """The neighbours of all points (n,) in this order, numbered by it, with those of the repair and the links."""
    ids = store.read_all(array_specs.NEIGHBOR_INDICES.name)[order].astype(np.int64)
    distances = store.read_all(array_specs.NEIGHBOR_DISTANCES.name)[order]
    return NeighborLists(np.where(ids >= 0, np.argsort(order)[ids], -1), distances.astype(np.float64))


def _patches(store: Store, centers: Float64, n_points: int) -> list[Float64]:
    """The points (s, d) around each center (c, d), in the order of their values.

    They are nearer than the n_points-th nearest one, so they do not depend on the order of equally far points.
    """
    no_ids = np.full(len(centers), NO_POINT)
    lists = empty_lists(len(centers), n_points)
    for start, block in store.in_blocks(array_specs.POINTS.name):
        in_block = brute_neighbors(centers, no_ids, block, np.arange(start, start + len(block)), n_points)
        ids, distances = (np.hstack(pair) for pair in zip(lists, in_block, strict=True))
        lists = select_nearest(ids, distances, no_ids, n_points)
    inside = lists.distances < lists.distances[:, -1:]
    rows = [np.sort(ids[within]) for ids, within in zip(lists.ids, inside, strict=True)]
    patches = [store.gather(array_specs.POINTS.name, ids).astype(np.float64) for ids in rows]
    return [patch[np.lexsort(patch.T)] for patch in patches]


def _points_with_smallest_hashes(store: Store, sample: int) -> tuple[Int64, Int64]:
    """The points whose input rows have the smallest hashes: (ids, ascending; their order by hash)."""
    hashes, rows = np.empty(0, np.uint64), np.empty(0, np.int64)
    blocks = zip(
        store.in_blocks(array_specs.ROW_HASH.name), store.in_blocks(array_specs.REPRESENTATIVE.name), strict=True
    )
    for (start, block), (_, representative) in blocks:
        distinct = np.flatnonzero(representative == np.arange(start, start + len(representative)))
        hashes, rows = np.concatenate([hashes, block[distinct, 0]]), np.concatenate([rows, distinct + start])
        smallest = np.argsort(hashes)[:sample]
        hashes, rows = hashes[smallest], rows[smallest]
    by_row, ids = np.argsort(rows), np.empty(len(rows), np.int64)
    for start, original in store.in_blocks(array_specs.ORIGINAL_INDEX.name):
        chosen = np.flatnonzero(np.isin(original, rows))
        ids[by_row[np.searchsorted(rows, original[chosen], sorter=by_row)]] = chosen + start
    order = np.argsort(ids)
    return ids[order], np.argsort(order)


def reg_of_run(store: Store, config: Json) -> float:
    """The value of reg that a run used; `config` is the config as stored.

    Methods without barycentric weights choose no value for auto; they place new points with SURFACE_REG.
    """
    reg = config["weights"]["reg"]
    if reg != "auto":
        return float(reg)
    for stage in STAGES:
        record = current_config.current_record(store, f"{stage}.{STEP}")
        if record is not None and (reports := finished_blocks(store, f"{stage}.{STEP}", record.fingerprint)):
            return float(reports[0].report["reg"])
    return SURFACE_REG


def describe_reg(method: str, reg: float | str, chosen: Json | None) -> Json | None:
    """The value of weights.reg and its reason, for reports; `chosen` is the report of the step, None before it ran.

    The value is None while it is unknown. The result is None for methods that do not use reg.
    """
    if not METHODS[method].has_reg:
        return None
    if reg != "auto":
        return {"value": reg, "reason": "set in the config", "no_trial": None}
    if chosen is None:
        candidates = ", ".join(f"{value:g}" for value in sorted({*SAMPLE_REGS, *WHOLE_REGS}))
        reason = f"auto: one of {candidates}, chosen by the noise and a trial after the search"
        return {"value": None, "reason": reason, "no_trial": None}
    choice = RegChoice(**{field.name: chosen[field.name] for field in fields(RegChoice) if field.name in chosen})
    return {"value": choice.reg, "reason": choice.reason, "no_trial": choice.no_trial}
