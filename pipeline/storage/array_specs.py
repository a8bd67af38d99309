"""All arrays of a run: name, dimensions, meaning, unit and compression.

The tables of arrays in docs/reference/store.md and in the report are made from this module. Arrays under `_work/` are
intermediate results. They stay for an interrupted or changed run, unless a step `deletes` them.
"""

import math
from dataclasses import dataclass

import numpy as np

from .blocks import Blocks

FORMAT_VERSION = 2
FLOATS, IDS, INPUT_UNITS = "float32 or float64", "int32 or int64", "input units"
LISTS = ("point", "neighbor")


@dataclass(frozen=True)
class ArraySpec:
    """One kind of array. `dims` names the axes; the first axis is divided into blocks.

    `parts` > 0 stores each block as one shard of that many chunks, for arrays that are read in slices smaller than a
    block.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    meaning: str
    unit: str = ""
    parts: int = 0

    def sized(self, blocks: Blocks, *widths: int, dtype: str = "") -> "PlannedArray":
        """The array of these rows, with the lengths of its further axes; `dtype` where the spec allows several."""
        return PlannedArray(self, (blocks.n, *widths), dtype or self.dtype, blocks.size)


POINTS = ArraySpec(
    "points", ("point", "feature"), FLOATS, "unique, preprocessed points in internal order", INPUT_UNITS, parts=32
)
ORIGINAL_INDEX = ArraySpec("original_index", ("point",), "int64", "input row of each internal row")
NEIGHBOR_INDICES = ArraySpec(
    "neighbor_indices", LISTS, IDS, "internal ids of the neighbours, self excluded, by distance; -1 pads"
)
NEIGHBOR_DISTANCES = ArraySpec(
    "neighbor_distances", LISTS, "float32", "Euclidean distance to each neighbour; inf pads", INPUT_UNITS
)
WEIGHTS = ArraySpec("weights", LISTS, "float64", "barycentric weights; rows sum to 1; 0 pads")
RECONSTRUCTION_ERROR = ArraySpec(
    "reconstruction_error",
    ("point",),
    "float64",
    "squared distance of each point from its reconstruction by its neighbours",
    "squared input units",
)
DEGREE = ArraySpec("degree", ("point",), "float64", "summed weights of each point's edges (laplacian)")
COMPONENT = ArraySpec(
    "component",
    ("input row",),
    "int32",
    "component of the graph, 0 the largest; -1 = not embedded, -2 = placed among the nearest embedded points",
)
EIGENVALUES = ArraySpec(
    "eigenvalues",
    ("component", "eigenpair"),
    "float64",
    "||F v||^2 of all computed pairs, ascending, without the zero one; pca: variances",
)
EMBEDDING = ArraySpec(
    "embedding", ("input row", "coordinate"), "float64", "the embedding in input order; NaN = not embedded"
)
DISTANCE_RATIO = ArraySpec(
    "distance_ratio", ("input row",), "float64", "placed rows: distance to the k-th neighbour over the neighbours' own"
)
LABEL = ArraySpec("label", ("input row", "label"), "float64", "labels or true coordinates; only colour the picture")
ARRAYS = tuple(spec for spec in vars().values() if isinstance(spec, ArraySpec))
"""The results; the arrays below are intermediate ones."""

RAW = ArraySpec("_work/raw", ("input row", "feature"), FLOATS, "the input as read", INPUT_UNITS)
ROW_HASH = ArraySpec("_work/row_hash", ("input row", "half"), "uint64", "128-bit hash of each row")
VALID = ArraySpec("_work/valid", ("input row",), "uint8", "1 where every number of the row is finite")
REPRESENTATIVE = ArraySpec(
    "_work/representative", ("input row",), "int64", "first row with the same values; -1 = dropped"
)
SORTED_POINTS = ArraySpec(
    "_work/sorted_points", ("input row", "feature"), FLOATS, "a few input blocks sorted by cell", parts=32
)
SORTED_INDEX = ArraySpec("_work/sorted_index", ("input row",), "int64", "input row of each sorted point", parts=32)
SORTED_CELLS = ArraySpec(
    "_work/sorted_cells", ("input row", "nearest"), "int32", "cells nearest to each sorted point", parts=32
)
CELL_COUNTS = ArraySpec("_work/cell_counts", ("shard", "cell"), "int64", "points of each cell in each sorted shard")
NEAREST_CELLS = ArraySpec(
    "_work/nearest_cells", ("point", "nearest"), "int32", "nearest cells of each point, own cell first"
)
SEARCHED_INDICES = ArraySpec("_work/searched_indices", LISTS, IDS, "lists of k_max ids before they are shortened")
SEARCHED_DISTANCES = ArraySpec("_work/searched_distances", LISTS, "float32", "their distances", INPUT_UNITS)
K_PER_POINT = ArraySpec("_work/k_per_point", ("point",), "int32", "requested neighbours of each point")
KNN_INDICES = ArraySpec("_work/knn_indices", LISTS, IDS, "neighbours before graph repair")
KNN_DISTANCES = ArraySpec("_work/knn_distances", LISTS, "float32", "their distances", INPUT_UNITS)
EMBEDDED_HASH = ArraySpec(
    "_work/embedded_hash", ("input row", "half"), "uint64", "hash of the input row of each embedding row"
)
POINT_NODE = ArraySpec(
    "_work/node", ("point",), "int32", "strong component of each point by the edges inside its block"
)
POINT_COMPONENT = ArraySpec("_work/component", ("point",), "int32", "weak component of each point")

COST_MATRIX = "cost_matrix"
POINT_QUALITY = "_work/point_quality"
"""Bundle: rows (s,) of sampled points in internal order, and trustworthiness and continuity (s,) of each."""
LOCAL_FACTORS = "local_factors"
ROW_IDS = "ids"
"""Folder of bundles, one for each block of rows: the bytes of all ids as text, and the end of each."""
RESULTS = (*(spec.name for spec in ARRAYS), COST_MATRIX, LOCAL_FACTORS, ROW_IDS)
"""What runs leave in a store beside intermediate results, records and the report."""


@dataclass(frozen=True)
class PlannedArray:
    """An array with the sizes of this run."""

    spec: ArraySpec
    shape: tuple[int, ...]
    dtype: str
    block: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize
