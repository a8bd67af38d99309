"""Identical rows, found by a 128-bit hash, so that no stage needs all points at once.

k + 1 identical points list only each other and form a separate closed class (see kernels/graph), so they are merged
before the neighbour search.
"""

import numpy as np
import numpy.typing as npt

from ...core.arrays import Bools, Float32, Float64, Int64

ROWS_AT_ONCE = 512
"""Rows converted to 64-bit words at one time: fits the cache; does not affect results."""

SEED = 20000522
"""Seed of the coefficients; hashes are comparable only if made with the same seed."""


def row_hashes(points: Float32 | Float64) -> npt.NDArray[np.uint64]:
    """128-bit hash (B, 2) of the exact values of each row of (B, d); -0.0 equals 0.0, all other bits count.

    Four sums a_0 + sum_i a_i w_i mod 2^64 over the 32-bit words w of a row, with random 64-bit a_i; the high 32 bits
    of each sum are used. This is strongly universal (Lemire & Kaser 2014, The Computer Journal 57, section 3): two
    different rows, chosen without knowledge of the coefficients, have equal hashes with probability 2^-128, and some
    pair among n rows with less than n^2 2^-129 (1e-25 for 10 million rows). A row's hash depends only on the row and
    the dtype.
    """
    n_points, n_features = points.shape
    words_per_value = points.dtype.itemsize // 4
    random = np.random.PCG64(SEED).random_raw(4 * (1 + words_per_value * n_features))
    # Drawn word by word, so that a word's coefficients do not depend on the number of later words.
    offsets, coefficients = np.split(random.reshape(-1, 4).T, [1], axis=1)
    coefficients = np.ascontiguousarray(coefficients)
    high = np.empty((n_points, 4), dtype=np.uint64)
    for start in range(0, n_points, ROWS_AT_ONCE):
        values = np.add(points[start : start + ROWS_AT_ONCE], 0.0, order="C", dtype=points.dtype)  # -0.0 becomes 0.0
        words = values.view(np.uint32).astype(np.uint64)
        sums = np.einsum("bw,hw->bh", words, coefficients) + offsets[:, 0]  # uint64 wraps modulo 2^64
        high[start : start + ROWS_AT_ONCE] = sums >> np.uint64(32)
    return high[:, ::2] << np.uint64(32) | high[:, 1::2]


def merge_duplicates(hashes: npt.NDArray[np.uint64], valid: Bools) -> Int64:
    """The first valid row with the same hash, for each row (n,); -1 for invalid rows.

    >>> merge_duplicates(np.array([[7, 7], [1, 2], [7, 7]], dtype=np.uint64), np.array([True, True, True]))
    array([0, 1, 0])
    """
    representative = np.full(len(hashes), -1, dtype=np.int64)
    rows = np.flatnonzero(valid)
    order = rows[np.lexsort((hashes[rows, 1], hashes[rows, 0]))]  # stable: equal rows stay ascending
    ordered = hashes[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    firsts = np.flatnonzero(is_first)
    representative[order] = np.repeat(order[firsts], np.diff(firsts, append=len(order)))
    return representative
