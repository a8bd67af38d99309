"""Products on Dask workers: the bytes of one process, whatever the cut, also when a worker dies under way."""

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy.sparse import csr_array

from pipeline.kernels.eigensolver.chebyshev import block_width, filtered_subspace, first_state, largest_eigenvalue
from pipeline.kernels.eigensolver.normal_operator import NormalOperator
from pipeline.kernels.eigensolver.rayleigh_ritz import Tolerances
from pipeline.linalg import distributed_operator
from pipeline.linalg.distributed_operator import RowBlocks, operator_on_workers
from tests.support.sampled_factors import edge_factor, lle_factor, points, roll_factor

FIRST, LATER = (0.3, -0.8, 0.0), (0.5, -1.1, -1.0)


@pytest.fixture(scope="module")
def client():
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    )  # fmt: skip
    with cluster as local, Client(local) as found:
        yield found


def by_one_process(A, block, n_products):
    with NormalOperator(A, 1) as operator:
        return operator.recurrence(block, FIRST, LATER, n_products)


@pytest.mark.parametrize("n_products", [1, 2, 11])
@pytest.mark.parametrize("blocks_per_worker", [1, 4])
def test_same_bytes_as_one_process(client, monkeypatch, n_products, blocks_per_worker):
    monkeypatch.setattr(distributed_operator, "BLOCKS_PER_WORKER", blocks_per_worker)
    A = lle_factor(points("cube", 701, 19), 12, 1e-3)
    block = np.random.default_rng(3).standard_normal((701, 5))
    found = RowBlocks(A, client).recurrence(block, FIRST, LATER, n_products)
    assert found.tobytes() == by_one_process(A, block, n_products).tobytes()
    M = A.T @ A
    y0, y1 = block, FIRST[0] * (M @ block) + FIRST[1] * block
    for _ in range(n_products - 1):
        y0, y1 = y1, LATER[0] * (M @ y1) + LATER[1] * y1 + LATER[2] * y0
    np.testing.assert_allclose(found, y1, rtol=1e-9, atol=1e-9 * np.abs(y1).max())


def test_factors_that_are_not_square(client):
    A = edge_factor(points("sheet", 300, 19), 5)
    assert A.shape[0] != A.shape[1]
    block = np.random.default_rng(3).standard_normal((A.shape[1], 3))
    found = RowBlocks(A, client).recurrence(block, FIRST, LATER, 4)
    assert found.tobytes() == by_one_process(A, block, 4).tobytes()


@pytest.mark.slow
def test_a_filter_on_workers_finds_the_same_vectors(client):
    A, m = roll_factor(450, 3), 2
    start = np.random.default_rng(1).standard_normal((450, block_width(m)))
    tolerances = Tolerances(1e-12, largest_eigenvalue(A, 1))
    results = []
    for operator in (operator_on_workers, NormalOperator):
        with operator(A, 1) as products:
            found = filtered_subspace(A, products, m, first_state(A, start), tolerances, 24, 120, lambda *state: None)
            results.append((type(products), found.n_degrees, found.n_steps, found.pairs.vectors.tobytes()))
    assert [result[0] for result in results] == [RowBlocks, NormalOperator]
    assert results[0][1:] == results[1][1:]
    assert 60 < results[0][1] <= 120
    assert results[0][2] > 1


def test_without_a_client_it_works_here(monkeypatch):
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
    operator.recurrence(block, FIRST, LATER, 2)
    client.restart()  # all that was sent is lost
    assert operator.recurrence(block, FIRST, LATER, 5).tobytes() == by_one_process(A, block, 5).tobytes()


def test_blocks_keep_every_entry_in_its_order():
    A = roll_factor(97, 7)
    rows, columns = np.array([0, 10, 60, 97]), np.array([0, 33, 34, 97])
    stacked = []
    for number, block in enumerate(distributed_operator._cut(A, rows, columns)):
        back = np.concatenate([np.arange(columns[t], columns[t + 1]) for t in block.touched])
        part = csr_array((block.data, back[block.indices], block.indptr), shape=(rows[number + 1] - rows[number], 97))
        assert (np.diff(block.touched) > 0).all()
        stacked.append(part.toarray())
    np.testing.assert_array_equal(np.concatenate(stacked), A.toarray())
