"""Polynomials on Dask workers give the bytes of one process, for any blocks, also if a worker dies."""

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy.sparse import csr_array

from lle.kernels.eigensolver.approximate_inverse import ApproximateInverse
from lle.kernels.eigensolver.davidson import block_width, first_state, lowest_pairs
from lle.kernels.eigensolver.normal_operator import NormalOperator
from lle.kernels.eigensolver.rayleigh_ritz import Tolerances, largest_eigenvalue
from lle.linalg import distributed_operator
from lle.linalg.distributed_operator import RowBlocks, operator_on_workers
from tests.support.sampled_factors import edge_factor, lle_factor, points, roll_factor

ROOTS = np.array([1.3, 0.9 + 0.4j, 2.0, 0.7 + 0.1j, 1.1])


@pytest.fixture(scope="module")
def client():
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    )  # fmt: skip
    with cluster as local, Client(local) as client:
        yield client


def by_one_process(A, block, n_roots, matrix):
    with NormalOperator(A, 1) as operator:
        return operator.approximate_inverse(block, ROOTS[:n_roots], matrix)


def same_bytes(actual, expected):
    return all(a.tobytes() == b.tobytes() for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("matrix", ["factor", "transposed", "normal"])
@pytest.mark.parametrize(("n_roots", "blocks_per_worker"), [(1, 1), (2, 4), (5, 4)])
def test_same_bytes_as_one_process(client, monkeypatch, matrix, n_roots, blocks_per_worker):
    monkeypatch.setattr(distributed_operator, "BLOCKS_PER_WORKER", blocks_per_worker)
    A = lle_factor(points("cube", 701, 19), 12, 1e-3)
    block = np.random.default_rng(3).standard_normal((701, 5))
    actual = RowBlocks(A, client).approximate_inverse(block, ROOTS[:n_roots], matrix)
    assert same_bytes(actual, by_one_process(A, block, n_roots, matrix))
    assert not same_bytes(actual, by_one_process(A, block, n_roots, "normal" if matrix == "factor" else "factor"))


def test_factors_that_are_not_square(client):
    A = edge_factor(points("sheet", 300, 19), 5)
    assert A.shape[0] != A.shape[1]
    block = np.random.default_rng(3).standard_normal((A.shape[1], 3))
    actual = RowBlocks(A, client).approximate_inverse(block, ROOTS, "normal")
    assert same_bytes(actual, by_one_process(A, block, 5, "normal"))


def test_blocks_have_about_equal_numbers_of_entries_despite_points_in_all_lists(client, monkeypatch):
    monkeypatch.setattr(distributed_operator, "BLOCKS_PER_WORKER", 4)
    A = lle_factor(points("cube", 701, 19), 12, 1e-3).tolil()
    A[:, 5:10] = 0.01
    A = csr_array(A.tocsr())
    operator = RowBlocks(A, client)
    entries = [len(a.data) + len(b.data) for a, b in zip(operator._forward, operator._backward, strict=True)]
    assert len(entries) == 8
    assert max(entries) < 1.5 * np.mean(entries)
    block = np.random.default_rng(3).standard_normal((701, 5))
    for matrix in ("factor", "transposed", "normal"):
        assert same_bytes(operator.approximate_inverse(block, ROOTS, matrix), by_one_process(A, block, 5, matrix))


@pytest.mark.slow
def test_iteration_on_workers_gives_the_same_vectors(client):
    A, m = roll_factor(450, 3), 2
    start = np.random.default_rng(1).standard_normal((450, block_width(m)))
    tolerances = Tolerances(1e-12, largest_eigenvalue(A, 1))
    results = []
    for operator in (operator_on_workers, NormalOperator):
        with operator(A, 1) as products:
            inverse = ApproximateInverse(A, lambda matrix, products=products: products, None, 3, 640)
            state = first_state(A, start, 0, m, inverse, 120, None)
            solution = lowest_pairs(A, inverse, m, state, tolerances, 24, 120, lambda *state: None)
            results.append((type(products), solution.n_degrees, solution.n_steps, solution.pairs.vectors.tobytes()))
    assert [result[0] for result in results] == [RowBlocks, NormalOperator]
    assert results[0][1:] == results[1][1:]
    assert 60 < results[0][1] <= 120
    assert results[0][2] > 1


def test_operator_without_a_client_runs_in_this_process(monkeypatch):
    A = roll_factor(200, 3)
    monkeypatch.setattr(
        distributed_operator.Client, "current", classmethod(lambda cls: (_ for _ in ()).throw(ValueError))
    )
    with operator_on_workers(A, 1) as products:
        assert isinstance(products, NormalOperator)


@pytest.mark.slow
def test_lost_workers_are_replaced(client):
    A = roll_factor(500, 7)
    block = np.random.default_rng(3).standard_normal((500, 4))
    operator = RowBlocks(A, client)
    operator.approximate_inverse(block, ROOTS[:1], "factor")
    client.restart()  # all that was sent is lost
    actual = operator.approximate_inverse(block, ROOTS, "factor")
    assert same_bytes(actual, by_one_process(A, block, 5, "factor"))


def test_blocks_keep_every_entry_in_its_order():
    A = roll_factor(97, 7)
    rows, columns = np.array([0, 10, 60, 97]), np.array([0, 33, 34, 97])
    stacked = []
    for number, block in enumerate(distributed_operator._cut(A, rows, columns)):
        global_columns = np.concatenate([np.arange(columns[t], columns[t + 1]) for t in block.touched])
        part = csr_array(
            (block.data, global_columns[block.indices], block.indptr), shape=(rows[number + 1] - rows[number], 97)
        )
        assert (np.diff(block.touched) > 0).all()
        stacked.append(part.toarray())
    np.testing.assert_array_equal(np.concatenate(stacked), A.toarray())
