"""Regularisation of the local Gram matrices, chosen from the noise in neighbourhoods.

`reg` decides which operator LLE approximates (Wu & Wu 2018, Annals of Statistics 46).

- With a small `reg` the weights reproduce linear functions on the tangent space, which unrolls a surface. But they
  also fit noise: about a third of them are negative, and small eigenvalues of M belong to clumps of points.
- With a large `reg` the weights are nearly equal and M is close to the squared graph Laplacian, which noise hardly
  changes.

De Ridder & Duin 2002 (Delft PH-2002-01, section 3.2) therefore use the mean variance outside the embedding's dimensions
as the ridge. This module measures that variance and the noise, and chooses a value of `reg` from them. A trial
(``trial_embedding``) can replace it by another value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ...core.arrays import Bools, Float64, Floats, Int64
from ...core.errors import counted
from ..batches import batches

SURFACE_REG, BLURRED_REG, NOISY_REG = 1e-3, 3e-2, 1e-1
"""`reg` for flat neighbourhoods, for neighbourhoods of more dimensions than the embedding, and for mostly noise.

These values and the bounds below were measured with tests/benchmarks/reg_choice.py. Smaller and larger values of `reg`
were not better on any of its data sets.
"""

BLURRED_NOISE, NOISY_NOISE = 0.15, 0.4
"""Median noise at and above which BLURRED_REG and NOISY_REG are chosen. Clean surfaces have less than 0.05."""

SAMPLE_REGS = (1e-3, 1e-2, 3e-2, 1e-1)
"""Values of a trial of a sample, ascending. With larger values the eigenproblem of all points can fail: I - W is then
nearly a random walk, and its smallest eigenvalues can be below rounding errors."""

WHOLE_REGS = (1e-3, 1e-2, 1e-1, 1.0)
"""Values of a trial of all points, ascending. The trial solves the eigenproblem of the run."""

SURFACE_LOSS, NOISY_LOSS = 0.005, 0.025
"""Differences of trustworthiness in a trial that are ignored.

In a trial of all points, of the values whose trustworthiness is at most SURFACE_LOSS below the best, the one is chosen
that keeps most of the nearest neighbours. In a sample neighbours are farther away. So there the smallest one is chosen
where there is little noise, SURFACE_REG only if there is no other. Where there is much noise, the largest one, because
a large `reg` keeps neighbours of the same class together and raises the eigenvalues of M; NOISY_LOSS, a share of the
best, replaces SURFACE_LOSS then. The first is about the standard error of a trial; the second is less than the 3 % that
a user would see.
"""

SURFACE_REG_LOSS = 0.01
"""In a sample with much noise, the largest loss of trustworthiness against SURFACE_REG, if a value above it loses less.
SURFACE_REG itself is then not chosen: M would have so many tiny eigenvalues that the eigenproblem of a million points
could not be solved."""

DENSE_REG = 1e-2
"""Least `reg` for dense points with noise below BLURRED_NOISE. On a long sheet it makes the second eigenvector a
function of the first, so it needs `embedding.coordinates: independent`."""

LESS_NOISE = 0.05
"""A sample does not represent points with noise if its own noise is smaller by more than this: the trial would choose a
small `reg`. Its noise is smaller where points are dense on a noisy surface: the neighbours in the sample are farther.
A sample with more noise, as of points on a lattice, chooses well."""

BLURRED_OUTSIDE = 0.2
"""Mean variance outside the leading directions at and above which BLURRED_REG is chosen.

This variance is 0.15 if a neighbourhood has one dimension more than the embedding, and 0.25 if it has two more.
"""


class LocalVariance(NamedTuple):
    """Parts of the variance of each neighbourhood, as shares of the total; NaN if they cannot be measured."""

    noise: Float64
    """(B,) twice the squared distance of the point from the surface of its neighbours; an estimate, can be negative."""
    outside: Float64
    """(B,) variance outside the leading m directions, in [0, 1]."""


class Quality(NamedTuple):
    """Measures of a trial embedding."""

    trustworthiness: float
    kept: float
    """Share of the nearest neighbours that are kept."""


FAILED = Quality(np.nan, np.nan)


NoTrial = Literal["method", "few points", "less noise", "failed"]
"""Why no trial was made: the method has none, the largest piece has too few points, the sample does not represent all
points (``LESS_NOISE``), or no value could be embedded."""


@dataclass(frozen=True)
class RegChoice:
    """A value of `reg`, and the measures that it was chosen from."""

    reg: float
    noise: float
    """Median noise."""
    outside: float
    """Mean variance outside the leading `n_components` directions."""
    n_components: int
    n_measured: int
    """Sampled points with two neighbours apart from them; noise and outside are 0 if there are none."""
    tried: Sequence[tuple[float, float, float]] = ()
    """Values of the trial, and trustworthiness and kept neighbours of their embeddings."""
    trial_points: int = 0
    """Points of the trial, or those that were too few or could not be embedded."""
    no_trial: NoTrial | None = None
    failed: Sequence[float] = ()
    """Values of the trial that could not be embedded."""
    has_patches: bool = False
    """Whether patches of neighbouring points were embedded beside a sample; `tried` has the mean of both."""

    @property
    def reason(self) -> str:
        """The measures in words.

        >>> RegChoice(1e-2, 0.05, 0.1, 2, 900, [(1e-3, 0.97, 0.4), (1e-2, 0.99, 0.6)], 800).reason.partition("; ")[2]
        '800 points embedded with 0.001, 0.01 have trustworthiness 0.970, 0.990 and keep 0.40, 0.60 of the neighbours'
        """
        reason = "no sampled point has two neighbours apart from it"
        if self.n_measured:
            reason = f"noise is {self.noise:.2f} of the local variance, and {self.outside:.2f} of it lies outside "
            reason += f"{counted(self.n_components, 'dimension')} ({self.n_measured:,} points sampled)"
        n_points = counted(self.trial_points, "point")
        if self.tried:
            names = ", ".join(f"{reg:g}" for reg, _, _ in self.tried)
            values = ", ".join(f"{value:.3f}" for _, value, _ in self.tried)
            kept = ", ".join(f"{value:.2f}" for _, _, value in self.tried)
            failed = f"; the trial with {', '.join(f'{reg:g}' for reg in self.failed)} failed" if self.failed else ""
            beside = " and patches of neighbouring points" * self.has_patches
            measures = f"have trustworthiness {values} and keep {kept} of the neighbours"
            return f"{reason}; {n_points}{beside} embedded with {names} {measures}{failed}"
        if self.no_trial is None:
            return reason
        causes: dict[NoTrial, str] = {
            "method": "modified LLE hardly depends on reg",
            "few points": f"the largest piece of the sample has only {n_points}",
            "less noise": f"a sample of {n_points} has less noise",
            "failed": f"{n_points} could not be embedded with any value",
        }
        return f"{reason}; no trial: {causes[self.no_trial]}"


def local_variance(points: Floats, neighbors: Floats, valid: Bools, n_components: int) -> LocalVariance:
    """Noise and variance outside n_components directions of the offsets c_j = y_j - x from each point, in float64.

    Assume that the point and its neighbours lie on a surface, plus independent noise e. Then c_j = t_j + e_j - e_x. All
    offsets share -e_x, so two different offsets have the mean product E c_j'c_l = |e_x|^2; t_j'c_l averages to 0 if the
    neighbours lie evenly around the point. An offset contains the noise of two points, e_j and e_x, so the share of
    noise in its variance is

        noise = 2 mean_{j != l} c_j'c_l / mean_j |c_j|^2.

    This needs no estimate of the dimension, and no correction for the number of neighbours. Boundaries of a surface
    raise the estimate, so callers take the median over points. Points that fill many dimensions without noise raise it
    as well: most of them have their neighbours on the inner side.

    Args:
        points: (B, d).
        neighbors: (B, K, d) coordinates of the neighbours; the content of invalid slots is ignored.
        valid: (B, K) which slots hold a neighbour. The result is NaN for points with fewer than two neighbours, and
            for points whose neighbours all coincide with them.
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
    transposed = offsets.transpose(0, 2, 1)
    gram = offsets @ transposed if offsets.shape[1] <= offsets.shape[2] else transposed @ offsets
    trailing = np.linalg.eigvalsh(gram)[:, : max(0, gram.shape[1] - n_components)]
    outside[usable] = np.maximum(trailing, 0.0).sum(axis=1) / trace
    return LocalVariance(noise, outside)


def choose_reg(variance: LocalVariance, n_components: int) -> RegChoice:
    """The value of `reg` for these neighbourhoods; SURFACE_REG if none of them can be measured.

    >>> choose_reg(LocalVariance(np.array([0.6, 0.7, 0.9]), np.array([0.3, 0.3, 0.3])), n_components=2).reg
    0.1
    """
    known = np.isfinite(variance.noise)
    if not known.any():
        return RegChoice(SURFACE_REG, 0.0, 0.0, n_components, 0)
    noise = float(np.clip(np.median(variance.noise[known]), 0.0, 1.0))
    outside = float(variance.outside[known].mean())
    if noise >= NOISY_NOISE:
        reg = NOISY_REG
    elif noise >= BLURRED_NOISE or outside >= BLURRED_OUTSIDE:
        reg = BLURRED_REG
    else:
        reg = SURFACE_REG
    return RegChoice(reg, noise, outside, n_components, int(known.sum()))


def reg_of_lists(queries: Floats, points: Floats, ids: Int64, n_components: int) -> RegChoice:
    """`choose_reg` for queries (q, d) and their neighbours, at the positions `ids` (q, K) of the points (n, d), -1 in
    empty slots; computed in batches."""
    variances = [
        local_variance(queries[part], points[np.maximum(ids[part], 0)], ids[part] >= 0, n_components)
        for part in batches(len(ids), 8 * ids.shape[1] * (points.shape[1] + ids.shape[1]))
    ]
    joined = LocalVariance(*(np.concatenate(column) for column in zip(*variances, strict=True)))
    return choose_reg(joined, n_components)


def choose_by_trial(
    local: RegChoice,
    sample: RegChoice | None,
    measure: Callable[[float], Quality],
    n_points: int,
    is_whole: bool = False,
    is_independent: bool = False,
) -> RegChoice:
    """The value of SAMPLE_REGS or WHOLE_REGS whose embedding keeps neighbours best; that of `local` without a trial.

    A sample with less noise would choose too small a value. Then there is no trial if the noise of all points is
    BLURRED_NOISE or more, or if coordinates are independent.

    Of all points it is the value within SURFACE_LOSS of the best trustworthiness that keeps most neighbours. Of a
    sample it is the smallest one below NOISY_NOISE, but SURFACE_REG only if there is no other: with all points it is
    often much worse. From NOISY_NOISE on it is the largest one within NOISY_LOSS and, if possible, within
    SURFACE_REG_LOSS of SURFACE_REG. Below NOISY_NOISE values are not tried after one that no larger value can exceed by
    more than SURFACE_LOSS. A value after one that is far below the best is tried: the trustworthiness can rise again.

    Args:
        local: choice from neighbourhoods among all points.
        sample: choice from neighbourhoods among the points of the trial; None if they are those among all points.
        measure: the quality of the trial embedding with a value of `reg`.
        n_points: points of the trial.
        is_whole: the trial embeds all points, not a sample of them.
        is_independent: eigenvectors that are functions of others are replaced (`embedding.coordinates`).

    >>> clean = RegChoice(1e-3, 0.0, 0.0, 2, 900)
    >>> quality = {1e-3: (0.85, 0.4), 1e-2: (0.99, 0.5), 1e-1: (0.988, 0.6), 1.0: (0.98, 0.7)}
    >>> choose_by_trial(clean, None, lambda reg: Quality(*quality[reg]), 900, True).reg
    0.1
    """
    local = replace(local, trial_points=n_points)
    is_noisy = local.noise >= NOISY_NOISE
    has_less = sample is not None and local.noise - sample.noise > LESS_NOISE
    if has_less and (local.noise >= BLURRED_NOISE or is_independent):
        return replace(local, reg=max(local.reg, DENSE_REG), no_trial="less noise")
    regs = np.array(WHOLE_REGS if is_whole else SAMPLE_REGS)
    quality, kept = np.full((2, len(regs)), np.nan)
    for position, reg in enumerate(regs.tolist()):
        quality[position], kept[position] = measure(reg)
        if not is_noisy and quality[position] >= 1 - SURFACE_LOSS:
            break
    tried = np.isfinite(quality)
    if not tried.any():
        return replace(local, no_trial="failed")
    best = quality[tried].max()
    good = quality >= best - SURFACE_LOSS
    if is_whole:
        chosen = np.argmax(np.where(good, kept, -1.0))
    else:
        above = regs > SURFACE_REG
        if is_noisy:
            good = quality >= (1 - NOISY_LOSS) * best
            above &= quality >= (1 - SURFACE_REG_LOSS) * quality[0]
        better = good & above
        chosen = np.flatnonzero(better if better.any() else good)[-1 if is_noisy else 0]
    values = list(zip(*(column[tried].tolist() for column in (regs, quality, kept)), strict=True))
    failed = regs[: position + 1][~tried[: position + 1]].tolist()
    return replace(local, reg=float(regs[chosen]), tried=values, failed=failed)
