"""Embeddings of a sample by itself, one for each candidate, and how faithful they are: ordinary runs in a folder."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..config.models import Config, load_config, resolved, to_yaml
from ..core.errors import Interrupted, LleError
from ..engine.execute import wait_for_blocks
from ..engine.plan import KDTREE_FEATURES
from ..engine.progress import RunProgress
from ..kernels.neighbors.knn import brute_neighbors, kdtree_neighbors
from ..kernels.quality.trustworthiness import count_closer, neighbor_thresholds, trustworthiness
from ..storage.store import Store
from . import run as runs

COMPARED_NEIGHBORS = 12
"""Of trustworthiness and continuity, the same for all candidates, so that their values can be compared."""

LAST_BLOCK_SECONDS = 10.0
"""How long the block at work when a signal comes may go on; blocks of a sample take less than one."""

PLAIN: dict[str, Any] = {"metric": "euclidean", "k_min": "auto", "k_max": "auto",
                         **dict.fromkeys(("radius", "eta", "k_per_point", "precomputed"))}  # fmt: skip
"""n_neighbors for every point: rules are about the spacing, the columns and the rows of the whole input. The sample has
its directions already (cosine)."""

Float64 = npt.NDArray[np.float64]


class Pilot(NamedTuple):
    """What an embedding of the sample by itself tells about a candidate."""

    n_components_weak: int
    closed_classes: int
    in_largest: npt.NDArray[np.bool_]
    """(s,) points of the largest component, the ones embedded."""
    trustworthiness: Float64
    """(s,) of each point; 0 outside of the largest component."""
    continuity: Float64
    """(s,) the same."""


@contextmanager
def trial_folder() -> Iterator[Path]:
    """A temporary folder, gone at the end: a signal leaves none either, though a block may be at work in it."""
    with tempfile.TemporaryDirectory(prefix="lle-suggest-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            wait_for_blocks(LAST_BLOCK_SECONDS)


def run_pilot(config: Config, points: npt.NDArray[Any], folder: Path, changes: dict[str, dict[str, Any]]) -> Pilot:
    """Embed the points (s, d) with some keys of a config changed. Raises LleError."""
    path = folder / "points.npy"
    if not path.exists():
        np.save(path, points)
    data: dict[str, Any] = resolved(config) | {
        "input": {"kind": "npy", "path": str(path)}, "preprocess": {}, "execution": {"cluster": {"kind": "serial"}},
        "output": {"store": str(folder / "run.zarr"), "report": False},
        "quality": {"sample": 1, "geodesic_sources": 0},
    }  # fmt: skip
    fixed: dict[str, dict[str, Any]] = {
        "neighbors": {"min_recall": 0.0, **PLAIN}, "graph": {"components": "largest", "min_component": 1},
    }  # fmt: skip
    for section, keys in [*fixed.items(), *changes.items()]:
        data[section] = {**data[section], **keys}
    (folder / "config.yaml").write_text(to_yaml(data))
    changed = load_config(folder / "config.yaml")
    found = runs.run(changed, False, RunProgress(StringIO())).metrics
    store = Store(changed.output.store)
    inside = store.read_all("component") == 0
    scores = np.zeros((2, len(points)))
    scores[:, inside] = faithfulness(points[inside], store.read_all("embedding")[inside])
    return Pilot(found["n_components_weak"], found["closed_classes"], inside, *scores)


def faithfulness(points: npt.NDArray[Any], embedding: Float64) -> tuple[Float64, Float64]:
    """Trustworthiness and continuity of each of n points (n, d) embedded as (n, m), against all of them."""
    k = max(1, min(COMPARED_NEIGHBORS, (len(points) - 1) // 2))
    found = []
    for space, other in ((points, embedding), (embedding, points)):
        rows = np.arange(len(other))
        search = kdtree_neighbors if other.shape[1] <= KDTREE_FEATURES else brute_neighbors
        near = search(other, rows, other, rows, k).ids
        ranks = count_closer(space, rows, space, 0, neighbor_thresholds(space, space[near])) + 1
        found.append(np.clip(trustworthiness(ranks, len(points)), 0.0, 1.0))
    return found[0], found[1]


def tried(config: Config, points: npt.NDArray[Any], folder: Path, changes: dict[str, dict[str, Any]]) -> Pilot | str:
    """The pilot of a candidate, or why it has none."""
    try:
        return run_pilot(config, points, folder, changes)
    except Interrupted:
        raise
    except LleError as error:
        return str(error)
