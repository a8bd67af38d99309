import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from lle.core.errors import NotEnoughMemory
from lle.kernels.eigensolver import block_lanczos, factorization, pardiso
from lle.kernels.eigensolver.factorization import SuperLU, canonical
from lle.kernels.eigensolver.pardiso import FactorizationError, FactorSize, Pardiso
from lle.kernels.eigensolver.pseudo_inverse import PinnedCholesky, PinnedLU
from lle.kernels.eigensolver.rayleigh_ritz import Growth
from tests.support.eigenproblems import solve
from tests.support.oracle import largest_angle
from tests.support.sampled_factors import gram, lle_factor, points, roll_factor, roll_with_outliers
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)
BACK_ENDS = ["superlu", pytest.param("pardiso", marks=pytest.mark.skipif(not pardiso.is_available(), reason="no MKL"))]
needs_mkl = pytest.mark.skipif(not pardiso.is_available(), reason="no MKL")


@pytest.fixture(params=BACK_ENDS)
def back_end(request, monkeypatch):
    """Both libraries behind the one interface."""
    monkeypatch.setattr(pardiso, "is_available", lambda: request.param == "pardiso")
    return request.param


def exact_inverse(A):
    """M^+ by the dense SVD of A, the smallest singular value taken as zero."""
    _, singular, Vt = np.linalg.svd(A.toarray(), full_matrices=False)
    return (Vt[:-1].T / singular[:-1] ** 2) @ Vt[:-1]


def mean_free(n, m, seed):
    block = np.random.default_rng(seed).standard_normal((n, m))
    return block - block.mean(axis=0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("transposed", [False, True])
def test_factor_solves_for_several_columns(back_end, seed, transposed):
    A = roll_factor(250, seed)
    A.setdiag(3.0)
    expected = np.linalg.solve(A.toarray().T if transposed else A.toarray(), right_sides := mean_free(250, 3, seed))
    factor = factorization.analyse(A, pardiso.GENERAL, 2)
    assert factor.size.nnz >= A.nnz
    assert factor.size.n_bytes >= 8 * factor.size.nnz
    factor.factor()
    np.testing.assert_allclose(factor.solve(right_sides, transposed), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(factor.solve(right_sides[:, :1], transposed), expected[:, :1], rtol=1e-10, atol=1e-12)
    factor.release()
    factor.release()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["swiss_roll", "cube"])
def test_both_inverses_are_the_pseudo_inverse_of_m(back_end, name, seed):
    A = lle_factor(points(name, 300, seed), 12, 1e-3)
    block = mean_free(300, 4, seed)
    expected = exact_inverse(A) @ block
    for pin in (0, 211):
        for inverse in (PinnedLU(A, pin, 2), PinnedCholesky(gram(A), pin, 2)):
            with inverse:
                inverse.factor()
                product = inverse.apply(block + 5.0)  # the constant part is taken off
            np.testing.assert_allclose(product, expected, atol=1e-7 * np.abs(expected).max())
            np.testing.assert_allclose(product.mean(axis=0), 0, atol=1e-9 * np.abs(expected).max())


@needs_mkl
@pytest.mark.parametrize("seed", SEEDS)
class TestSinglePrecision:
    def test_refined_solves_are_near_those_in_double_precision(self, seed):
        A, block, images = roll_factor(3000, seed), mean_free(3000, 4, seed), []
        for single in (False, True):
            with PinnedLU(A, 211, 2, single=single) as inverse:
                inverse.factor()
                images.append(inverse.apply(block))
        # without refinement the error is 1e-4 to 2e-3
        assert 0 < np.abs(images[1] - images[0]).max() < 1e-5 * np.abs(images[0]).max()

    def test_refinement_that_does_not_converge_is_an_error(self, seed, monkeypatch):
        with PinnedLU(roll_factor(300, seed), 211, 1, single=True) as inverse:
            solve = inverse._factorization.solve
            monkeypatch.setattr(inverse._factorization, "solve", lambda *arguments: 0.3 * solve(*arguments))
            with pytest.raises(FactorizationError, match=r"single precision is not accurate enough.*max_memory"):
                inverse.factor()

    def test_columns_below_the_smallest_float32_are_solved(self, seed):
        block = mean_free(300, 2, seed)
        with PinnedLU(roll_factor(300, seed), 211, 1, single=True) as inverse:
            inverse.factor()
            expected = inverse.apply(block)
            found = inverse.apply(block * [1e-60, 1.0]) / [1e-60, 1.0]
        assert (np.abs(found - expected).max(axis=0) < 1e-6 * np.abs(expected).max(axis=0)).all()

    def test_size_is_predicted_from_the_one_in_double_precision(self, seed):
        A, sizes = roll_factor(30_000, seed), []
        for single in (False, True):
            with PinnedLU(A, 211, 1, single=single) as inverse:
                sizes.append(inverse.size)
        double, single = sizes
        assert double.in_single(A.nnz).n_bytes == pytest.approx(single.n_bytes, rel=0.1)
        assert single.n_bytes < 0.85 * double.n_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_pin_moves_to_the_largest_entry_of_the_left_null_vector(back_end, seed):
    """Points to which the others give weights of 1e-9 only, and points to which no other point links."""
    A, transient = roll_with_outliers(400, 4, seed)
    rarely = lle_factor(points("swiss_roll", 400, seed), 12, 1e-3).tolil()
    rarely[:200, 200:] *= 1e-9
    rarely.setdiag(0)
    rarely.setdiag(-rarely.sum(axis=1))
    for matrix, pins in ((A, transient), (canonical(rarely.tocsr()), [250])):
        block = mean_free(matrix.shape[0], 2, seed)
        expected = exact_inverse(matrix) @ block
        for pin in pins:
            for single in [False, True] if back_end == "pardiso" else [False]:
                with PinnedLU(matrix, int(pin), 2, single=single) as inverse:
                    inverse.factor()
                    found = inverse.apply(block)
                np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@needs_mkl
def test_m_that_is_not_positive_definite_is_refused():
    M = gram(roll_factor(400, 7))
    M.setdiag(M.diagonal() - 1e-3)
    with PinnedCholesky(M, 3, 2) as inverse, pytest.raises(FactorizationError, match="not positive definite"):
        inverse.factor()


@needs_mkl
def test_64_bit_integers_give_the_same_solution(monkeypatch):
    A = roll_factor(400, 7)
    A.setdiag(3.0)
    right_sides = mean_free(400, 3, 7)
    narrow = Pardiso(A, pardiso.GENERAL, 2)
    narrow.factor()
    monkeypatch.setattr(Pardiso, "_overflows", lambda self: True)
    wide = Pardiso(A, pardiso.GENERAL, 2)
    wide.factor()
    assert wide._iparm.dtype == np.int64
    assert wide.size.nnz == narrow.size.nnz
    np.testing.assert_allclose(wide.solve(right_sides, True), narrow.solve(right_sides, True), rtol=1e-12)
    wide.release()
    narrow.release()


@needs_mkl
@pytest.mark.parametrize("single", [False, True])
def test_factors_whose_counts_fit_into_32_bits_are_analysed_once(single):
    analysed = Pardiso(roll_factor(300, 7), pardiso.GENERAL, 1, single=single)
    entry_bytes = 4 if single else 8
    for nnz, fits in ((2**31 - 1, True), (2**31, False), (2**32 + 5, False)):
        reported = int(np.array(nnz).astype(np.int32))
        analysed.size = FactorSize(reported, int(1.4 * entry_bytes * nnz), 1.0)
        assert analysed._overflows() != fits, nnz
    analysed.release()


@needs_mkl
@pytest.mark.slow
def test_factor_beyond_32_bit_counts_is_analysed_with_64_bits(monkeypatch):
    """The factor of a random graph has many entries; the analysis alone gives its size."""
    n = 95_000
    columns = np.random.default_rng(5).integers(0, n, 4 * n)
    A = canonical(csr_array((np.full(4 * n, 0.1), (np.repeat(np.arange(n), 4), columns)), shape=(n, n)) + eye_array(n))
    inverse = Pardiso(A, pardiso.GENERAL, 2)
    assert inverse._iparm.dtype == np.int64
    assert inverse.size.nnz > 2**31
    assert inverse.size.n_bytes > 8 * inverse.size.nnz
    inverse.release()
    monkeypatch.setattr(Pardiso, "_overflows", lambda self: False)
    narrow = Pardiso(A, pardiso.GENERAL, 2)  # the failure without 64-bit integers
    assert narrow.size.nnz < 0
    narrow.release()


@needs_mkl
def test_number_of_mkl_threads_is_restored():
    mkl = pardiso.load_mkl()
    n_threads = mkl.MKL_Get_Max_Threads()
    factor = Pardiso(roll_factor(300, 7), pardiso.GENERAL, n_threads + 1)
    assert mkl.MKL_Get_Max_Threads() == n_threads
    factor.release()


@needs_mkl
def test_lu_of_ten_thousand_rows_with_matching():
    """PARDISO's two-level factorization (iparm 24) ends with error -15 on this matrix."""
    factor = Pardiso(roll_factor(10_000, 7), pardiso.GENERAL, 2)
    factor.factor()
    assert np.isfinite(factor.solve(np.ones((10_000, 1)), transposed=False)).all()
    factor.release()


@needs_mkl
def test_out_of_memory_error_gives_advice():
    factor = Pardiso(roll_factor(300, 7), pardiso.GENERAL, 1)
    with pytest.raises(NotEnoughMemory, match=r"300 rows.*multigrid"):
        factor._fail(-2, pardiso.FACTOR)
    assert not factor._handle.any()


def test_superlu_reports_overflow_of_its_integers(monkeypatch):
    def overflow(matrix):
        raise MemoryError

    monkeypatch.setattr(factorization, "splu", overflow)
    with pytest.raises(NotEnoughMemory, match="install pypardiso"):
        SuperLU(roll_factor(300, 7)).factor()


def test_mkl_is_not_loaded_by_the_import():
    code = "import sys, lle.kernels.eigensolver.solve as s; sys.exit('pypardiso' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_program_works_without_mkl(monkeypatch):
    def missing(name):
        raise ImportError(name)

    pardiso.load_mkl.cache_clear()
    monkeypatch.setattr(pardiso.importlib, "import_module", missing)
    try:
        assert not pardiso.is_available()
        assert isinstance(factorization.analyse(roll_factor(300, 7), pardiso.GENERAL, 1), SuperLU)
    finally:
        pardiso.load_mkl.cache_clear()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("max_columns", [16, 40])
def test_block_lanczos_finds_multiple_eigenvalues(seed, max_columns):
    n, m = 500, 4
    values = np.concatenate([[100.0, 100.0, 100.0, 40.0], np.linspace(30, 1, n - 5)])
    V = block_lanczos.orthonormalise(mean_free(n, n - 1, seed), np.empty((n, 0)))[0]
    start = np.random.default_rng(seed).standard_normal((n, 4))

    def apply(block):
        return V @ (values[:, None] * (V.T @ block))

    space = block_lanczos.block_lanczos(apply, start, m, max_columns, 1e-10, 4000)
    np.testing.assert_allclose(space.values, values[:m], rtol=1e-12)
    assert space.basis.shape[1] <= max_columns
    assert (space.errors <= 1e-10).all()
    outside = V[:, :m] - space.basis @ (space.basis.T @ V[:, :m])
    assert np.linalg.norm(outside, 2) < 1e-8
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(space.basis.shape[1]), atol=1e-12)


@pytest.mark.parametrize("max_columns", [30, 60])
@pytest.mark.parametrize("growth", [Growth((), lambda vectors: True), Growth((7,), lambda vectors: False)])
def test_block_lanczos_finds_eigenvalues_that_spread_over_more_than_16_digits(max_columns, growth):
    n = 300
    values = np.concatenate([[1e26, 1e20, 1e14], [4e7, 3e7, 2e7, 1.5e7], np.geomspace(1e6, 1, n - 8)])
    V = block_lanczos.orthonormalise(mean_free(n, n - 1, 3), np.empty((n, 0)))[0]
    start = np.random.default_rng(3).standard_normal((n, 4))
    n_wanted = 3 if growth.counts else 7

    def apply(block):
        return V @ (values[:, None] * (V.T @ block))

    space = block_lanczos.block_lanczos(apply, start, n_wanted, max_columns, 1e-8, 400, growth=growth)
    assert (space.errors <= 1e-8).all()
    np.testing.assert_allclose(space.values, values[:7], rtol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_block_lanczos_starts_from_exact_vectors_of_the_largest_eigenvalues(seed):
    n = 120
    values = np.concatenate([[1e26, 1e24, 1e22, 1e20], np.geomspace(1e8, 1, n - 5)])
    V = block_lanczos.orthonormalise(mean_free(n, n - 1, seed), np.empty((n, 0)))[0]
    start = np.column_stack([V[:, :3], np.random.default_rng(seed).standard_normal(n)])
    space = block_lanczos.block_lanczos(lambda block: V @ (values[:, None] * (V.T @ block)), start, 6, 30, 1e-8, 400)
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(space.basis.shape[1]), atol=1e-12)
    np.testing.assert_allclose(space.values, values[:6], rtol=1e-6)


def test_block_lanczos_stops_at_its_limit():
    n = 200
    start = np.random.default_rng(2).standard_normal((n, 4))
    space = block_lanczos.block_lanczos(lambda block: block * np.linspace(1, 2, n)[:, None], start, 3, 16, 1e-14, 24)
    assert space.n_applied == 24
    assert space.errors.max() > 1e-14


def test_dependent_columns_become_orthonormal():
    against = block_lanczos.orthonormalise(mean_free(60, 3, 1), np.empty((60, 0)))[0]
    block = mean_free(60, 2, 2)
    block = np.column_stack([block, block @ [1.0, -2.0], against[:, 0]])
    Q, R = block_lanczos.orthonormalise(block, against)
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(Q @ R, block - against @ (against.T @ block), atol=1e-13)
    np.testing.assert_allclose(against.T @ Q, 0, atol=1e-13)
    np.testing.assert_allclose(Q.sum(axis=0), 0, atol=1e-12)
    assert largest_angle(np.column_stack([Q, against]), np.column_stack([Q, against, block[:, :2]])) < 1e-5


@needs_mkl
class TestThreads:
    def threads_of(self, monkeypatch, rows, gflop):
        """Threads of each analysis by which a matrix of 300 rows is factored."""
        monkeypatch.setattr(factorization, "ONE_THREAD_ROWS", rows)
        monkeypatch.setattr(factorization, "ONE_THREAD_GFLOP", gflop)
        threads, analyse = [], pardiso.Pardiso

        def recorded(matrix, matrix_type, n_threads, *arguments):
            threads.append(n_threads)
            return analyse(matrix, matrix_type, n_threads, *arguments)

        monkeypatch.setattr(pardiso, "Pardiso", recorded)
        A = roll_factor(300, 19)
        A.setdiag(3.0)
        factor = factorization.analyse(A, pardiso.GENERAL, 2)
        factor.factor()
        rhs = mean_free(300, 2, 19)
        np.testing.assert_allclose(A @ factor.solve(rhs, False), rhs, atol=1e-10)
        factor.release()
        return threads

    @pytest.mark.parametrize("one_thread_gflop", [1.0, 3.0])
    def test_kept_analysis_takes_the_same_number_of_threads(self, monkeypatch, one_thread_gflop):
        """Also where the analysis by two threads counts other operations than that by one."""
        threads, analyse = [], pardiso.Pardiso

        def recorded(matrix, matrix_type, n_threads, earlier_analysis, single):
            threads.append(n_threads)
            analysed = analyse(matrix, matrix_type, n_threads, earlier_analysis, single)
            first = n_threads == 1 and earlier_analysis is None
            analysed.size = analysed.size._replace(gflop=one_thread_gflop if first else 4.0 - one_thread_gflop)
            return analysed

        monkeypatch.setattr(factorization, "ONE_THREAD_GFLOP", 2.0)
        monkeypatch.setattr(pardiso, "Pardiso", recorded)
        A, analyses = roll_factor(300, 19), {}
        factorization.analyse(A, pardiso.GENERAL, 2, analyses).release()
        factorization.analyse(A, pardiso.GENERAL, 2, analyses).release()
        assert threads == ([1, 1] if one_thread_gflop < 2 else [1, 2, 2])

    @pytest.mark.parametrize(
        ("rows", "gflop", "threads"),
        [(301, 1.0, [1]), (300, 1.0, [2]), (301, -1.0, [1, 2])],
        ids=["small", "many rows", "much work"],
    )
    def test_one_thread_computes_a_small_factorization(self, monkeypatch, rows, gflop, threads):
        assert self.threads_of(monkeypatch, rows, gflop) == threads


@needs_mkl
def test_small_problem_gives_equal_bytes_for_any_number_of_threads():
    A = roll_factor(600, 19)
    by_one_thread, by_two_threads = (solve(A, 2, "factored", n_threads=n_threads).vectors for n_threads in (1, 2))
    assert by_one_thread.tobytes() == by_two_threads.tobytes()
