"""Recall of the neighbour lists on a sample against exact search; more overlap while it is too low."""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64, Int64
from ..core.errors import BoundsNotMet
from ..engine import disk_costs, task_costs
from ..engine.plan import Layout
from ..engine.plan_sizes import KDTREE_FEATURES, neighbor_method
from ..engine.step import Count, Report, Step, Work, task
from ..kernels.neighbors.knn import Hits, exact_distances, nearest_of_each, points_within, recall_per_point
from ..kernels.neighbors.list_lengths import exact_reach, true_counts
from ..kernels.quality.intervals import mean_interval
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store
from .cell_groups import Round, first_round, list_names, next_round, search_groups
from .variable_neighborhoods import radius_of


def raise_recall(config: Config, layout: Layout) -> Generator[Step[Report], list[Report], Round]:
    """Measure the recall, and search with more overlap while it is too low; returns the round whose lists are used.

    Lists of varying length are not searched again. Raises BoundsNotMet if the recall stays too low.
    """
    neighbors, k = config.neighbors, layout.k_max
    method = neighbor_method(neighbors.method, layout.n_points, layout.n_features)
    max_overlap = neighbors.max_overlap if method == "pynndescent" and not config.varies else 0
    searched, values = first_round(layout, k, neighbors.seed), []
    while True:
        recall = yield from _measure(config, layout, searched)
        values.append(recall.value)
        if recall.value >= neighbors.min_recall:
            return searched
        if searched.overlap >= max_overlap:
            raise BoundsNotMet(below_bound(recall, values, config))
        remark = (
            f"recall {recall.value:.4f} is below neighbors.min_recall {neighbors.min_recall}: searching each point "
            f"in {min(2 * searched.overlap, max_overlap)} groups of cells after {searched.overlap} "
            f"(neighbors.max_overlap {max_overlap})"
        )
        searched = next_round(searched, max_overlap, layout, k, neighbors.seed, remark)
        yield from search_groups(layout, k, searched, searched.lists)


def _measure(config: Config, layout: Layout, searched: Round) -> Generator[Step[Report], list[Report], "Recall"]:
    """The steps that measure the recall of the lists of a round; returns the report of the recall."""
    n, k, d, row, place = layout.n_points, layout.k_max, layout.n_features, layout.row_bytes, searched.place
    sample, seed, blocks = min(config.quality.sample, n), config.quality.seed, layout.blocks
    rule = None
    if config.varies:
        rule = ListRule(config.neighbors.k_per_point is not None, radius_of(config), config.k_bounds[0])
    choose = task(choose_sample, sample=sample, seed=seed, n_points=n, rule=rule, place=place)
    n_bytes = task_costs.TASK_BYTES + task_costs.SCORE_BYTES + 3 * blocks.size * row
    n_bytes += (sample + min(n, sample * k)) * (row + 8) + sample * (4 * row + 64 * k)
    bundles = {f"{place}/recall_sample.npz": disk_costs.files(1, sample * (row + 24 + 8 * k))}
    yield from Step(searched.key("mend_graph.choose_sample"), choose, 1, n_bytes, bundles=bundles, is_measurement=True)
    n_bytes = task_costs.TASK_BYTES + 3 * blocks.size * row + task_costs.tree_bytes(blocks.size, d)
    n_bytes += (
        sample * k * (200 + (24 * d if d <= KDTREE_FEATURES else 0)) + sample * (3 * row + 24 * d) + 4096 * 24 * d
    )
    hits = min(4, blocks.count) * sample * k  # many more than the listed ones, if lists miss many neighbours
    near = yield from Step(
        searched.key("mend_graph.sample_exact"),
        task(sample_exact, sample=sample, seed=seed, blocks=blocks, place=place),
        blocks.count,
        n_bytes,
        bundles={f"{place}/exact": disk_costs.files(blocks.count, 24 * hits)},
        expected=lambda b: Count(0),
        is_measurement=True,
        work=Work(parallel=n * (3e-7 + 1.1e-7 * d)),
    )
    n_bytes = task_costs.TASK_BYTES + sample * k * 300 + 100 * sum(report.count for report in near)
    measure = task(measure_recall, sample=sample, seed=seed, blocks=blocks, rule=rule, place=place)
    key, expected = searched.key("mend_graph.measure_recall"), Recall(1.0, 1.0, 1.0, sample)
    [recall] = yield from Step(key, measure, 1, n_bytes, expected=lambda b: expected, is_measurement=True)
    return recall


@dataclass(frozen=True)
class Recall(Report):
    """The recall with its 95 % interval, on so many points."""

    value: float
    low: float
    high: float
    sample: int


@dataclass(frozen=True)
class ListRule:
    """How the number of neighbours of a list is determined: by the input (`given`), or a radius and a least number."""

    given: bool
    radius: float | None
    k_min: int


def below_bound(recall: Recall, values: list[float], config: Config) -> str:
    """The message for a recall below neighbors.min_recall; `values` are the recalls of all rounds."""
    overlap = config.neighbors.max_overlap
    earlier = ", ".join(f"{value:.4f}" for value in values[:-1])
    raised = (
        f" in {overlap} groups a point (neighbors.max_overlap) after {earlier} with less overlap" if earlier else ""
    )
    advice = "Raise neighbors.max_overlap, use" if earlier else "Use"
    return (
        f"recall: neighbors.min_recall is {config.neighbors.min_recall}, measured {recall.value:.4f} "
        f"(95 % interval {recall.low:.4f} to {recall.high:.4f}, {recall.sample} points against exact "
        f"search){raised}. {advice} neighbors.method: kdtree or brute (exact), raise n_neighbors, reduce the features "
        f"with preprocess.pca, or lower min_recall"
    )


def sample_rows(sample: int, seed: int, n_points: int, stream: int = 5) -> Int64:
    """A random sample of the rows 0 to n_points - 1, ascending; each use has a random stream of its own."""
    return np.sort(np.random.default_rng([seed, stream]).permutation(n_points)[:sample])


def choose_sample(
    store: Store, block_index: int, sample: int, seed: int, n_points: int, rule: ListRule | None, place: str
) -> Report:
    """Write the sampled points, the distances of their listed neighbours, and the radius of the exact search."""
    rows = sample_rows(sample, seed, n_points)
    points = store.gather(array_specs.POINTS.name, rows)
    listed, lengths = list_names(place)
    stored = store.gather(lengths, rows).astype(np.float64)
    n_required = wanted_counts(store, rows, stored, rule)
    radii = exact_reach(stored, rule.radius if rule else None)
    short = np.isfinite(stored).sum(axis=1) < n_required  # a list with empty slots gives no radius
    radii[short] = radii[~short].max(initial=0.0)
    with np.errstate(over="ignore"):  # a radius beyond float32 becomes infinite
        radii = np.nextafter(radii.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    listed_ids = store.gather(listed, rows).astype(np.int64)
    unique, positions = np.unique(listed_ids, return_inverse=True)
    neighbors = store.gather(array_specs.POINTS.name, unique[unique >= 0])
    positions -= int((unique < 0).sum())
    distances = exact_distances(points, neighbors, positions)
    counts = {"wanted": n_required} if rule else {}
    name = f"{place}/recall_sample"
    store.write_bundle(name, rows=rows, points=points, radii=radii, distances=distances, **counts)
    return Report()


def wanted_counts(store: Store, rows: Int64, distances: Float64, rule: ListRule | None) -> Int64:
    """The required number of neighbours of each sampled point (s,), as far as it is known before exact search."""
    if rule is None:
        return np.full(len(rows), distances.shape[1])
    if rule.given:
        return np.asarray(store.gather(array_specs.K_PER_POINT.name, rows).astype(np.int64))
    if rule.radius is not None:
        return np.full(len(rows), rule.k_min)
    return np.asarray(np.maximum(np.isfinite(distances).sum(axis=1), 1))


def sample_exact(store: Store, block_index: int, sample: int, seed: int, blocks: Blocks, place: str) -> Count:
    """Write the k nearest of the points of this block that are as near as the farthest listed neighbour.

    If the data have few distinct distances, many more points can be as near; only the k nearest are kept.
    """
    start, stop = blocks.rows(block_index)
    chosen = store.read_bundle(f"{place}/recall_sample")
    points = store.read(array_specs.POINTS.name, start, stop)
    hits = points_within(chosen["points"], chosen["rows"], chosen["radii"], points, start)
    hits = nearest_of_each(hits, chosen["distances"].shape[1])
    store.write_bundle(f"{place}/exact/{block_index:05d}", **hits._asdict())
    return Count(len(hits.ids))


def measure_recall(
    store: Store, block_index: int, sample: int, seed: int, blocks: Blocks, rule: ListRule | None, place: str
) -> Recall:
    """Recall of the neighbour lists on the sample, with its 95 % interval.

    For lists of varying length it is the share of the neighbours that exact search would list by the same rule.
    """
    chosen = store.read_bundle(f"{place}/recall_sample")
    distances = chosen["distances"]
    n_required = chosen.get("wanted", np.array(distances.shape[1]))
    parts = list(store.read_bundles([f"{place}/exact/{b:05d}" for b in range(blocks.count)]))
    hits = Hits(*(np.concatenate([part[key] for part in parts]) for key in Hits._fields))
    if rule and rule.radius is not None:
        n_required = true_counts(hits, rule.radius, rule.k_min, distances.shape[1], len(distances))
    value, low, high = mean_interval(recall_per_point(hits, distances, len(distances), n_required))
    return Recall(float(value), float(low), float(high), len(distances))
