"""Method pca: the coordinates of all points on their principal components, in place of the eigensolve."""

from typing import Any

import numpy as np

from ..config.models import Config
from ..engine import disk_costs
from ..engine.plan import WHOLE_DATA, Decides, Layout, Report, Runs, Step, Writes
from ..engine.step import Step as AnyStep
from ..kernels.eigensolver.rayleigh_ritz import fix_signs
from ..kernels.quality.trustworthiness import participation
from ..linalg import preprocess
from ..linalg.preprocess import chunk_rows, principal_components
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store


def project_step(config: Config, layout: Layout) -> AnyStep[Any]:
    n, d, m, block_size = layout.n_points, layout.n_features, config.eigensolver.n_components, layout.block_points
    parameters = {"n_components": m, "n_features": d, "tol": config.eigensolver.tol, "blocks": Blocks(n, block_size)}
    runs = Runs(_pca_bytes(n, d, m, block_size), place=WHOLE_DATA)
    writes = Writes(bundles=("_work/eigen",), bundle_bytes=disk_costs.eigenvectors(n=n, width=m, components=1))
    return Step("solve_embedding", "solve", project_points, 1, Decides(parameters, version=3), runs, writes)


def _pca_bytes(n: int, d: int, n_components: int, block_size: int) -> int:
    """Bytes of method pca: one block of the QR, and the scores of all points."""
    return preprocess.fit_bytes(block_size=block_size, d=d, n=n) + 24 * n * n_components


def project_points(
    store: Store, block_index: int, n_components: int, n_features: int, tol: float, blocks: Blocks
) -> Report:
    """Project all points onto their principal components: scores in input units; eigenvalues are the variances."""
    mean, components = principal_components(store, blocks.n, n_features, n_components)
    scores, covered = np.empty((blocks.n, n_components)), np.zeros((n_features, n_components))
    size = chunk_rows(n_features, blocks.n)
    for start in range(0, blocks.n, size):
        points = store.read(array_specs.POINTS.name, start, min(start + size, blocks.n)) - mean
        scores[start : start + size] = points @ components.T
        covered += points.T @ scores[start : start + size]
    variances = np.square(scores).sum(axis=0) / (blocks.n - 1)
    floor = float(np.finfo(np.float64).eps * variances[0])
    positive = np.maximum(variances, np.finfo(np.float64).tiny)
    # divided first, because squares of variances may overflow
    residuals = np.linalg.norm(covered / (blocks.n - 1) / positive - components.T * (variances > 0), axis=0)
    vectors = fix_signs(scores)
    store.write_bundle("_work/eigen/00000", rows=np.arange(blocks.n), vectors=vectors, eigenvalues=variances)
    stats = {
        "method": "pca", "reason": f"pca: singular values of all {blocks.n:,} points by QR in blocks", "factor_nnz": 0,
        "predicted_bytes": _pca_bytes(blocks.n, n_features, n_components, blocks.size), "n_solves": 0, "n_steps": 0,
        "n_refinements": 0, "rounding_floor": floor,
    }  # fmt: skip
    return {
        "n_points": blocks.n, "eigenvalues": variances.tolist(), "residuals": residuals.tolist(),
        "participation": participation(vectors).tolist(),
        "converged": bool((residuals <= np.maximum(tol, 100 * n_features * floor / positive)).all()), "stats": stats,
    }  # fmt: skip
