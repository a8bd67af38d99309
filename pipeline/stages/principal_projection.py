"""Method pca: the coordinates of all points on their principal components, in place of the eigensolve."""

import numpy as np

from ..config.models import Config
from ..engine import disk_costs
from ..engine.plan import Layout
from ..engine.step import WHOLE_DATA, Step, task
from ..engine.work import Work
from ..kernels.eigensolver.rayleigh_ritz import fix_signs
from ..kernels.quality.trustworthiness import participation
from ..linalg import preprocess
from ..linalg.component_solve import Solution
from ..linalg.preprocess import chunk_rows, principal_components
from ..storage import array_specs
from ..storage.blocks import Blocks
from ..storage.store import Store


def project_step(config: Config, layout: Layout) -> Step[Solution]:
    n, d, m, block_size = layout.n_points, layout.n_features, config.eigensolver.n_components, layout.block_points
    tol, blocks = config.eigensolver.tol, Blocks(n, block_size)
    project = task(project_points, n_components=m, n_features=d, tol=tol, blocks=blocks)
    n_bytes, written = _pca_bytes(n, d, m, block_size), disk_costs.eigenvectors(n=n, width=m, components=1)
    bundles, work = {"_work/eigen": written}, Work(0.4 + 1e-9 * n * d**2)
    return Step("solve_embedding.solve", project, 1, n_bytes, bundles=bundles, version=3, runs_on=WHOLE_DATA, work=work)


def _pca_bytes(n: int, d: int, n_components: int, block_size: int) -> int:
    """Bytes of method pca: one block of the QR, and the scores of all points."""
    return preprocess.fit_bytes(block_size=block_size, d=d, n=n) + 24 * n * n_components


def project_points(
    store: Store, block_index: int, n_components: int, n_features: int, tol: float, blocks: Blocks
) -> Solution:
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
    converged = bool((residuals <= np.maximum(tol, 100 * n_features * floor / positive)).all())
    values, shares = variances.tolist(), participation(vectors).tolist()
    return Solution(blocks.n, values, residuals.tolist(), shares, converged, stats)
