"""Propose preprocess.scale from the spread of the columns (`lle init`)."""

import re
from collections.abc import Collection, Sequence

import numpy as np

from ..core.arrays import Float64
from ..core.errors import listed
from ..storage.bundles import Array

DOMINANT, DOMINANT_SHARE = 10.0, 0.2
"""A column dominates if its variance is more than DOMINANT times the mean variance of the others, and this share of the
total. It is 6 times for iris, 8 for latitude and longitude of places, 30 for age beside years of education."""
LARGEST_SPREAD = 20.0
"""Units differ if the largest standard deviation is more than this many times their lower quartile, or the smallest one
of few columns. It is 8 times for the pixels of MNIST, 4 for iris, 63 for forest cover, 550 for wine."""
FAINT = 0.01
"""Of few columns of several names, those with a smaller share of the variance are named: they hardly count."""
SMOOTH_COLUMNS, COMPONENTS = 16, 5
SMOOTH, SMOOTH_AT_PEAK = 1.5, 2.0
"""Spectra, pixels and windows of a time series have one unit: at least SMOOTH_COLUMNS columns, of which nine in ten
have a spread of at most SMOOTH times that of the next, and the widest at most SMOOTH_AT_PEAK times those beside it. So
have principal components: at least COMPONENTS columns, each at most as wide as the one before it."""
SPARSE_SHARE, COUNT_VARIANCE, MANY_COLUMNS = 0.9, 20.0, 500
"""Counts and TF-IDF weights of words have one unit: at least SMOOTH_COLUMNS columns, none with negative entries, and
this share of them 0 in most rows. These columns have 90 % of the variance; in tables of mails or insurance policies,
which need `standard`, at most 5 %. If rare words are divided by their small spread, they decide all distances. Whole
numbers in columns whose names differ only in numbers are counts if more than half of these are 0 in most rows, and no
variance is more than COUNT_VARIANCE times the mean: it is 8 times for words, 1,000 for metres. MANY_COLUMNS, such as
genes, are counts if more than half are 0 in most rows: 71 % of the neighbours of a blood cell are of its type, with
`standard` 19 %."""


@np.errstate(over="ignore", invalid="ignore")  # a run refuses numbers whose squares overflow
def propose_scale(rows: Array, names: Sequence[str] = ()) -> tuple[str, str]:
    """preprocess.scale for sampled rows (n, d), and the reason. Columns of similar spread keep their scale.

    >>> propose_scale(np.random.default_rng(0).normal(size=(99, 3)) * [1, 2, 30], ["a", "b", "age"])
    ('standard', 'age has 99 % of the variance, the others 0.31 % on average: columns of different units')
    """
    spreads = np.ma.masked_invalid(rows).std(axis=0).filled(0.0) if rows.size else np.zeros(1)
    varying = np.asarray(spreads[spreads > 0], np.float64)
    if len(varying) < 2:
        return "none", "standard: centre each column and divide it by its standard deviation"
    n, largest, families = len(varying), varying.max(), {family_of(name) for name in names}
    low = np.sort(varying)[(n - 1) // 4 if n >= SMOOTH_COLUMNS else 0]
    share = largest**2 / (varying**2).sum()
    others = (1 - share) / (n - 1)
    widest = names[int(spreads.argmax())] if len(names) else "the widest column"
    is_dominant = share > max(DOMINANT_SHARE, DOMINANT * others)
    spread = f"standard deviations from {low:.4g} to {largest:.4g}"
    if is_dominant:
        spread = f"{widest} has {_percent(share)} of the variance, the others {_percent(others)} on average"
    if not is_dominant and largest <= LARGEST_SPREAD * low:
        shares = zip(names, spreads**2 / (varying**2).sum(), strict=False)
        faint = listed([name for name, of_column in shares if 0 < of_column < FAINT])
        is_named = bool(faint) and n < SMOOTH_COLUMNS and len(families) > 1
        little = f" (less than 1 % of the variance: {faint})" * is_named
        return "none", f"{spread}: similar, so columns keep their scale{little}; standard: divide each by its own"
    if _of_one_unit(varying):
        return "none", f"{spread}, and they change smoothly from column to column: one unit; standard: divide each"
    if _are_counts(rows, spreads, families):
        return "none", f"{spread}, and most entries are 0: counts or weights of one unit; standard: divide each"
    if n < len(spreads):
        return "none", f"{spread}: standard would divide each by its own, but {len(spreads) - n} are 0"
    return "standard", f"{spread}: columns of different units"


def word_counts(names: Sequence[str], rows: Array) -> set[str]:
    """Names of the columns of rows (n, d) that count words, of the first d names; none if the rows are other numbers.

    Counts are whole numbers in many columns, of which nearly all are 0 in most rows.
    """
    is_sparse = (rows == 0).mean(axis=0) > 0.5
    are_counts = len(is_sparse) >= SMOOTH_COLUMNS and ((rows >= 0) & (rows == np.rint(rows))).all()
    if not are_counts or is_sparse.mean() < SPARSE_SHARE:
        return set()
    return {name for name, is_word in zip(names, is_sparse, strict=False) if is_word}


def family_of(name: str) -> str:
    """What the names of columns that differ only in numbers have in common."""
    return re.sub(r"\d+", "#", name)


def _percent(share: float) -> str:
    percent = 100 * share
    return "less than 0.01 %" if percent < 0.01 else f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _of_one_unit(spreads: Float64) -> bool:
    """Whether the spreads, in the order of the columns, are as those of a spectrum or of principal components."""
    if len(spreads) >= COMPONENTS and (np.diff(spreads) <= 0).all():
        return True
    steps, widest = np.exp(np.abs(np.diff(np.log(spreads)))), int(spreads.argmax())
    is_smooth = len(spreads) >= SMOOTH_COLUMNS and np.quantile(steps, 0.9) <= SMOOTH
    return bool(is_smooth and steps[max(0, widest - 1) : widest + 1].max() <= SMOOTH_AT_PEAK)


def _are_counts(rows: Array, spreads: Float64, families: Collection[str]) -> bool:
    """Whether nearly all columns are 0 in most rows and never negative, and such columns have most of the variance.

    Also if more than half of them are 0 in most rows, and they are MANY_COLUMNS, none with half of the variance, or
    whole numbers of one family of names with the variances of counts.
    """
    is_sparse = (rows == 0).mean(axis=0) > 0.5
    of_sparse = (spreads[is_sparse] ** 2).sum() / (spreads**2).sum()
    if len(spreads) < SMOOTH_COLUMNS or (rows < 0).any():
        return False
    if is_sparse.mean() >= SPARSE_SHARE and of_sparse > 0.5:
        return True
    are_small = len(families) == 1 and (spreads**2 <= COUNT_VARIANCE * rows.mean(axis=0)).all()
    are_small = are_small and (rows == np.rint(rows)).all()
    are_many = len(spreads) >= MANY_COLUMNS and (spreads**2).max() < 0.5 * (spreads**2).sum()
    return bool((are_many or are_small) and is_sparse.mean() > 0.5)
