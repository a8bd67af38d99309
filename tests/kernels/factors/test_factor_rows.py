"""A factor of the summed local matrices equals the rows of F that it replaces, up to the rounding of the sum."""

import numpy as np

from lle.kernels.factors.factor_rows import (
    LARGE,
    MAX_COLUMNS,
    LocalRows,
    columns_to_add,
    group_points,
    root_of_sum,
    stack_rows,
)
from lle.kernels.factors.ltsa_hessian import alignment_rows


def test_root_of_the_sum_has_the_product_of_the_rows(rng):
    """Neighbourhoods of two sizes and of two components, with ids in any order."""
    sides = [rng.permutation(70)[:50] + 100 * (i % 2) for i in range(12)]
    ids = [np.array([side[:size] for side in sides]) for size in (50, 40)]
    values = [alignment_rows(rng.normal(size=(12, side.shape[1], 3)), 2) for side in ids]
    parts = [
        LocalRows(np.arange(12) + 12 * i, side, rows, rng.random(rows.shape[:2]) < 0.9)
        for i, (side, rows) in enumerate(zip(ids, values, strict=True))
    ]
    factor = stack_rows(parts, 24, 200)
    columns = columns_to_add(np.concatenate(sides)[None], factor.nnz)
    root = root_of_sum(parts, columns, 200)
    np.testing.assert_allclose((root.T @ root).toarray(), (factor.T @ factor).toarray(), atol=1e-12)
    assert root.shape[0] <= len(columns) < factor.shape[0]
    assert root.nnz < factor.nnz
    assert root.has_sorted_indices
    starts = root.indices[root.indptr[:-1]] >= 100  # a row has points of one component only
    ends = root.indices[root.indptr[1:] - 1] >= 100
    np.testing.assert_array_equal(starts, ends)


def test_matrices_are_added_only_if_that_takes_less_memory():
    near = np.arange(LARGE)[None] + np.arange(500)[:, None]
    assert len(columns_to_add(near, 500 * LARGE**2)) == 500 + LARGE - 1
    assert columns_to_add(near, 1000) is None
    assert columns_to_add(near[:, :-1], 500 * LARGE**2) is None
    far = np.arange(MAX_COLUMNS + 1).reshape(1, -1)
    assert columns_to_add(far, 10**9) is None
    assert (group_points(LARGE - 1, 10_000), group_points(LARGE, 10_000)) == (10_000, 2048)
