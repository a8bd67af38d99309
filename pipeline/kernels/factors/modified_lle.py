"""Local factors of modified locally linear embedding: several weight vectors for each point instead of one.

Zhang & Wang 2006 (MLLE: Modified Locally Linear Embedding Using Multiple Weights, NIPS 19). If the neighbours are
nearly linearly dependent, many weight vectors reconstruct the point almost equally well. MLLE uses s_i linearly
independent ones, W_i = V_i H_i + (1 - alpha_i) w_i 1'. V_i holds the s_i principal directions of least variance among
the neighbours, w_i the regularised weights of LLE, and the Householder matrix H_i makes all columns sum to 1. The
point contributes the s_i rows (W_i', -1) to F.
"""

import numpy as np

from ...core.arrays import Bools, Float64, Floats, Int64
from .lle_weights import GENERAL_POSITION, UNDERFLOW

ALIGNED = 1e-12
"""A Householder vector shorter than this counts as zero: V_i' 1 already equals alpha_i 1."""


def variances(offsets: Floats) -> Float64:
    """Eigenvalues (B, min(K, d)), descending, of the Gram matrices G = Z Z' of offsets Z (B, K, d) from the point."""
    _, n_neighbors, n_features = offsets.shape
    offsets = _without_underflow(offsets)
    if n_features < n_neighbors:
        return np.asarray(np.linalg.svd(offsets, compute_uv=False) ** 2)
    return np.asarray(np.maximum(np.linalg.eigvalsh(offsets @ offsets.transpose(0, 2, 1))[:, ::-1], 0.0))


def _without_underflow(offsets: Floats) -> Float64:
    """The offsets in float64, zero for points whose squared offsets have lost digits (``lle_weights.UNDERFLOW``)."""
    copies: Float64 = offsets.astype(np.float64)
    copies[np.einsum("bkd,bkd->b", copies, copies) < UNDERFLOW] = 0.0
    return copies


def principal_directions(offsets: Floats) -> tuple[Float64, Float64]:
    """Eigenvectors (B, K, K), in columns, and the eigenvalues of `variances` for offsets (B, K, d)."""
    _, n_neighbors, n_features = offsets.shape
    offsets = _without_underflow(offsets)
    if n_features < n_neighbors:
        vectors, singular, _ = np.linalg.svd(offsets)
        return vectors, singular**2
    values, vectors = np.linalg.eigh(offsets @ offsets.transpose(0, 2, 1))
    return vectors[:, :, ::-1], np.maximum(values[:, ::-1], 0.0)


def spread(values: Float64, n_components: int) -> Float64:
    """rho_i, (B,): variance outside the m leading directions over the variance in them; NaN if the latter is zero."""
    inside = values[:, :n_components].sum(axis=1)
    rho = np.full(len(values), np.nan)
    np.divide(values[:, n_components:].sum(axis=1), inside, out=rho, where=inside > 0)
    return rho


def modified_rows(offsets: Floats, threshold: float, reg: float, rule: str) -> tuple[Float64, Bools]:
    """Rows (B, K, K + 1) over the K neighbours and the point, and which of them (B, K) are used: the last s_i of each.

    s_i is the largest number of directions whose total variance is below ``threshold`` times that of the others; it is
    at least 1.

    Args:
        offsets: (B, K, d) neighbours minus their point, K >= 2.
        threshold: eta, the median of ``spread`` over all points.
        reg, rule: regularisation of w_i, as in ``lle_weights``. (scikit-learn always uses 1e-3 of the trace.)
    """
    _, n_neighbors, n_features = offsets.shape
    vectors, values = principal_directions(offsets)
    sizes = _null_sizes(values, n_neighbors, threshold)
    used = np.arange(n_neighbors) >= n_neighbors - sizes[:, None]
    sums = vectors.sum(axis=1)
    padded = np.zeros_like(sums)
    padded[:, : values.shape[1]] = values
    padded += _ridges(values, n_neighbors, n_features, reg, rule)[:, None]
    weights = (vectors @ (sums / padded)[:, :, None])[:, :, 0]  # w_i ~ (G_i + R_i I)^-1 1
    weights /= weights.sum(axis=1, keepdims=True)
    sums = np.where(used, sums, 0.0)
    alpha = np.linalg.norm(sums, axis=1) / np.sqrt(sizes)
    # H_i = I - 2 h h', with h along alpha_i 1 - V_i' 1, maps V_i' 1 to alpha_i 1. So each column of V_i H_i sums to
    # alpha_i.
    normal = np.where(used, alpha[:, None] - sums, 0.0)
    length = np.linalg.norm(normal, axis=1)
    normal = np.divide(normal, length[:, None], out=np.zeros_like(normal), where=length[:, None] >= ALIGNED)
    reflected = vectors - 2.0 * (vectors @ normal[:, :, None]) * normal[:, None, :]
    columns = reflected + ((1.0 - alpha)[:, None] * weights)[:, :, None]
    rows = np.full((len(offsets), n_neighbors, n_neighbors + 1), -1.0)
    rows[:, :, :n_neighbors] = columns.transpose(0, 2, 1)
    return rows, used


def _null_sizes(values: Float64, n_neighbors: int, threshold: float) -> Int64:
    """s_i, (B,): number of directions whose summed eigenvalues are below the threshold times the sum of the others."""
    leading = np.cumsum(values, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = leading[:, -1:] / leading[:, :-1] - 1.0
    sizes = (ratios < threshold).sum(axis=1) + n_neighbors - values.shape[1]
    clipped: Int64 = np.maximum(sizes, 1)
    return clipped


def _ridges(values: Float64, n_neighbors: int, n_features: int, reg: float, rule: str) -> Float64:
    """R_i, the number added to the eigenvalues, (B,)."""
    trace = values.sum(axis=1)
    if rule == "absolute":
        return np.full(len(values), reg)
    ridge: Float64 = np.where(trace > 0, reg * trace, reg)
    if rule == "when_needed" and n_neighbors <= n_features:
        ridge[(values[:, -1] > GENERAL_POSITION * trace) & (trace > 0)] = 0.0
    return ridge
