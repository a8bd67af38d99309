"""Quality measures of the embedding, for sampled points against all points, each with its 95 % interval.

Only the component with the most input rows is measured, because coordinates of different components cannot be compared.
The sample is drawn from its input rows, so a point counts as often as the input holds it, except in the neighbourhood
hit.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..config.models import Config
from ..core.arrays import Float64, Int64
from ..core.errors import InputError
from ..engine import checkpoint, disk_costs, task_costs
from ..engine.plan import Layout, Steps
from ..engine.plan_sizes import SURFACE_FEATURES
from ..engine.step import WHOLE_DATA, Report, Step, Work, task
from ..inputs import open_source
from ..kernels.batches import BATCH_BYTES
from ..kernels.quality import locality
from ..kernels.quality.intervals import (
    correlation_interval,
    difference_interval,
    mean_interval,
    pair_interval,
    ratio_interval,
)
from ..kernels.quality.intrinsic_dimension import maximum_likelihood
from ..kernels.quality.redundancy import MIN_POINTS, regression_errors, standardized
from ..kernels.quality.sample_quality import AXES_POINTS, AXES_WORK
from ..kernels.quality.trustworthiness import (
    TREE_POINTS,
    count_closer,
    nearest_others,
    neighbor_thresholds,
    trustworthiness,
)
from ..linalg.component_matrices import ROWS_OF_COMPONENT, input_rows, separating_columns
from ..linalg.preprocess import chunk_rows, on_principal_axes
from ..search.cell_groups import list_names
from ..search.recall import sample_rows
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store

PAIRED_POINTS = 500
"""Sampled points whose pairwise distances are compared."""
MAX_SOURCES, MIN_SOURCES = 50, 10
GEODESIC_POINTS = 2_000_000
"""Points reached from all sources together, about a microsecond each; limits the sources above the minimum."""
GEODESICS_UP_TO = 1_000_000
"""Largest number of points for which auto measures shortest paths."""


def steps(config: Config, layout: Layout) -> Steps:
    """sample -> count -> score -> geodesics -> compare."""
    n, d, row = layout.n_points, layout.n_features, layout.row_bytes
    m, k = config.eigensolver.n_components, config.neighbors.n_neighbors
    sample, seed, blocks = min(config.quality.sample, n), config.quality.seed, layout.blocks
    n_bytes = task_costs.TASK_BYTES + n * (16 * m + 28)
    n_bytes += 8 * BATCH_BYTES + 64 * (min(n, TREE_POINTS) + 3 * sample * (k + 1))
    n_bytes += (blocks.size + 4 * sample + 2 * min(3 * sample * (k + 1), n)) * row + 40 * d * chunk_rows(d, n)
    n_bytes += min(max(sample, d), AXES_POINTS) * (48 * min(max(sample, d), AXES_POINTS) + 40 * d)
    n_bytes += 4 * layout.n_input + ROWS_OF_COMPONENT * layout.n_features_input * 16
    written = sample * (row + 8 * (m + 8) + 56 * (k + 1)) + n * (8 + 8 * m)  # both bundles
    choose = task(choose_sample, sample=sample, seed=seed, n_neighbors=k, blocks=blocks, place=layout.lists)
    bundles = {"_work/quality_sample.npz": disk_costs.files(blocks.count + 1, written), "_work/embedded": 0}
    seconds = (0.05 if d <= SURFACE_FEATURES else 0.02) + sample * (1e-5 + 7.6e-7 * d) + 4e-10 * sample**2
    work = Work(seconds + 5e-11 * min(n * d * d, AXES_WORK))
    yield from _of_all_data(Step("measure_quality.sample", choose, 1, n_bytes, bundles=bundles, version=7, work=work))
    yield from count_step(layout, blocks, sample, seed, m, k)
    score = task(score_sample, n_blocks=blocks.count, sample=sample, seed=seed)
    n_bytes = task_costs.TASK_BYTES + 2 * task_costs.SCORE_BYTES + sample * (576 * k + 24 * d + 400 * m + 400)
    bundles = {f"{array_specs.POINT_QUALITY}.npz": disk_costs.files(1, 24 * sample)}
    yield from _of_all_data(Step("measure_quality.score", score, 1, n_bytes, bundles=bundles, version=9))
    if n_sources := geodesic_sources(config, n):
        yield from geodesics_step(layout, n_sources, m, sample, seed)
    if layout.label_width:
        yield from compare_step(config, layout, sample)
    return layout


def count_step(layout: Layout, blocks: Blocks, sample: int, seed: int, m: int, k: int) -> Step[Report]:
    d, row = layout.n_features, layout.row_bytes
    n_bytes = task_costs.TASK_BYTES + 2 * task_costs.SCORE_BYTES + sample * (3 * row + 16 * d + 210 * k)
    n_bytes += blocks.size * (4 * row + 32 * m + 64) + min(8192, blocks.size) * 24 * d
    n_bytes += task_costs.tree_bytes(blocks.size, d)
    bundles = {"_work/closer": disk_costs.files(blocks.count, 24 * blocks.count * sample * k)}
    count = task(count_block, blocks=blocks, sample=sample, seed=seed)
    work = Work(parallel=6e-7 * blocks.n if d <= SURFACE_FEATURES else sample * blocks.n * (9e-9 + 7.5e-11 * d))
    step = Step("measure_quality.count", count, blocks.count, n_bytes, bundles=bundles, version=2, work=work)
    return replace(step, is_measurement=True)


@dataclass(frozen=True)
class Measured:
    """A value with its 95 % interval, from a sample. high: None if infinite. chance: of random neighbours."""

    value: float
    low: float
    high: float | None
    sample: int
    n_neighbors: int | None = None
    sources: int | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Quality(Report):
    """What the steps measure, each its own; `redundancy` and `regression_residual` have a value for each coordinate."""

    n_rows: int | None = None
    differ_in: list[int] | None = None
    intrinsic_dimension: Measured | None = None
    trustworthiness: Measured | None = None
    continuity: Measured | None = None
    kept_neighbors: Measured | None = None
    pca_gain: Measured | None = None
    pca_kept_gain: Measured | None = None
    correlation_sum: Measured | None = None
    pca_correlation_sum: Measured | None = None
    procrustes_error: Measured | None = None
    redundancy: list[float] | None = None
    regression_residual: list[Measured] | None = None
    residual_variance: Measured | None = None
    residual_variance_truth: Measured | None = None
    residual_variance_affine: Measured | None = None
    neighborhood_hit: Measured | None = None
    neighborhood_hit_input: Measured | None = None


def _of_all_data(step: Step[Quality]) -> Step[Quality]:
    """A measurement that processes all points at once."""
    return replace(step, runs_on=WHOLE_DATA, is_measurement=True)


def geodesics_step(layout: Layout, n_sources: int, m: int, sample: int, seed: int) -> Step[Quality]:
    n_bytes = task_costs.TASK_BYTES + layout.n_points * (90 * layout.k_max + 32 * m + 100) + 5000 * sample
    compare = task(compare_geodesics, n_sources=n_sources, sample=sample, seed=seed)
    work = Work(1.6e-8 * n_sources * layout.n_points * layout.k_max)
    return _of_all_data(Step("measure_quality.geodesics", compare, 1, n_bytes, version=2, work=work))


def compare_step(config: Config, layout: Layout, sample: int) -> Step[Quality]:
    source = config.input.model_dump(mode="json")
    is_truth = source["kind"] == "synthetic" and source["name"] != "digits"
    state = open_source(**source).fingerprint()
    m, k, width = config.eigensolver.n_components, config.neighbors.n_neighbors, layout.label_width
    n_bytes = task_costs.TASK_BYTES + 3 * layout.block_points * (8 * width + 8) + 8 * 8 * PAIRED_POINTS**2
    n_bytes += sample * ((k + 1) * (32 + 32 * width) + 8 * layout.n_features + 24 * m + 64 * width)
    compare = task(compare_labels, is_truth=is_truth, sample=sample, seed=config.quality.seed)
    return _of_all_data(Step("measure_quality.compare", compare, 1, n_bytes, version=4, input_state=state))


def geodesic_sources(config: Config, n_points: int) -> int:
    """Number of sampled points from which shortest paths are measured; auto: none above a million points (too slow)."""
    if (n_sources := config.quality.geodesic_sources) == "auto":
        n_sources = max(MIN_SOURCES, min(MAX_SOURCES, GEODESIC_POINTS // n_points)) * (n_points <= GEODESICS_UP_TO)
    return min(n_sources, config.quality.sample, n_points)


def choose_sample(
    store: Store, block_index: int, sample: int, seed: int, n_neighbors: int, blocks: Blocks, place: str
) -> Quality:
    """Write sampled points of the component with the most rows, their embedding, and distances to their neighbours."""
    embedded, n_rows = store.read_bundle("_work/embedding"), input_rows(store)
    component = embedded["component"]
    has_place = component >= 0
    main = np.bincount(component[has_place], n_rows[has_place]).argmax()
    members = np.flatnonzero(component == main)
    embedding = embedded.pop("embedding")[members]
    k, ends = max(1, min(n_neighbors, (len(members) - 1) // 2)), np.cumsum(n_rows[members])
    chosen = np.searchsorted(ends, sample_rows(sample, seed, int(ends[-1]), stream=11), side="right")
    near = nearest_others(embedding, chosen, k)
    components = on_principal_axes(store, members, chosen, embedding.shape[1])
    near_in_pca = nearest_others(components, chosen, k)
    listed = store.gather(list_names(place)[0], members[chosen])[:, :k].astype(np.int64)
    valid = np.column_stack([np.ones(len(chosen), bool), listed >= 0])
    counts = np.maximum((listed >= 0).sum(axis=1), 1)
    listed = np.where(listed >= 0, np.searchsorted(members, listed), chosen[:, None])
    around = np.column_stack([chosen, listed])
    width = around.shape[1]  # lists of varying length may be shorter than k
    needed, positions = np.unique(members[np.hstack([around, near, near_in_pca])], return_inverse=True)
    gathered = store.gather(array_specs.POINTS.name, needed)
    points = gathered[positions[:, 0]]
    limits = [neighbor_thresholds(points, gathered, ids) for ids in np.split(positions[:, width:], 2, axis=1)]
    store.write_bundle(
        "_work/quality_sample",
        n_members=np.array(len(members)),
        ids=chosen,
        points=points,
        embedding=embedding[chosen],
        input_limits=np.sort(np.hstack(limits), axis=1),
        input_order=np.argsort(np.hstack(limits), axis=1),
        embedding_limits=neighbor_thresholds(embedding[chosen], embedding, listed),
        counts=counts,
        procrustes=locality.procrustes_errors(gathered, embedding, positions[:, :width], around, valid),
        rows=members[chosen],
        near=members[near],
        listed=np.where(valid[:, 1:], members[listed], -1),
    )
    for number, start in enumerate(range(0, blocks.n, blocks.size)):
        first, past = np.searchsorted(members, [start, start + blocks.size])
        store.write_bundle(
            f"_work/embedded/{number:05d}",
            rows=members[first:past] - start,
            embedding=embedding[first:past],
            first=np.array(first),
        )
    distances = store.gather(list_names(place)[1], members[np.unique(chosen)])[:, :n_neighbors].astype(np.float64)
    quality = Quality(int(ends[-1]), separating_columns(store, component), intrinsic_dimension(distances))
    if len(points_once := np.unique(chosen)) < MIN_POINTS:
        return quality
    sums = [
        Measured(*pair_interval(locality.shares_within_radius(table[points_once])), len(points_once))
        for table in (embedding, components)
    ]
    return replace(quality, correlation_sum=sums[0], pca_correlation_sum=sums[1])


def intrinsic_dimension(distances: Float64) -> Measured | None:
    """The dimension of the data around sampled points, from (s, k) distances to neighbours; None if they have none."""
    stored = np.finfo(np.float32)  # the largest stands for all larger ones
    complete = distances[((distances >= stored.tiny) & (distances < stored.max)).all(axis=1)]
    if distances.shape[1] < 2 or len(complete) < MIN_POINTS:
        return None
    try:
        value, low, high = maximum_likelihood(complete)
    except InputError:  # the neighbours of every point are equally far
        return None
    return Measured(value, low, high if np.isfinite(high) else None, len(complete), distances.shape[1])


def count_block(store: Store, block_index: int, blocks: Blocks, sample: int, seed: int) -> Report:
    """Count the points of a block that are closer to a sampled point than its neighbours in the other space."""
    start, stop = blocks.rows(block_index)
    embedded, chosen = store.read_bundle(f"_work/embedded/{block_index:05d}"), store.read_bundle("_work/quality_sample")
    rows, embedding, first = embedded["rows"], embedded["embedding"], int(embedded["first"])
    points = store.read(array_specs.POINTS.name, start, stop)[rows]
    store.write_bundle(
        f"_work/closer/{block_index:05d}",
        input=count_closer(chosen["points"], chosen["ids"], points, first, chosen["input_limits"]),
        embedding=count_closer(chosen["embedding"], chosen["ids"], embedding, first, chosen["embedding_limits"]),
    )
    return Report()


def score_sample(store: Store, block_index: int, n_blocks: int, sample: int, seed: int) -> Quality:
    """Trustworthiness and continuity, whose values at each point are stored, and what follows from the same ranks."""
    chosen = store.read_bundle("_work/quality_sample")
    in_input, in_embedding = np.ones_like(chosen["input_order"]), np.ones(chosen["embedding_limits"].shape, np.int64)
    for part in store.read_bundles([f"_work/closer/{b:05d}" for b in range(n_blocks)]):
        in_input += part["input"]
        in_embedding += part["embedding"]
    np.put_along_axis(in_input, chosen["input_order"], in_input.copy(), axis=1)
    ranks, of_pca = np.split(in_input, 2, axis=1)
    trusted, continuous, in_pca = (
        np.clip(trustworthiness(table, int(chosen["n_members"]), counts), 0.0, 1.0)
        for table, counts in ((ranks, None), (in_embedding, chosen["counts"]), (of_pca, None))
    )
    store.write_bundle(array_specs.POINT_QUALITY, rows=chosen["rows"], trustworthiness=trusted, continuity=continuous)
    kept, pca_kept = ((table <= ranks.shape[1]).mean(axis=1) for table in (ranks, of_pca))  # as near in the data too
    means = [*map(mean_interval, (trusted, continuous, kept, chosen["procrustes"]))]
    means += [difference_interval(in_pca, trusted), difference_interval(pca_kept, kept)]
    trust, continuity, share, procrustes, gain, kept_gain = (Measured(*mean, len(trusted)) for mean in means)
    quality = Quality(trustworthiness=trust, continuity=continuity, procrustes_error=procrustes)
    share = replace(share, n_neighbors=ranks.shape[1])
    quality = replace(quality, kept_neighbors=share, pca_gain=gain, pca_kept_gain=kept_gain)
    embedding = chosen["embedding"][np.unique(chosen["ids"], return_index=True)[1]]  # an equal point predicts itself
    if len(embedding) < MIN_POINTS:
        return quality
    errors, totals = np.square(regression_errors(embedding)), np.square(standardized(embedding))
    squares = np.array([ratio_interval(*pair) for pair in zip(errors.T, totals.T, strict=True)])
    residual_of_each = [Measured(value, low, high, len(errors)) for value, low, high in np.sqrt(squares).tolist()]
    redundancy = [0.0, *(1 - squares[1:, 0]).tolist()]
    return replace(quality, redundancy=redundancy, regression_residual=residual_of_each)


def compare_geodesics(store: Store, block_index: int, n_sources: int, sample: int, seed: int) -> Quality:
    """Residual variance: 1 - r^2 between distances in the embedding and shortest paths in the neighbour graph."""
    from scipy.spatial.distance import cdist  # a fifth of a second

    chosen = store.read_bundle("_work/quality_sample")
    sources = np.unique(np.linspace(0, len(chosen["rows"]) - 1, n_sources).astype(np.int64))
    names = array_specs.NEIGHBOR_INDICES.name, array_specs.NEIGHBOR_DISTANCES.name
    graph = locality.undirected_graph(*map(store.read_all, names))
    paths = np.array([locality.graph_distances(graph, int(row), chosen["rows"]) for row in chosen["rows"][sources]])
    straight = cdist(chosen["embedding"][sources], chosen["embedding"])
    estimate = correlation_interval(paths, straight, sources)
    return Quality(residual_variance=Measured(*estimate, len(chosen["rows"]), sources=len(sources)))


def compare_labels(store: Store, block_index: int, is_truth: bool, sample: int, seed: int) -> Quality:
    """Compare the embedding with the labels of the points, or with their true coordinates (`is_truth`)."""
    chosen = store.read_bundle("_work/quality_sample")
    if is_truth:
        return compare_truth(chosen["embedding"], labels_of(store, chosen["rows"]))
    if checkpoint.reports_of_step(store, "ingest.read_labels", dict)[0]["kind"] != "categorical":
        return Quality()
    # each point counts once: it has the label of its first row only, and equal rows can have others
    rows, first = np.unique(chosen["rows"], return_index=True)
    labels, measured = labels_of(store, rows)[:, 0], list[Measured | None]()
    chance = locality.hit_of_random_neighbors(labels)
    for key in ("near", "listed"):
        hits = locality.neighborhood_hit(labels, labels_of(store, chosen[key][first])[..., 0])
        hits = hits[np.isfinite(hits)]
        measured.append(Measured(*mean_interval(hits), len(hits), chance=chance) if len(hits) else None)
    return Quality(neighborhood_hit=measured[0], neighborhood_hit_input=measured[1])


def compare_truth(embedding: Float64, truth: Float64) -> Quality:
    """Residual variance against the truth: of distances (1 - r^2), and of the coordinates after an affine map."""
    from scipy.spatial.distance import cdist  # a fifth of a second

    paired = np.unique(np.linspace(0, len(truth) - 1, min(PAIRED_POINTS, len(truth))).astype(np.int64))
    straight, true = (cdist(table[paired], table[paired]) for table in (embedding, truth))
    of_distances = correlation_interval(true, straight, np.arange(len(paired)))
    design = np.column_stack([np.ones(len(embedding)), embedding])
    scaled = standardized(truth)
    residuals = scaled - design @ np.linalg.lstsq(design, scaled)[0]
    affine = ratio_interval(*(np.square(table).mean(axis=1) for table in (residuals, scaled)))
    distances, coordinates = Measured(*of_distances, len(paired)), Measured(*affine, len(truth))
    return Quality(residual_variance_truth=distances, residual_variance_affine=coordinates)


def labels_of(store: Store, rows: Int64) -> Float64:
    """Labels (*shape, width) of points, given by their rows in internal order (*shape); NaN for -1."""
    unique, positions = np.unique(rows, return_inverse=True)
    original = store.gather(array_specs.ORIGINAL_INDEX.name, unique[unique >= 0])
    ascending, order = np.unique(original, return_inverse=True)
    labels = store.gather(array_specs.LABEL.name, ascending)[order]
    missing = np.full((len(unique) - len(labels), labels.shape[1]), np.nan)  # of -1, the first of `unique`
    return np.concatenate([missing, labels])[positions]
