"""Local factors from tangent spaces: local tangent space alignment and Hessian eigenmaps.

Both use the m leading principal components of a neighbourhood as its tangent coordinates U (K, m), orthonormal and of
mean zero. Both compute a few orthonormal rows q over the K points: ltsa a basis of the functions that are orthogonal to
all affine functions of U, hessian a basis of those that measure second derivatives in U. The point's contribution to M
is the sum of q q'.

- ltsa, Zhang & Zha 2004 (SIAM J. Sci. Comput. 26, 313-338), eq. 3.8: M_i = I - [1/sqrt(K), U] [1/sqrt(K), U]', here
  as F_i' F_i with the K - m - 1 rows of a basis of the complement.
- hessian, Donoho & Grimes 2003 (PNAS 100, 5591-5596), section 4: orthonormalise [1, U, all products U_a U_b] and keep
  the m (m + 1) / 2 columns that come from the products. scikit-learn keeps all K - m - 1 columns of a full QR
  factorization, which equals ltsa unless K = m (m + 3) / 2 + 1.

If the neighbourhoods are flat, the coordinates of the manifold are null vectors of M, in addition to the constant.
"""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def tangent_coordinates(points: npt.NDArray[np.floating], n_components: int) -> F64:
    """The leading left singular vectors (B, K, m) of centred neighbourhoods (B, K, d); m <= min(K, d).

    If d >= K they are computed as eigenvectors of the Gram matrix, with d / K times less work. These are as accurate
    unless the m-th singular value is below 1e-8 of the first.
    """
    _, n_neighbors, n_features = points.shape
    centered = points.astype(np.float64)
    centered -= centered.mean(axis=1, keepdims=True)
    if n_features < n_neighbors:
        vectors: F64 = np.linalg.svd(centered, full_matrices=False)[0]
    else:
        vectors = np.linalg.eigh(centered @ centered.transpose(0, 2, 1))[1][:, :, ::-1]
    return vectors[:, :, :n_components]


def alignment_rows(points: npt.NDArray[np.floating], n_components: int) -> F64:
    """Local factors of ltsa: (B, K - m - 1, K) orthonormal rows orthogonal to 1 and to the tangent coordinates.

    Args:
        points: (B, K, d) neighbourhoods, K >= m + 2.
        n_components: m, dimensions of the tangent spaces.
    """
    affine = _with_ones(tangent_coordinates(points, n_components))
    complete: F64 = np.linalg.qr(affine, mode="complete")[0]
    return complete[:, :, n_components + 1 :].transpose(0, 2, 1)


def hessian_rows(points: npt.NDArray[np.floating], n_components: int) -> F64:
    """Local factors of Hessian eigenmaps: (B, m (m + 1) / 2, K) orthonormal rows, orthogonal to 1 and to the tangent.

    Args:
        points: (B, K, d) neighbourhoods, K >= m (m + 3) / 2 + 1.
        n_components: m, dimensions of the tangent spaces.
    """
    tangent = tangent_coordinates(points, n_components)
    a, b = np.triu_indices(n_components)
    quadratic = np.concatenate([_with_ones(tangent), tangent[:, :, a] * tangent[:, :, b]], axis=2)
    columns: F64 = np.linalg.qr(quadratic, mode="reduced")[0]
    return columns[:, :, n_components + 1 :].transpose(0, 2, 1)


def _with_ones(tangent: F64) -> F64:
    n_points, n_neighbors, _ = tangent.shape
    return np.concatenate([np.full((n_points, n_neighbors, 1), n_neighbors**-0.5), tangent], axis=2)
