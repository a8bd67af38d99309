"""Trial runs of `lle suggest`: embed the sample alone for each candidate, in a temporary folder, and measure it."""

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
from ..engine.progress import RunProgress
from ..kernels.neighbors.knn import exact_neighbors
from ..kernels.quality.trustworthiness import count_closer, neighbor_thresholds, trustworthiness
from ..storage.store import Store
from . import run as runs

COMPARED_NEIGHBORS = 12
"""Neighbours for trustworthiness and continuity; the same for all candidates, so that their values are comparable."""

LAST_BLOCK_SECONDS = 10.0
"""Longest wait for the current block after a signal; blocks of a sample take less than a second."""

PLAIN: dict[str, Any] = {"metric": "euclidean", "k_min": "auto", "k_max": "auto",
                         **dict.fromkeys(("radius", "eta", "k_per_point", "precomputed"))}  # fmt: skip
"""Settings for n_neighbors neighbours of every point. Other rules refer to the spacing, columns and rows of the whole
input. The metric is euclidean because rows of the sample are already divided by their lengths for cosine."""

Float64 = npt.NDArray[np.float64]


class Trial(NamedTuple):
    """Measures of a candidate from an embedding of the sample alone (s points)."""

    n_components_weak: int
    closed_classes: int
    in_largest: npt.NDArray[np.bool_]
    """(s,) True for points of the largest component, which are embedded."""
    trustworthiness: Float64
    """(s,) of each point; 0 outside of the largest component."""
    continuity: Float64
    """(s,) of each point; 0 outside of the largest component."""


@contextmanager
def trial_folder() -> Iterator[Path]:
    """A temporary folder, deleted at the end, also after a signal: the current block is waited for first."""
    with tempfile.TemporaryDirectory(prefix="lle-suggest-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            wait_for_blocks(LAST_BLOCK_SECONDS)


def run_trial(config: Config, points: npt.NDArray[Any], folder: Path, changes: dict[str, dict[str, Any]]) -> Trial:
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
    metrics = runs.run(changed, False, RunProgress(StringIO())).metrics
    store = Store(changed.output.store)
    inside = store.read_all("component") == 0
    scores = np.zeros((2, len(points)))
    scores[:, inside] = faithfulness(points[inside], store.read_all("embedding")[inside])
    return Trial(metrics["n_components_weak"], metrics["closed_classes"], inside, *scores)


def faithfulness(points: npt.NDArray[Any], embedding: Float64) -> tuple[Float64, Float64]:
    """(trustworthiness, continuity), (n,) each, of n points (n, d) with the embedding (n, m)."""
    k = max(1, min(COMPARED_NEIGHBORS, (len(points) - 1) // 2))
    scores = []
    for space, other in ((points, embedding), (embedding, points)):
        rows = np.arange(len(other))
        near = exact_neighbors(other, rows, other, rows, k).ids
        ranks = count_closer(space, rows, space, 0, neighbor_thresholds(space, space[near])) + 1
        scores.append(np.clip(trustworthiness(ranks, len(points)), 0.0, 1.0))
    return scores[0], scores[1]


def trial_or_error(
    config: Config, points: npt.NDArray[Any], folder: Path, changes: dict[str, dict[str, Any]]
) -> Trial | str:
    """The trial of a candidate, or the error message if it failed. Raises Interrupted."""
    try:
        return run_trial(config, points, folder, changes)
    except Interrupted:
        raise
    except LleError as error:
        return str(error)
