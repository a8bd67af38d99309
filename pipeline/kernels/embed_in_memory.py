"""Embed a few thousand points in memory with any method of the family, for trials with a sample."""

import numpy as np
from scipy.sparse import csr_array

from ..core.arrays import Float64, Int64
from ..core.errors import LleError
from .batches import batches
from .eigensolver.factorization import Analyses
from .eigensolver.problem import Problem
from .eigensolver.rayleigh_ritz import Tolerances
from .eigensolver.solve import bottom_eigenpairs
from .factors.cost_matrix import local_factor
from .factors.factor_rows import LocalRows, batches_of_equal_size, stack_rows
from .factors.laplacian import degrees, edge_factor, heat_scale, own_edges, partial_degrees
from .factors.lle_weights import barycenter_weights
from .factors.ltsa_hessian import alignment_rows, hessian_rows
from .factors.modified_lle import modified_rows, spread, variances
from .graph.connectivity import closed_point, disconnected_from_own_list
from .graph.repair import apply_repair, plan_repair
from .neighbors.knn import NeighborLists, exact_distances

TOL = 1e-4
MAX_BYTES = 2**31


class NotConverged(LleError):
    """A method did not reach TOL."""


def embed_in_memory(
    method: str, points: Float64, ids: Int64, n_components: int, reg: float, rule: str, analyses: Analyses | None = None
) -> Float64:
    """Coordinates (n, m) of points (n, d) by a method of the config; the eigenvectors have relative errors of TOL.

    Args:
        method: lle, modified, hessian, ltsa, laplacian (`heat_scale`) or pca.
        points: (n, d), one weak component; for lle with one closed class.
        ids: (n, K) neighbours, -1 in empty slots. Each point has at least as many as the method needs.
        n_components: m, at least 1 and below n - 1.
        reg: `weights.reg`, for lle and modified.
        rule: `weights.rule`.
        analyses: of matrices with other values, for lle; new ones are added.

    Raises:
        LleError, ValueError: the matrix cannot be factored, or has more null vectors than one.
    """
    if method == "pca":
        directions, lengths, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
        return np.asarray(directions[:, :n_components] * lengths[:n_components])
    if method == "lle":
        factor = lle_factor(points, ids, reg, rule)
        try:
            return _solve(factor, n_components, "factored", analyses=analyses)
        except NotConverged:
            # The LU is inaccurate if the random walk of W hardly ever visits the pinned point. The factor of M is not.
            return _solve(factor, n_components, "shift_invert", analyses=analyses)
    if method == "laplacian":
        return _laplacian(points, ids, n_components)
    if method == "modified":
        factor = _modified_factor(points, ids, n_components, reg, rule)
    else:
        factor = _tangent_factor(method, points, ids, n_components)
    return _solve(factor, n_components, "shift_invert", flat=method != "modified")


def repaired_lists(lists: NeighborLists, n_points: int, reverse: int | None = None) -> Int64:
    """(n, K or more) neighbour ids after ``plan_repair`` of one component, -1 in empty slots."""
    largest = np.max(lists.distances, where=np.isfinite(lists.distances), initial=0.0)
    distances = np.ldexp(lists.distances, -np.frexp(largest)[1]).astype(np.float32)  # within the range of float32
    repair = plan_repair(lists.ids, distances, np.zeros(n_points, np.int32), reverse, np.ones(1, bool))
    return apply_repair(lists.ids, distances, 0, repair.added, repair.max_neighbors)[0].astype(np.int64)


def lle_factor(points: Float64, ids: Int64, reg: float, rule: str) -> csr_array:
    """A = I - W (n, n) of LLE."""
    weights = np.concatenate(
        [
            barycenter_weights(points[part], points[np.maximum(ids[part], 0)], ids[part] >= 0, reg, rule).weights
            for part in batches(len(points), 8 * ids.shape[1] * (points.shape[1] + ids.shape[1]))
        ]
    )
    return local_factor(ids, weights, 0, len(points))


def _modified_factor(points: Float64, ids: Int64, n_components: int, reg: float, rule: str) -> csr_array:
    neighborhoods = list(batches_of_equal_size(ids, points.shape[1]))
    values = [spread(variances(points[near] - points[rows, None]), n_components) for rows, near in neighborhoods]
    threshold = float(np.nanmedian(np.concatenate(values)))
    parts = []
    for rows, near in neighborhoods:
        local = modified_rows(points[near] - points[rows, None], threshold, reg, rule)
        parts.append(LocalRows(rows, np.column_stack([near, rows]), *local))
    return stack_rows(parts, len(points), len(points))


def _tangent_factor(method: str, points: Float64, ids: Int64, n_components: int) -> csr_array:
    """Rows of F for ltsa and hessian; points outside of the lists of their neighbours join their own, as in a run."""
    joined, own = np.full(len(points), -1), disconnected_from_own_list(ids)
    joined[own] = own
    parts = []
    for rows, near in batches_of_equal_size(np.column_stack([ids, joined]), points.shape[1]):
        values = (alignment_rows if method == "ltsa" else hessian_rows)(points[near], n_components)
        parts.append(LocalRows(rows, near, values, np.any(values != 0.0, axis=2)))
    return stack_rows(parts, len(points), len(points))


def _laplacian(points: Float64, ids: Int64, n_components: int) -> Float64:
    squared = np.square(exact_distances(points, points, ids))
    t = heat_scale(float(squared[ids >= 0].mean()), float(squared[ids >= 0].max()))
    lists = np.where(ids[:, :, None] >= 0, ids[np.maximum(ids, 0)], -1)
    edges = own_edges(np.arange(len(points)), ids, squared, lists, t)
    degree = degrees(partial_degrees(edges)[1])
    factor = edge_factor(edges, degree[edges.rows], degree[edges.neighbors], len(points))
    null = np.sqrt(degree / degree.sum())
    return np.asarray(_solve(factor, n_components, "shift_invert", null=null) / null[:, None])


def _solve(
    factor: csr_array,
    n_components: int,
    method: str,
    null: Float64 | None = None,
    flat: bool = False,
    analyses: Analyses | None = None,
) -> Float64:
    problem = Problem(
        factor,
        n_components,
        closed_point(factor) if method == "factored" else 0,
        lambda: csr_array(factor.T @ factor),
        Tolerances(TOL),
        max_memory=MAX_BYTES,
        n_threads=1,
        max_steps=1,
        is_square=factor.shape[0] == factor.shape[1] and not flat and null is None,
        analyses=analyses,
        null=null,
        flat=flat,
    )
    solution = bottom_eigenpairs(problem, method)
    if not solution.converged:
        raise NotConverged(f"the eigenvectors could not be computed to a relative error of {TOL:g} in memory")
    return solution.vectors
