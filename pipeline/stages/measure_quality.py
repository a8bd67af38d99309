"""How faithful the embedding is: trustworthiness and continuity of a sample against all points, and redundancy.

Measured inside the largest component, since coordinates of different components cannot be compared.
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from pipeline import memory, schema
from pipeline.config import Config
from pipeline.kernels.quality import count_closer, mean_interval, neighbor_thresholds, redundancy, trustworthiness
from pipeline.plan import Layout, Report, Step, Steps, block_rows
from pipeline.store import Store


def steps(config: Config, layout: Layout) -> Steps:
    """sample -> count -> score."""
    n, m, k, block = layout.n_points, config.eigensolver.n_components, config.neighbors.n_neighbors, layout.block_points
    sample = min(config.quality.sample, n)
    d, row = layout.n_features, layout.n_features * np.dtype(layout.dtype).itemsize
    sizes = {"m": m, "sample": sample, "d": d, "k": k}
    yield Step(
        "measure_quality", "sample", choose_sample, 1, memory.choose_quality_sample(n=n, block=block, row=row, **sizes),
        {"sample": sample, "seed": config.quality.seed, "n_neighbors": k, "size": block, "n_points": n},
        bundles=("_work/quality_sample.npz", "_work/embedded"), on_driver=True, feeds=False,
    )  # fmt: skip
    yield Step(
        "measure_quality", "count", count_block, layout.point_blocks(),
        memory.count_closer(block=block, row=row, **sizes),
        {"size": block, "n_points": n, "sample": sample, "seed": config.quality.seed}, bundles=("_work/closer",),
        feeds=False,
    )  # fmt: skip
    yield Step(
        "measure_quality", "score", score_sample, 1, memory.score(n=n, n_blocks=layout.point_blocks(), **sizes),
        {"n_blocks": layout.point_blocks(), "sample": sample, "seed": config.quality.seed}, on_driver=True, feeds=False,
    )  # fmt: skip
    return layout


def choose_sample(
    store: Store, block: int, sample: int, seed: int, n_neighbors: int, size: int, n_points: int
) -> Report:
    """Sampled points of the largest component, their embedding, and how far their neighbours are in the other space."""
    embedded = store.read_bundle("_work/embedding")
    members = np.flatnonzero(embedded["component"] == 0)
    embedding = embedded["embedding"][members]
    k = max(1, min(n_neighbors, (len(members) - 1) // 2))
    chosen = np.sort(np.random.default_rng([seed, 11]).permutation(len(members))[:sample])
    near = _without_self(np.asarray(cKDTree(embedding).query(embedding[chosen], k + 1)[1]), chosen)
    listed = store.gather(schema.KNN_INDICES.name, members[chosen])[:, :k].astype(np.int64)
    listed = np.where(listed >= 0, np.searchsorted(members, listed), chosen[:, None])
    points = store.gather(schema.POINTS.name, members[chosen])
    wanted, positions = np.unique(members[near], return_inverse=True)
    neighbors = store.gather(schema.POINTS.name, wanted)[positions.reshape(near.shape)]
    store.write_bundle(
        "_work/quality_sample", ids=chosen, points=points, embedding=embedding[chosen],
        input_limits=neighbor_thresholds(points, neighbors),
        embedding_limits=neighbor_thresholds(embedding[chosen], embedding[listed]),
    )  # fmt: skip
    for number, start in enumerate(range(0, n_points, size)):
        first, past = np.searchsorted(members, [start, start + size])
        store.write_bundle(
            f"_work/embedded/{number:05d}", rows=members[first:past] - start, embedding=embedding[first:past],
            first=np.array(first),
        )  # fmt: skip
    return {"k": k, "sample": len(chosen), "n_points": len(members)}


def _without_self(ids: npt.NDArray[np.integer], own: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Drop each row's own id from (s, k + 1) ids, or the farthest where equal points hid it."""
    keep = ids != own[:, None]
    keep[keep.all(axis=1), -1] = False
    return np.asarray(ids[keep].reshape(len(ids), -1), np.int64)


def count_block(store: Store, block: int, size: int, n_points: int, sample: int, seed: int) -> Report:
    """How many points of this block are closer to each sampled point than its neighbours in the other space."""
    start, stop = block_rows(block, size, n_points)
    embedded, chosen = store.read_bundle(f"_work/embedded/{block:05d}"), store.read_bundle("_work/quality_sample")
    rows, embedding, first = embedded["rows"], embedded["embedding"], int(embedded["first"])
    points = store.read(schema.POINTS.name, start, stop)[rows]
    store.write_bundle(
        f"_work/closer/{block:05d}",
        input=count_closer(chosen["points"], chosen["ids"], points, first, chosen["input_limits"]),
        embedding=count_closer(chosen["embedding"], chosen["ids"], embedding, first, chosen["embedding_limits"]),
    )
    return {"points": len(rows)}


def score_sample(store: Store, block: int, n_blocks: int, sample: int, seed: int) -> Report:
    """Trustworthiness, continuity and redundancy of the sample with their 95 % intervals."""
    chosen = store.read_bundle("_work/quality_sample")
    parts = [store.read_bundle(f"_work/closer/{b:05d}") for b in range(n_blocks)]
    n_members = int((store.read_bundle("_work/embedding")["component"] == 0).sum())
    found: Report = {}
    for name, space in (("trustworthiness", "input"), ("continuity", "embedding")):
        ranks = np.sum([part[space] for part in parts], axis=0) + 1
        value, low, high = mean_interval(np.clip(trustworthiness(ranks, n_members), 0.0, 1.0))
        found[name] = {"value": value, "low": low, "high": high, "sample": len(ranks)}
    embedding = chosen["embedding"]
    neighbors = min(10, len(embedding) - 1)
    found["redundancy"] = redundancy(embedding, neighbors).tolist() if neighbors >= 1 else None
    return found
