"""Scaling (dask-ml) and principal components (Dask) over the stored blocks; the input is never in memory as a whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..clusters.connect import use_synchronous_dask
from ..core.arrays import Bools, Float64, Floats, Int64
from ..core.errors import NAMED_ROWS, InputError, Setting, listed
from ..engine import task_costs
from ..kernels.quality.sample_quality import AXES_POINTS, AXES_WORK, principal_axes
from ..storage.blocks import Blocks
from ..storage.store import Store, StoredArray

if TYPE_CHECKING:
    from dask.array import Array

TINY_RELATIVE_SPREAD = 1e-14
"""A column counts as constant up to this share of its mean: about fifty times the rounding error of a mean."""
CHUNK_BYTES = 2**26
"""Rows that are summed at a time; fixed, so that sums have the same bytes for any size of the stored blocks."""


@dataclass(frozen=True)
class Transform:
    """x -> ((x - mean) / scale - center) @ components.T, in float64; components None keeps all features.

    A column with an infinite scale is zero for every row, so it adds nothing to distances.
    """

    mean: Float64
    scale: Float64
    center: Float64 | None = None
    components: Float64 | None = None

    def __call__(self, rows: Floats) -> Float64:
        scaled = (rows.astype(np.float64) - self.mean) / self.scale
        if self.components is None or self.center is None:
            return np.asarray(scaled)
        return np.asarray((scaled - self.center) @ self.components.T)

    def left_out(self, names: Sequence[str] | None) -> str:
        """A line about the columns with an infinite scale; empty if there is none.

        >>> Transform(np.zeros(3), np.array([1.0, np.inf, 2.0])).left_out(["a", "b", "c"])
        "1 of 3 columns left out ('b'), because all sampled rows hold the same value there"
        """
        columns = np.flatnonzero(np.isinf(self.scale))
        share = f"{len(columns)} of {len(self.scale)} columns left out ({_listed(columns, names)})"
        return f"{share}, because all sampled rows hold the same value there" if len(columns) else ""


def unit_rows(rows: Floats) -> Float64:
    """Rows (n, d) divided by their Euclidean lengths, float64; rows of zeros stay as they are.

    Rows are first divided by their largest entry, so no square overflows or underflows.

    >>> unit_rows(np.array([[3e-200, 4e-200], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    scaled = np.divide(rows, largest, out=np.zeros(rows.shape), where=largest > 0)
    length = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    return np.asarray(np.divide(scaled, length, out=scaled, where=length > 0))


class Preparation(NamedTuple):
    """From input rows to points: scale and principal components, then unit length with neighbors.metric: cosine."""

    transform: Transform | None
    unit: bool

    @classmethod
    def of_run(cls, store: Store, transform: bool, unit: bool) -> "Preparation":
        """The preparation of a run; `transform`: it has scaled or projected its rows."""
        return cls(Transform(**store.read_bundle("_work/transform")) if transform else None, unit)

    def __call__(self, rows: Floats) -> tuple[Floats, Bools]:
        """(points, which of them are zero although the metric needs a direction)."""
        points = rows if self.transform is None else self.transform(rows)
        if not self.unit:
            return points, np.zeros(len(points), bool)
        points = unit_rows(points)
        return points, np.asarray(~points.any(axis=1))


def summable(points: Floats) -> Bools:
    """Which points (n, d) are so near the origin that sums of squared distances are finite."""
    return np.asarray(
        np.abs(points).max(axis=1, initial=0.0) < np.sqrt(np.finfo(np.float64).max / 1e9 / points.shape[1])
    )


def _dask_array() -> ModuleType:
    """The module dask.array, which is slow to import and rarely needed."""
    use_synchronous_dask()
    return import_module("dask.array")


def valid_rows(url: str, block_index: int, blocks: Blocks) -> Float64:
    """The valid rows of an input block (no NaN, no infinity), float64 (n_valid, d)."""
    store = Store(url)
    rows = blocks.rows(block_index)
    return np.asarray(store.read("_work/raw", *rows)[store.read("_work/valid", *rows) > 0], dtype=np.float64)


def valid_array(store: Store, n_valid: list[int], blocks: Blocks, n_features: int) -> "Array":
    """All valid rows as a Dask array, a chunk for each input block."""
    da = _dask_array()
    from dask.delayed import delayed

    read = delayed(valid_rows, pure=True)
    return da.concatenate(
        [
            da.from_delayed(read(store.url, block, blocks), (count, n_features), np.float64)
            for block, count in enumerate(n_valid)
            if count
        ]
    )


def principal_components(store: Store, n_points: int, n_features: int, n_components: int) -> tuple[Float64, Float64]:
    """Mean (d,) and leading principal components (n_components, d) of the stored points."""
    chunks = (chunk_rows(n_features, n_points), n_features)
    points = _dask_array().from_array(StoredArray(store.url, "points"), chunks, name=False, asarray=False)
    return _components(points.astype(np.float64), n_components)


def on_principal_axes(store: Store, members: Int64, chosen: Int64, m: int) -> Float64:
    """The first m principal components of some points (p,): (p, m).

    The axes are those of all of them, or of as many as AXES_WORK allows. Those of a small sample do not show what
    `method: pca` keeps: on a slightly tilted plane a roll shows its width, which its principal components hide.
    """
    sample = store.gather("points", members[chosen]).astype(np.float64)
    measured = members[:: -(-len(members) // max(AXES_POINTS, int(AXES_WORK // sample.shape[1] ** 2)))]
    center, axes = principal_axes(sample, _parts(store, measured), m)
    components, done = np.empty((len(members), axes.shape[1])), 0
    for points in _parts(store, members):
        components[done : done + len(points)] = (points - center) @ axes
        done += len(points)
    return components


def _parts(store: Store, rows: Int64) -> Iterator[Float64]:
    """Some points (p,) in parts, cut in the same way for any size of the blocks."""
    n, d = store.array("points").shape
    parts = Blocks(n, chunk_rows(d, n))
    for number, part in parts.holding(rows):
        start, stop = parts.rows(number)
        yield store.read("points", start, stop)[rows[part] - start].astype(np.float64)


def fit_transform(
    X: "Array | Floats", scale: str, pca: int | None, names: Sequence[str] | None = None, is_sample: bool = False
) -> Transform:
    """Fit the scaler and the components to rows (n, d); `names` are those of the columns, for messages.

    In a sample of the rows (`is_sample`) a constant column is left out: all rows may hold other values. Raises
    InputError for constant columns of all rows, if all columns are constant, or for too few rows for the components.
    """
    n, d = X.shape
    X = _dask_array().asarray(X, dtype=np.float64).rechunk({0: chunk_rows(d, n), 1: -1})
    mean, spread = np.zeros(d), np.ones(d)
    if scale == "standard":
        mean, spread = _standard(X, names, is_sample)
    if pca is None:
        return Transform(mean, spread)
    if pca > min(X.shape):
        raise InputError(
            f"preprocess.pca: expected at most {min(X.shape)} components for {X.shape[0]} valid rows of {d} features, "
            f"found {pca}; lower preprocess.pca"
        )
    center, components = _components((X - mean) / spread, pca)
    return Transform(mean, spread, center, components)


def _standard(X: "Array", names: Sequence[str] | None, is_sample: bool) -> tuple[Float64, Float64]:
    """Mean and standard deviation (d,) of each column; infinity for a constant column of a sample.

    A row with another value in this column is as far in it from every row of the sample. So the column changes neither
    the row's neighbours nor the weights that fit them best, and no number in the sample tells its unit.
    """
    from dask_ml.preprocessing import StandardScaler  # slow to import, rarely needed

    first = np.asarray(X[0].compute())  # sums of differences to it keep digits that sums of large numbers lose
    scaler = StandardScaler().fit(X - first)
    mean, spread = first + np.asarray(scaler.mean_), np.sqrt(np.asarray(scaler.var_))
    if len(huge := np.flatnonzero(~np.isfinite(spread))):
        raise InputError(
            f"preprocess.scale: standard expected variances in the range of float64, found larger ones in {len(huge)} "
            f"of {len(mean)} columns ({_listed(huge, names)}); divide these columns, for example by 1e100"
        )
    constant = np.flatnonzero(spread <= TINY_RELATIVE_SPREAD * np.abs(mean))
    if is_sample and len(constant) < len(mean):
        spread[constant] = np.inf
    elif len(constant):
        cure = "Use a larger sample" if is_sample else "Leave them out (drop them, or list the others in input.columns)"
        unscaled = Setting("preprocess", "scale", "none")
        raise InputError(
            f"preprocess.scale: standard divides by the standard deviation, but {len(constant)} of {len(mean)} columns "
            f"hold one value only{' in the sample' * is_sample} ({_listed(constant, names)}). {cure}, or use "
            f"{unscaled} (numbers below 1e-150 count as zero)",
            settings=(unscaled,),
        )
    return mean, spread


def _listed(columns: Int64, names: Sequence[str] | None) -> str:
    """The first columns by name, or else by number."""
    numbers = [str(column) if names is None else repr(names[column]) for column in columns.tolist()]
    return ("numbered from 0: " if names is None else "") + listed(numbers, NAMED_ROWS)


def _components(X: "Array", n_components: int) -> tuple[Float64, Float64]:
    """Mean (d,) and leading right singular vectors (n_components, d) of the centred rows.

    They are the singular vectors of R in the tall-skinny QR of the rows (Benson, Gleich & Demmel 2013, IEEE Big Data).
    Q is as large as the rows, so it is not stored; dask-ml's PCA would compute it.
    """
    mean = np.asarray(X.mean(axis=0).compute())
    vectors = np.linalg.svd(_dask_array().linalg.qr(X - mean)[1].compute(), full_matrices=False)[2][:n_components]
    largest = np.abs(vectors).argmax(axis=1)[:, None]
    return mean, vectors * np.sign(np.take_along_axis(vectors, largest, axis=1))


def chunk_rows(d: int, n: int) -> int:
    """Rows of a chunk: tall enough that the stacked R of a few chunks are not taller than one chunk."""
    return min(n, max(4 * d, CHUNK_BYTES // (8 * d)))


def fit_bytes(*, block_size: int, d: int, n: int) -> int:
    return task_costs.TASK_BYTES + task_costs.LIBRARY_BYTES + 8 * d * (8 * block_size + 6 * chunk_rows(d, n))
