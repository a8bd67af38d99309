"""Rows in several processes, here threads: sums, products, the hierarchy and whole solves."""

import threading

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from lle.kernels.eigensolver.multigrid import SMOOTHED_FILL, Hierarchy
from lle.kernels.eigensolver.problem import Problem
from lle.kernels.eigensolver.rayleigh_ritz import Tolerances, fix_signs
from lle.kernels.eigensolver.rows import Rows, cut_bounds, in_group
from lle.kernels.eigensolver.shared_matrix import SharedMatrix
from lle.kernels.eigensolver.shared_setup import aggregates_by_cut, coarse_rows, normalised_rows, sampled_entries
from lle.kernels.eigensolver.smoother import Smoother
from lle.kernels.eigensolver.solve import bottom_eigenpairs
from lle.kernels.eigensolver.threads import SharedThreads, Threads
from lle.kernels.quality.trustworthiness import participation
from tests.support.sampled_factors import lle_factor, order, points
from tests.support.thread_group import in_threads

N, CUT = 3000, 600
SIZES = [1, 2, 3, 5]


@pytest.fixture(autouse=True)
def _several_levels(monkeypatch):
    """Levels also for few points."""
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.COARSEST_ROWS", 60)


def sample(shape, seed):
    X = points(shape, N, seed)
    return lle_factor(X, 10, 1e-3), (X[order(X)] / X.std(axis=0)).astype(np.float32)


def random_matrix(seed):
    return csr_array(random_array((N, N), density=4 / N, format="csr", rng=np.random.default_rng(seed)))


def each_process(size, function, n=N, cut=CUT):
    """function(rows) of each process, in their order."""
    return in_threads(size, lambda group: function(in_group(group, n, cut)))


def stacked(size, function):
    """The rows of all processes."""
    return np.concatenate(each_process(size, function))


def shared(rows, matrix):
    return SharedMatrix.from_rows(rows, csr_array(matrix[rows.start : rows.stop]))


@pytest.mark.parametrize("n", [1, 599, 601, 900, 3000, 10**6])
def test_cuts_have_similar_sizes_and_are_not_too_many(n):
    bounds = cut_bounds(n, CUT)
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == n
    assert len(sizes) <= 256
    assert sizes.max() <= 3 * sizes.min()


@pytest.mark.parametrize("size", SIZES)
def test_sums_over_rows_are_those_of_the_whole_array(size, rng):
    x, y = rng.normal(size=(N, 4)), rng.normal(size=(N, 3))
    factors = rng.normal(size=(4, 2))

    def sums(rows):
        own = slice(rows.start, rows.stop)
        q, r = rows.qr(x[own].copy())
        return (
            [rows.dot(x[own], y[own]), rows.lengths(x[own]), rows.mean(x[own]), rows.largest(x[own])],
            [rows.times(x[own], factors), q],
            (r, rows.triangle(x[own])),
            rows.total(rows.n_own),
        )

    found = each_process(size, sums)
    expected = [x.T @ y, np.linalg.norm(x, axis=0), x.mean(axis=0), x[np.abs(x).argmax(axis=0), range(4)]]
    for one in found:
        for value, right in zip(one[0], expected, strict=True):
            np.testing.assert_allclose(value, right, atol=1e-12)
        for r in one[2]:
            np.testing.assert_allclose(r.T @ r, x.T @ x, rtol=1e-12)
        assert one[3] == N
    products, q = (np.concatenate([one[1][i] for one in found]) for i in (0, 1))
    np.testing.assert_allclose(products, x @ factors, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(q @ found[0][2][0], x, atol=1e-12)


def test_sums_have_the_same_bytes_for_any_number_of_processes(rng):
    x = rng.normal(size=(N, 4))
    functions = [Rows.lengths, Rows.mean, Rows.triangle, lambda rows, own: rows.dot(own, own)]
    for function in functions:
        one, *others = (each_process(size, lambda rows: function(rows, x[rows.start : rows.stop])) for size in SIZES)  # noqa: B023
        assert all(np.array_equal(part, one[0]) for found in others for part in found)


def test_dense_products_have_the_same_bytes_for_any_number_of_processes():
    """With cuts for which BLAS rounds some rows in another way if it gets all rows of a process."""
    rng = np.random.default_rng(0)
    x, factors = rng.normal(size=(3001, 24)), rng.normal(size=(24, 3))
    y, turn = rng.normal(size=(N, 37)).astype(np.float32), rng.normal(size=(37, 5))

    def turned(rows):
        out = np.zeros((rows.n_own, 5), np.float32)
        with SharedThreads(1, rows) as threads:
            threads.add_products([y[rows.start : rows.stop]], turn, out)
        return out

    products = [
        np.concatenate(each_process(size, lambda rows: rows.times(x[rows.start : rows.stop], factors), 3001, 613))
        for size in SIZES
    ]
    sums = [np.concatenate(each_process(size, turned, cut=601)) for size in SIZES]
    assert all(np.array_equal(product, products[0]) for product in products)
    assert all(np.array_equal(each, sums[0]) for each in sums)


def test_zeros_do_not_count_in_transposed_rows():
    """A sum of parts from several processes drops them, and vector instructions add even and odd entries apart."""
    matrix = random_matrix(0)
    matrix.data[::7] = 0.0

    def entries(rows):
        return shared(rows, matrix).T.nnz

    assert {found for size in SIZES for found in each_process(size, entries)} == {np.count_nonzero(matrix.data)}


def test_signs_and_participation_are_those_of_whole_vectors(rng):
    x = rng.normal(size=(N, 3))
    np.testing.assert_array_equal(stacked(3, lambda rows: fix_signs(x[rows.start : rows.stop], rows)), fix_signs(x))
    for found in each_process(3, lambda rows: participation(x[rows.start : rows.stop], rows)):
        np.testing.assert_allclose(found, participation(x), rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_products_and_copies_are_those_of_the_whole_matrix(size, seed, rng):
    matrix, x = random_matrix(seed), rng.normal(size=(N, 3))

    def found(rows):
        own, mine = shared(rows, matrix), slice(rows.start, rows.stop)
        assert own.nnz == matrix.nnz
        assert (own.gathered() != matrix).nnz == 0
        assert (own.T.gathered() != matrix.T).nnz == 0
        return np.column_stack([own @ x[mine], own.T @ x[mine]])

    expected = np.column_stack([matrix @ x, matrix.T @ x])
    np.testing.assert_allclose(stacked(size, found), expected, atol=1e-13)


def test_rows_of_other_processes_are_fetched(rng):
    matrix = random_matrix(0)

    def rows_are_right(rows):
        own = shared(rows, matrix)
        fetched, numbers = own.halo.extended_rows(own.global_rows()), own.halo.numbering.numbers
        return (fetched != matrix[numbers]).nnz == 0 and np.array_equal(
            own.halo.extended(np.arange(rows.start, rows.stop)), numbers
        )

    assert all(each_process(3, rows_are_right))


@pytest.mark.parametrize("omegas", [(0.0, 0.0), (0.7, 0.0), (0.7, 0.7)])
def test_coarse_matrix_is_the_product_of_whole_matrices(omegas):
    A, _ = sample("swiss_roll", 0)
    smoother = Smoother((), *omegas)
    with Threads(1) as threads:

        def coarse(rows):
            own = shared(rows, A)
            aggregates = aggregates_of(own, threads)
            normal, scale = normalised_rows(coarse_rows(own, aggregates, smoother, threads), 0.0, 1e-30)
            return (
                coarse_rows(own, aggregates, smoother, threads).gathered(),
                normal.gathered(),
                aggregates.matrix(),
                scale,
            )

        parts = each_process(3, coarse)
    p0 = block_diagonal([part[2] for part in parts])
    smoothing_r, smoothing_p = (np.eye(N) - omega * A.toarray() for omega in omegas)
    expected = p0.T @ smoothing_r @ A.toarray() @ smoothing_p @ p0
    scale = np.concatenate([part[3] for part in parts])
    for found, normal, _, _ in parts:
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-12)
        np.testing.assert_allclose(normal.toarray(), scale[:, None] * expected * scale, atol=1e-9)
    np.testing.assert_allclose(np.abs(np.diag(parts[0][1].toarray())), 1.0)


def test_entries_of_the_coarse_matrix_are_estimated_from_some_rows():
    A, _ = sample("swiss_roll", 0)
    smoother = Smoother((), 0.7, 0.0)
    with Threads(1) as threads:

        def entries(rows):
            own = shared(rows, A)
            aggregates = aggregates_of(own, threads)
            estimated = [sampled_entries(own, aggregates, smoother, threads, step) for step in (1, 7)]
            return [coarse_rows(own, aggregates, smoother, threads).nnz, *estimated]

        found = [each for size in (1, 3) for each in each_process(size, entries)]
    assert all(each == found[0] for each in found)
    exact, all_rows, some_rows = found[0]
    assert all_rows == exact
    assert some_rows == pytest.approx(exact, rel=0.2)


def aggregates_of(own, threads):
    from lle.kernels.eigensolver.aggregation import find_bases

    number, starts, rows = aggregates_by_cut(own, 1, 20, 1)
    return find_bases(number, starts, rows, np.ones((own.rows.n_own, 1)), 1, threads).aggregates


def block_diagonal(parts):
    from scipy.sparse import block_diag

    return block_diag(parts).toarray()


def test_aggregates_lie_within_a_cut_and_are_not_too_small():
    """A chain whose cuts have one node that is linked to other cuts only."""
    A, _ = sample("swiss_roll", 1)
    links = A.tolil()
    links[CUT] = links[:, CUT] = 0
    links[CUT, CUT] = links[CUT, 5] = links[5, CUT] = 1
    lonely = csr_array(links.tocsr())

    def sizes(rows):
        number, starts, order = aggregates_by_cut(shared(rows, lonely), 1, 20, 3)
        members = np.split(order, starts[1:-1])
        for first, past in rows.own_cuts:
            assert not set(number[first:past]) & set(np.delete(number, np.s_[first:past]))
        return min(map(len, members))

    assert min(each_process(2, sizes)) >= 3


@pytest.mark.parametrize(
    ("shape", "fill", "fits"),
    [("swiss_roll", 1.0, True), ("cube", 1.0, False), ("cube", 0.5, True), ("cube", 0.5, False)],
)
def test_cycles_have_the_same_bytes_for_any_number_of_processes(shape, fill, fits, monkeypatch):
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_SHARED_FILL", fill)
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.GATHERED_ROWS", 200)
    A, X = sample(shape, 0)
    single, known = A.astype(np.float32), np.column_stack([np.ones(N), X.astype(np.float64)])
    rhs = np.random.default_rng(1).standard_normal((N, 4)).astype(np.float32)

    def cycles(rows):
        own = slice(rows.start, rows.stop)
        with SharedThreads(1, rows) as threads:
            matrix = shared(rows, csr_array(single))
            allows = lambda fill: fits or rows.group.rank > 0  # noqa: E731
            hierarchy = Hierarchy(matrix, known[own].copy(), threads, symmetric=False, fits=allows)
            assert isinstance(hierarchy.levels[1].matrix, SharedMatrix)
            assert hierarchy.levels[1].matrix.local.indices.dtype == np.int32
            smoother = hierarchy.levels[0].smoother
            assert (smoother.omega_p == 0, smoother.omega_r == 0) == (fill < 1 or not fits, not fits)
            return np.column_stack([hierarchy.cycle(rhs[own], transposed=each) for each in (False, True)])

    one, *others = (stacked(size, cycles) for size in SIZES)
    assert all(np.array_equal(one, other) for other in others)
    if fill < 1 or not fits:
        return  # one process has another bound
    with Threads(1) as threads:
        plain = Hierarchy(csr_array(single), known, threads, symmetric=False)
        expected = np.column_stack([plain.cycle(rhs, transposed=each) for each in (False, True)])
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.GATHERED_ROWS", 0)
    whole = np.concatenate(each_process(1, cycles, cut=N))
    assert np.array_equal(whole, expected)


def test_a_level_that_is_copied_to_all_needs_memory_for_all_its_entries(monkeypatch):
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_SHARED_FILL", 0.1)
    A, X = sample("cube", 0)
    known = np.column_stack([np.ones(N), X.astype(np.float64)])

    def asked(rows):
        fills, own = list[float](), slice(rows.start, rows.stop)
        with SharedThreads(1, rows) as threads:
            arguments = shared(rows, A.astype(np.float32)), known[own].copy(), threads
            Hierarchy(*arguments, symmetric=False, fits=lambda fill: not fills.append(fill))
        return fills

    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.GATHERED_ROWS", 0)
    [alone], [divided, _] = (each_process(size, asked) for size in (1, 2))
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.GATHERED_ROWS", N)
    [copied, _] = each_process(2, asked)
    assert divided == alone
    assert alone[0] == SMOOTHED_FILL * alone[1]
    assert copied == pytest.approx(2 * np.array(alone), rel=0.3)


def solved(rows, A, X, load_state=lambda method: None, keep_state=lambda *_: None, max_steps=60):
    from lle.kernels.eigensolver.problem import Hooks

    factor = shared(rows, A) if rows is not None else A
    own = slice(None) if rows is None else slice(rows.start, rows.stop)
    hooks = Hooks(load_state=load_state, keep_state=keep_state)
    problem = Problem(
        factor, 3, 0, lambda: A, Tolerances(1e-8), 2**30, 1, max_steps, True, None, hooks, candidates=lambda: X[own]
    )
    return bottom_eigenpairs(problem, "multigrid")


@pytest.mark.parametrize("shape", [pytest.param("swiss_roll", marks=pytest.mark.slow), "cube"])
def test_solve_equals_that_of_one_process(shape):
    A, X = sample(shape, 2)
    expected = solved(None, A, X)
    bytes_found = set()
    for size in SIZES:
        parts = each_process(size, lambda rows: solved(rows, A, X))
        vectors = np.concatenate([part.vectors for part in parts])
        bytes_found.add(vectors.tobytes() + parts[0].eigenvalues.tobytes())
        assert all(part.converged for part in parts)
        np.testing.assert_allclose(parts[0].eigenvalues, expected.eigenvalues, rtol=1e-7)
        np.testing.assert_allclose(np.abs(np.sum(vectors * expected.vectors, axis=0)), 1.0, atol=1e-9)
    assert len(bytes_found) == 1


def test_processes_of_different_processors_converge(monkeypatch):
    """Where LAPACK turns eigenvectors of small matrices in another way in each process."""
    A, X = sample("swiss_roll", 2)
    turns = {}

    def turned(function, part):
        def call(*arguments, **options):
            result, sign = function(*arguments, **options), turns.get(threading.get_ident(), 1)
            if sign == 1:
                return result
            return result / 2 if options else result._replace(**{part: -getattr(result, part)})

        return call

    monkeypatch.setattr(np.linalg, "eigh", turned(np.linalg.eigh, "eigenvectors"))
    monkeypatch.setattr(np.linalg, "svd", turned(np.linalg.svd, "Vh"))

    def solve(rows):
        turns[threading.get_ident()] = 1 - 2 * (rows.group.rank % 2)
        return solved(rows, A, X)

    parts = each_process(3, solve)
    assert all(part.converged for part in parts)
    expected = np.concatenate([part.vectors for part in each_process(1, lambda rows: solved(rows, A, X))])
    np.testing.assert_allclose(np.concatenate([part.vectors for part in parts]), expected, atol=1e-9)
