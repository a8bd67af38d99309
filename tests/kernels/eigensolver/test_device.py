"""Cycles on a device: with arrays of NumPy the same code runs without a GPU."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from lle.core.errors import ConfigError, LleError, NotEnoughMemory
from lle.kernels.eigensolver import device
from lle.kernels.eigensolver.aggregation import find_aggregates, find_bases
from lle.kernels.eigensolver.device import Device
from lle.kernels.eigensolver.threads import Threads
from tests.support import eigenproblems
from tests.support.oracle import largest_angle
from tests.support.sampled_factors import edge_factor, lle_factor, order, points
from tests.support.seeds import seeds


def solve(A, X, **changed):
    return eigenproblems.solve(A, 3, "multigrid", n_threads=2, candidates=lambda: X, **changed)


def factor(square, n, seed):
    X = points("swiss_roll", n, seed)
    return lle_factor(X, 12, 1e-3) if square else edge_factor(X, 8), X[order(X)] / X.std(axis=0)


@pytest.mark.parametrize("seed", seeds(19, 83, 211))
@pytest.mark.parametrize("square", [True, False])
def test_pairs_equal_those_of_the_processor(square, seed, monkeypatch):
    A, X = factor(square, 3000, seed)
    applied = []
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.COARSEST_ROWS", 60)
    monkeypatch.setattr(device, "gpu", Device)
    monkeypatch.setattr(
        Device, "place", lambda self, block, place=Device.place: applied.append(1) or place(self, block)
    )
    expected, found = solve(A, X), solve(A, X, on_gpu=True)
    assert (found.converged, found.stats.requested_failed, bool(applied)) == (True, "", True)
    assert "on the GPU" in found.stats.reason
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-10)
    assert largest_angle(found.vectors, expected.vectors) < 1e-6  # degrees


@pytest.mark.parametrize("seed", seeds(1, 2, 3))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operations_equal_those_of_threads(dtype, seed):
    random = np.random.default_rng(seed)
    A = csr_array(random_array((500, 500), density=0.02, rng=random, dtype=dtype))
    x, y, out = (random.standard_normal((500, 5)).astype(dtype) for _ in range(3))
    factors = random.standard_normal((10, 5))
    numpy, rtol = Device(), 20 * np.finfo(dtype).eps
    with Threads(2) as threads:
        for coefficients in [(2.0, 0.0, 0.0), (-1.0, 3.0, 0.0), (0.5, 2.0, -1.0)]:
            found, expected = out.copy(), out.copy()
            numpy.combine(numpy.matrix(A), numpy.place(x), y, found, coefficients)
            threads.combine(A, x, y, expected, coefficients)
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
        found, expected = out.copy(), out.copy()
        numpy.add_products([x, y], factors, found)
        threads.add_products([x, y], factors, expected)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(numpy.gram([x, y], y), threads.gram([x, y], y), rtol=1e-12, atol=1e-12)


def test_products_with_p0_equal_those_of_threads():
    A, X = factor(True, 1000, 19)
    with Threads(2) as threads:
        known = np.column_stack([np.ones(1000), X])
        aggregates = find_bases(*find_aggregates(A, 1, 20, 3), known, 3, threads).aggregates
        moved, fine = Device().aggregates(aggregates), X.astype(np.float32)
        coarse = aggregates.restrict(fine)
        np.testing.assert_allclose(moved.restrict(fine), coarse, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(moved.prolong(coarse), aggregates.prolong(coarse), rtol=1e-5, atol=1e-5)


def test_sums_of_many_rows_are_added_in_float64(monkeypatch):
    monkeypatch.setattr(device, "ROWS_AT_ONCE", 64)
    x = np.full((1000, 1), 1.0, np.float32)
    x[0] = 2.0**13
    assert Device().gram([x], x)[0, 0] == 2.0**26 + 999


def test_a_full_gpu_is_an_error_with_a_cure(monkeypatch):
    def full(self, matrix):
        raise MemoryError("Out of memory allocating 8,589,934,592 bytes")

    A, X = factor(True, 1000, 19)
    monkeypatch.setattr(device, "gpu", Device)
    monkeypatch.setattr(Device, "matrix", full)
    with pytest.raises(NotEnoughMemory, match=r"allocating 8,589,934,592 bytes.*set eigensolver\.device to cpu"):
        solve(A, X, on_gpu=True)


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ConfigError, match=r"eigensolver\.device: gpu needs the extra gpu"):
        device.gpu()


def test_a_missing_gpu_is_an_error(monkeypatch):
    """CuPy is installed, and its first use fails."""

    def failing(*_, **__):
        raise OSError("libcuda.so.1: cannot open shared object file")

    modules = {name: ModuleType(name) for name in ("cupy", "cupyx", "cupyx.scipy")}
    modules["cupy"].array, modules["cupyx.scipy"].sparse = failing, ModuleType("sparse")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ConfigError, match=r"no NVIDIA GPU works with CuPy \(libcuda.*use device: cpu"):
        device.gpu()


def test_an_error_of_the_gpu_names_the_cure(monkeypatch):
    def broken(self, x, y):
        raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")

    A, X = factor(True, 1000, 19)
    monkeypatch.setattr(device, "gpu", Device)
    monkeypatch.setattr(Device, "gram", broken)
    with pytest.raises(LleError, match=r"CUBLAS_STATUS_EXECUTION_FAILED.*set eigensolver\.device to cpu"):
        solve(A, X, on_gpu=True)


def test_more_entries_than_cupy_can_index_are_refused():
    with pytest.raises(MemoryError, match="too large for CuPy"):
        Device().matrix(SimpleNamespace(nnz=2**31))


@pytest.mark.parametrize("square", [True, False])
def test_a_gpu_gives_the_same_pairs(square):
    try:
        device.gpu()
    except ConfigError as error:
        pytest.skip(f"not tested on a GPU: {error}")
    A, X = factor(square, 3000, 19)
    expected, found = solve(A, X), solve(A, X, on_gpu=True)
    assert found.converged
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-10)
    assert largest_angle(found.vectors, expected.vectors) < 1e-6  # degrees
