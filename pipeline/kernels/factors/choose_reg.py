"""Regularisation of the local Gram matrices, chosen from the noise in neighbourhoods.

`reg` decides which operator LLE approximates (Wu & Wu 2018, Annals of Statistics 46). If it is small, the weights
reproduce linear functions on the tangent space, which unrolls a surface. But they also fit noise: a third of them is
negative, and small eigenvalues of M belong to clumps of points. If it is large, the weights are nearly equal and M is
close to the squared graph Laplacian, which noise hardly changes. De Ridder & Duin 2002 (Delft PH-2002-01, section 3.2)
therefore take the mean variance outside the embedding's dimensions as the ridge. Here that variance and the noise are
measured, and each range of them has its `reg`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SURFACE_REG, BLURRED_REG, NOISY_REG = 1e-3, 3e-2, 1e-1
"""For neighbourhoods that are flat, that are thicker than the embedding has coordinates, and that are mostly noise.

Measured by tests/benchmarks/reg_choice.py, as are the bounds below; larger and smaller values were never needed.
"""

BLURRED_NOISE, NOISY_NOISE = 0.15, 0.4
"""Median noise from which on BLURRED_REG and NOISY_REG are taken. Clean surfaces have below 0.05."""

BLURRED_OUTSIDE = 0.2
"""Mean variance outside the leading directions from which on BLURRED_REG is taken.

A neighbourhood that fills one dimension more than the embedding has 0.15 there, one that fills two more has 0.25.
"""

Float64 = npt.NDArray[np.float64]


class LocalVariance(NamedTuple):
    """What makes up the variance of each neighbourhood, as shares of it; NaN where it cannot be measured."""

    noise: Float64
    """(B,) distance of the point itself from the surface of its neighbours, squared, twice; negative by chance."""
    outside: Float64
    """(B,) outside the leading m directions, in [0, 1]."""


class RegChoice(NamedTuple):
    """A value of `reg` and the medians or means it follows from."""

    reg: float
    noise: float
    outside: float
    reason: str


def local_variance(
    points: npt.NDArray[np.floating],
    neighbors: npt.NDArray[np.floating],
    valid: npt.NDArray[np.bool_],
    n_components: int,
) -> LocalVariance:
    """Noise and variance outside n_components directions of the offsets c_j = y_j - x from each point, in float64.

    Let the point and its neighbours be on a surface, plus independent noise e. Then c_j = t_j + e_j - e_x: all offsets
    share -e_x, so two different ones have the mean product E c_j'c_l = |e_x|^2, while t_j'c_l averages to 0 if the
    neighbours lie evenly around the point. The noise of an offset is twice that, e_j and e_x, and its share of the
    variance is

        noise = 2 mean_{j != l} c_j'c_l / mean_j |c_j|^2,

    which needs no estimate of the dimension, and no correction for the number of neighbours. Boundaries of a surface
    raise it (take the median over points). So do points that fill many dimensions without any noise: most of them have
    their neighbours on the inner side.

    Args:
        points: (B, d).
        neighbors: (B, K, d) coordinates of the neighbours; the content of invalid slots is ignored.
        valid: (B, K) which slots hold a neighbour. With fewer than two, or none apart from the point: NaN.
        n_components: m, the dimensions of the embedding.

    >>> x, y = np.zeros((1, 2)), np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    >>> local_variance(x, y, np.ones((1, 4), bool), n_components=1)
    LocalVariance(noise=array([-0.66666667]), outside=array([0.5]))
    """
    with np.errstate(over="ignore", invalid="ignore"):
        offsets = np.subtract(neighbors, points[:, None, :], dtype=np.float64)
        offsets[~valid] = 0.0
        scale = np.abs(offsets).max(axis=(1, 2), initial=0.0)
    counts = valid.sum(axis=1)
    usable = (counts > 1) & (scale > 0) & np.isfinite(scale)
    noise, outside = np.full(len(points), np.nan), np.full(len(points), np.nan)
    offsets = offsets[usable] / scale[usable, None, None]
    trace = np.einsum("bkd,bkd->b", offsets, offsets)
    total = offsets.sum(axis=1)
    pairs = np.einsum("bd,bd->b", total, total) - trace
    noise[usable] = 2 * pairs / ((counts[usable] - 1) * trace)
    outside[usable] = _outside(offsets, n_components) / trace
    return LocalVariance(noise, outside)


def _outside(offsets: Float64, n_components: int) -> Float64:
    """Sum of the eigenvalues of each Gram matrix of (B, K, d) offsets, without the leading ones: (B,)."""
    transposed = offsets.transpose(0, 2, 1)
    gram = offsets @ transposed if offsets.shape[1] <= offsets.shape[2] else transposed @ offsets
    trailing = np.linalg.eigvalsh(gram)[:, : max(0, gram.shape[1] - n_components)]
    return np.asarray(np.maximum(trailing, 0.0).sum(axis=1))


def choose_reg(variance: LocalVariance, n_components: int) -> RegChoice:
    """The value of `reg` for neighbourhoods like these; SURFACE_REG where none of them can be measured.

    >>> choose_reg(LocalVariance(np.array([0.6, 0.7, 0.9]), np.array([0.3, 0.3, 0.3])), n_components=2).reg
    0.1
    """
    known = np.isfinite(variance.noise)
    if not known.any():
        return RegChoice(SURFACE_REG, 0.0, 0.0, "no sampled point has two neighbours apart from it")
    noise = float(np.clip(np.median(variance.noise[known]), 0.0, 1.0))
    outside = float(variance.outside[known].mean())
    if noise >= NOISY_NOISE:
        reg = NOISY_REG
    elif noise >= BLURRED_NOISE or outside >= BLURRED_OUTSIDE:
        reg = BLURRED_REG
    else:
        reg = SURFACE_REG
    reason = f"noise is {noise:.2f} of the local variance, and {outside:.2f} of it lies outside {n_components} "
    reason += f"dimension{'s' * (n_components > 1)} ({int(known.sum()):,} points sampled)"
    return RegChoice(reg, noise, outside, reason)
