"""The compiled products of the multigrid cycles. A wrong column would only slow the convergence down."""

import numpy as np
import pytest
from numba.core.errors import TypingError
from scipy.sparse import csr_array, random_array

from lle.kernels.eigensolver import threads
from lle.kernels.eigensolver.threads import Threads
from tests.support.seeds import seeds


@pytest.mark.parametrize("seed", seeds(3, 5, 7))
@pytest.mark.parametrize("width", [1, 3, 8, 13])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_combine_is_the_product_plus_the_blocks(seed, width, dtype, monkeypatch):
    """Equal bytes for any division of the rows into calls."""
    rng = np.random.default_rng(seed)
    matrix = csr_array(random_array((300, 300), density=0.05, format="csr", rng=rng).astype(dtype))
    x, y, out = (rng.normal(size=(300, width)).astype(dtype) for _ in range(3))
    expected = 2.0 * (matrix @ x.astype("f8")) - 0.5 * y + 0.25 * out
    found = []
    for entries in (10**6, 40):
        monkeypatch.setattr(threads, "ENTRIES_AT_ONCE", entries)
        with Threads(2) as pool:
            found.append(pool.combine(matrix, x, y, out.copy(), (2.0, -0.5, 0.25)))
    tol = 1e-5 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(found[0], expected, rtol=tol, atol=tol)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("width", [1, 3, 8, 13])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_of_blocks(width, dtype):
    rng, n_rows = np.random.default_rng(width), 2 * threads.ROWS_AT_ONCE + 700
    *blocks, y, out = (rng.normal(size=(n_rows, width)).astype(dtype) for _ in range(4))
    factors = rng.normal(size=(2 * width, width))
    with Threads(2) as pool:
        products, total = pool.gram(blocks, y), out.copy()
        pool.add_products(blocks, factors, total)
    x = np.hstack(blocks).astype("f8")
    np.testing.assert_allclose(products, x.T @ y.astype("f8"), rtol=1e-9, atol=1e-9)
    tol = 1e-4 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(total, out + x @ factors, rtol=tol, atol=tol)


def test_blocks_that_are_not_contiguous_are_refused():
    matrix, x = csr_array(np.eye(3)), np.ones((3, 8), order="F")
    with Threads(1) as pool, pytest.raises(TypingError, match="sum_products"):
        pool.combine(matrix, x, x, np.ones((3, 8)), (1.0, 0.0, 0.0))


def test_combine_does_not_read_an_empty_block():
    matrix, x = csr_array(np.eye(3)), np.arange(24.0).reshape(3, 8)
    with Threads(1) as pool:
        product = pool.combine(matrix, x, x, np.full_like(x, np.nan), (1.0, 0.0, 0.0))
    np.testing.assert_array_equal(product, x)
