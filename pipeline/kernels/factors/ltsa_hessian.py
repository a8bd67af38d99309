"""Local factors from tangent spaces: local tangent space alignment and Hessian eigenmaps.

Both use the m leading principal components of a neighbourhood as its tangent coordinates U (K, m), orthonormal and of
mean zero. Both compute orthogonal rows q over the K points: ltsa a basis of the functions that are orthogonal to all
affine functions of U, hessian a basis of those that measure second derivatives in U. The point's contribution to M is
the sum of q q'.

- ltsa, Zhang & Zha 2004 (SIAM J. Sci. Comput. 26, 313-338), eq. 3.8: M_i = I - [1/sqrt(K), U] [1/sqrt(K), U]', here
  as F_i' F_i with the K - m - 1 rows of a basis of the complement.
- hessian, Donoho & Grimes 2003 (PNAS 100, 5591-5596), section 4: orthonormalise [1, U, all products U_a U_b] and keep
  the m (m + 1) / 2 columns that come from the products. On noisy data these few rows leave many functions free, and
  the result keeps fewer neighbours than that of ltsa (digits, 30 neighbours: trustworthiness 0.79 and 0.89). So the
  other K - m (m + 3) / 2 - 1 rows of ltsa are added with the weight sqrt(s), where s is the noise of the
  neighbourhood: its variance outside the tangent coordinates and their products, over that within the tangent. Without
  noise this is the paper's matrix; where noise is as large as the tangent it is that of ltsa. scikit-learn keeps all
  K - m - 1 columns of a full QR factorization, which equals ltsa everywhere.

If the neighbourhoods are flat, the coordinates of the manifold are null vectors of M, in addition to the constant.
"""

import numpy as np

from ...core.arrays import Float64, Floats

NOISE = 1e-3
"""Noise of a neighbourhood, as a share of the variance within the tangent, below which it counts as none."""


def tangent_coordinates(points: Floats, n_components: int) -> Float64:
    """The leading left singular vectors (B, K, m) of centred neighbourhoods (B, K, d); m <= min(K, d).

    If d >= K they are computed as eigenvectors of the Gram matrix, with d / K times less work. These are as accurate
    unless the m-th singular value is below 1e-8 of the first.
    """
    _, n_neighbors, n_features = points.shape
    centered = points.astype(np.float64)
    centered -= centered.mean(axis=1, keepdims=True)
    if n_features < n_neighbors:
        vectors: Float64 = np.linalg.svd(centered, full_matrices=False)[0]
    else:
        vectors = np.linalg.eigh(centered @ centered.transpose(0, 2, 1))[1][:, :, ::-1]
    return vectors[:, :, :n_components]


def alignment_rows(points: Floats, n_components: int) -> Float64:
    """Local factors of ltsa: (B, K - m - 1, K) orthonormal rows orthogonal to 1 and to the tangent coordinates.

    Args:
        points: (B, K, d) neighbourhoods, K >= m + 2.
        n_components: m, dimensions of the tangent spaces.
    """
    affine = _with_ones(tangent_coordinates(points, n_components))
    complete: Float64 = np.linalg.qr(affine, mode="complete")[0]
    return complete[:, :, n_components + 1 :].transpose(0, 2, 1)


def hessian_rows(points: Floats, n_components: int) -> Float64:
    """Local factors of Hessian eigenmaps: (B, K - m - 1, K) orthogonal rows, orthogonal to 1 and to the tangent.

    The first m (m + 1) / 2 have length 1, the others sqrt(s) for the noise s of the neighbourhood, or 0.

    Args:
        points: (B, K, d) neighbourhoods, K >= m (m + 3) / 2 + 1.
        n_components: m, dimensions of the tangent spaces.
    """
    tangent = tangent_coordinates(points, n_components)
    a, b = np.triu_indices(n_components)
    quadratic = np.concatenate([_with_ones(tangent), tangent[:, :, a] * tangent[:, :, b]], axis=2)
    columns: Float64 = np.linalg.qr(quadratic, mode="complete")[0]
    centered = points.astype(np.float64)
    centered -= centered.mean(axis=1, keepdims=True)
    inside = np.square(tangent.transpose(0, 2, 1) @ centered).sum(axis=(1, 2))
    explained = columns[:, :, : quadratic.shape[2]]
    outside = np.square(centered - explained @ (explained.transpose(0, 2, 1) @ centered)).sum(axis=(1, 2))
    noise = np.divide(outside, inside, out=np.zeros_like(inside), where=inside > 0)
    noise[noise < NOISE] = 0.0
    rows = columns[:, :, n_components + 1 :].transpose(0, 2, 1)
    rows[:, n_components * (n_components + 1) // 2 :] *= np.sqrt(np.minimum(noise, 1.0))[:, None, None]
    return rows


def _with_ones(tangent: Float64) -> Float64:
    n_points, n_neighbors, _ = tangent.shape
    return np.concatenate([np.full((n_points, n_neighbors, 1), n_neighbors**-0.5), tangent], axis=2)
