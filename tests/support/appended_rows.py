"""Runs of one job with rows appended between runs."""

import numpy as np

from lle.engine import checkpoint
from lle.storage.store import Store
from tests.support.commands import FEW, lle, write_config

N, BLOCK, MORE, K = 900, 200, 45, 8


class Night:
    """Runs of one job, each on the first n rows of some points."""

    def __init__(self, folder, points, method, block=BLOCK):
        self.folder, self.points, self.method, self.block = folder, points, method, block
        self.root = folder / "run.zarr"

    def config(self, n, rows=None):
        np.save(self.folder / "points.npy", (self.points if rows is None else rows)[:n])
        return write_config(
            self.folder, input={"kind": "npy", "path": str(self.folder / "points.npy")},
            output={"keep": 3, "report": False}, execution={"block_points": self.block},
            **{**FEW, "neighbors": {"n_neighbors": K, "method": self.method, "min_recall": 0.0}},
        )  # fmt: skip

    def __call__(self, n, *settings, rows=None):
        """Run the job on more rows; returns the store of the new version."""
        result = lle("run", self.config(n, rows), *flags(settings), "--store", self.root)
        assert not result["unchanged"]
        return Store(result["store"])


def flags(settings):
    return [word for setting in settings for word in ("--set", setting)]


def steps(store):
    return {name for _, name in checkpoint.recorded_steps(store)}


def reports(store, stage, step):
    return [report.report for report in checkpoint.read_reports(store)[stage, step]]


def lists(store):
    """(n, k) neighbours as input rows, ascending, a row for each point by input order."""
    index, ids = store.read_all("original_index"), store.read_all("_work/knn_indices")
    return np.sort(index[ids], axis=1)[np.argsort(index)]


def exact(points):
    distances = np.square(points[:, None] - points[None]).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.sort(np.argsort(distances, axis=1)[:, :K], axis=1)
