from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from lle.kernels.factors.cost_matrix import (
    RowContribution,
    cut_rows,
    gram_contributions,
    local_factor,
    merge_contributions,
    merge_row,
    rows_between,
    split_by_rows,
)
from tests.support.oracle import dense_factor
from tests.support.seeds import seeds

SEEDS = seeds(11, 23, 37)


def ragged_lists(seed: int, n_points: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbour ids with -1 in some slots, and weights whose rows sum to 1."""
    rng = np.random.default_rng(seed)
    indices = np.full((n_points, k), -1, dtype=np.int32)
    weights = np.zeros((n_points, k))
    for i in range(n_points):
        n_valid = rng.integers(1, k + 1)
        slots = rng.permutation(k)[:n_valid]
        indices[i, slots] = rng.permutation(np.delete(np.arange(n_points), i))[:n_valid]
        w = rng.normal(size=n_valid) + 0.5
        weights[i, slots] = w / w.sum()
    return indices, weights


def assemble(factor_of_block: list[csr_array], block_points: int, n_points: int) -> csr_array:
    """The whole M, as the stages make it: sources in order, destination blocks one by one."""
    pieces = [split_by_rows(whole(factor), block_points) for factor in factor_of_block]
    rows = []
    for block, start in enumerate(range(0, n_points, block_points)):
        contributions = [piece[block] for piece in pieces if block in piece]
        rows.append(merge_contributions(contributions, start, min(start + block_points, n_points), n_points))
    indptr = np.cumsum(np.concatenate([[0], *(np.diff(block.indptr) for block in rows)]))
    data, indices = (np.concatenate([getattr(block, name) for block in rows]) for name in ("data", "indices"))
    return csr_array((data, indices, indptr), shape=(n_points, n_points))


def whole(factor: csr_array) -> RowContribution:
    """A contribution that is not cut."""
    [contribution] = gram_contributions(factor, 10**9)
    return contribution


def factors(indices: np.ndarray, weights: np.ndarray, block_points: int) -> list[csr_array]:
    n_points = len(indices)
    return [
        local_factor(indices[start : start + block_points], weights[start : start + block_points], start, n_points)
        for start in range(0, n_points, block_points)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_local_factor__rows_of_identity_minus_weights(seed: int) -> None:
    indices, weights = ragged_lists(seed, 40, 6)
    expected = dense_factor(indices, weights)
    for start, stop in [(0, 40), (13, 14), (13, 40)]:
        factor = local_factor(indices[start:stop], weights[start:stop], start, 40)
        np.testing.assert_array_equal(factor.toarray(), expected[start:stop])
        assert factor.has_canonical_format
        assert factor.nnz == (indices[start:stop] >= 0).sum() + stop - start
        assert factor.indices.dtype == factor.indptr.dtype == np.int32


def test_local_factor__wide_ids_where_int32_ends() -> None:
    n_points = 2**31 + 10
    indices = np.array([[n_points - 1, 5, -1]])
    factor = local_factor(indices, np.array([[0.25, 0.75, 0.0]]), 2**31, n_points)
    assert factor.indices.dtype == np.int64
    np.testing.assert_array_equal(factor.indices, [5, 2**31, n_points - 1])
    np.testing.assert_array_equal(factor.data, [-0.75, 1, -0.25])


def test_contributions__wide_ids_where_int32_ends() -> None:
    n_points = 2**31 + 10
    first_row = n_points - 4
    indices = np.array([[first_row + 1], [first_row + 3]])
    contribution = whole(local_factor(indices, np.ones((2, 1)), first_row, n_points))
    assert contribution.rows.dtype == contribution.indices.dtype == np.int64
    np.testing.assert_array_equal(contribution.rows, first_row + np.array([0, 1, 3]))
    pieces = split_by_rows(contribution, first_row + 1)
    assert sorted(pieces) == [0, 1]
    np.testing.assert_array_equal(pieces[1].indices, first_row + np.array([0, 1, 3, 1, 3]))
    np.testing.assert_array_equal(pieces[1].data, [-1, 2, -1, -1, 1])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("source_points", "block_points"), [(50, 50), (7, 50), (50, 7), (7, 11), (1, 1)])
def test_cost_matrix__is_the_dense_product(seed: int, source_points: int, block_points: int) -> None:
    indices, weights = ragged_lists(seed, 50, 6)
    A = dense_factor(indices, weights)
    M = assemble(factors(indices, weights, source_points), block_points, 50)
    assert M.has_canonical_format
    np.testing.assert_allclose(M.toarray(), A.T @ A, rtol=0, atol=1e-12 * np.abs(A.T @ A).max())
    A[3, 4] += 1e-6
    assert np.abs(M.toarray() - A.T @ A).max() > 1e-12 * np.abs(A.T @ A).max()


@pytest.mark.parametrize("seed", SEEDS)
def test_cost_matrix__symmetric_bit_for_bit_for_any_destination_blocks(seed: int) -> None:
    indices, weights = ragged_lists(seed, 300, 12)
    sources = factors(indices, weights, 37)
    M = assemble(sources, 41, 300)
    dense = M.toarray()
    np.testing.assert_array_equal(dense, dense.T)
    for block_points in (1, 64, 300):
        reassembled = assemble(sources, block_points, 300)
        np.testing.assert_array_equal(reassembled.indices, M.indices)
        np.testing.assert_array_equal(reassembled.data.view(np.int64), M.data.view(np.int64))
    reordered = assemble(sources[::-1], 41, 300)  # the order of the additions matters, so the test can fail
    assert (reordered.toarray() != dense).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_gram_contribution__takes_any_factor_of_the_family(seed: int) -> None:
    """Rows without a diagonal entry, several rows for a point, columns without entries."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(25, 60)) * (rng.random((25, 60)) < 0.1)
    dense[:, 20:30] = 0
    contribution = whole(csr_array(dense))
    assert set(contribution.rows) == set(np.flatnonzero(dense.any(axis=0)))
    M = merge_contributions([contribution], 0, 60, 60)
    np.testing.assert_allclose(M.toarray(), dense.T @ dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("max_entries", [1, 60, 100, 10**6])
def test_gram_contributions__cut_into_runs_of_rows(max_entries: int) -> None:
    """A point in all lists has its own run; the sums are equal bit for bit."""
    indices, weights = ragged_lists(37, 40, 6)
    hub = np.arange(40) != 9
    indices[hub, 0], weights[:, 0] = 9, 0.3
    indices[:, 1:][indices[:, 1:] == 9] = -1
    factor = local_factor(indices, weights, 0, 40)
    runs, all_rows = list(gram_contributions(factor, max_entries)), whole(factor)
    np.testing.assert_array_equal(np.concatenate([run.rows for run in runs]), all_rows.rows)
    np.testing.assert_array_equal(np.concatenate([run.indices for run in runs]), all_rows.indices)
    np.testing.assert_array_equal(np.concatenate([run.data for run in runs]), all_rows.data)
    assert all(len(run.data) <= max_entries or len(run.rows) == 1 for run in runs)
    counts = np.repeat(np.diff(factor.indptr), np.diff(factor.indptr))  # of the row of F of each entry
    bounds = np.minimum(np.bincount(factor.indices, counts, 40), 40)
    assert len(runs) >= min(40, bounds.sum() / max_entries)
    assert np.diff(all_rows.indptr)[9] == 40


def test_gram_contributions__of_a_dense_factor_are_symmetric_bit_for_bit(rng: np.random.Generator) -> None:
    dense = np.triu(rng.normal(size=(600, 600)))
    ids, values = np.nonzero(dense)[1] + 7, dense[dense != 0]
    factor = csr_array((values, ids, np.append(0, np.cumsum(np.arange(600, 0, -1)))), shape=(600, 700))
    runs = list(gram_contributions(factor, 50_000))
    assert len(runs) > 5
    M = merge_contributions(runs, 0, 700, 700).toarray()
    np.testing.assert_allclose(M[7:607, 7:607], dense.T @ dense, atol=1e-10)
    np.testing.assert_array_equal(M, M.T)


def test_split_by_rows__touched_blocks_only() -> None:
    contribution = RowContribution(
        np.array([2, 7, 8, 23]), np.array([0, 1, 3, 3, 5]), np.array([2, 7, 8, 23, 24]), np.arange(5.0)
    )
    pieces = split_by_rows(contribution, 8)
    assert sorted(pieces) == [0, 1, 2]
    np.testing.assert_array_equal(pieces[0].rows, [2, 7])
    np.testing.assert_array_equal(pieces[0].indptr, [0, 1, 3])
    np.testing.assert_array_equal(pieces[1].rows, [8])
    np.testing.assert_array_equal(pieces[1].data, [])
    np.testing.assert_array_equal(pieces[2].indices, [23, 24])
    np.testing.assert_array_equal(pieces[2].indptr, [0, 2])


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_merged_in_ranges_or_one_by_one_are_equal_bit_for_bit(seed: int) -> None:
    indices, weights = ragged_lists(seed, 90, 6)
    pieces = [split_by_rows(whole(factor), 50)[1] for factor in factors(indices, weights, 20)]
    expected = merge_contributions(pieces, 50, 90, 90)
    counts = sum(np.bincount(piece.rows - 50, np.diff(piece.indptr), 40) for piece in pieces).astype(np.int64)
    cuts = cut_rows(counts, 200)
    assert len(cuts) > 4
    assert all(counts[a:b].sum() <= 200 or b == a + 1 for a, b in pairwise(cuts))
    for cuts_at in (cuts, list(range(41))):
        for first, past in pairwise(cuts_at):
            part = [rows_between(piece, 50 + first, 50 + past) for piece in pieces]
            merged = [merge_contributions(part, 50 + first, 50 + past, 90)]
            merged += [merge_row(part, 90)] if past == first + 1 else []
            for rows in merged:
                assert rows.toarray().tobytes() == expected[first:past].toarray().tobytes()
                np.testing.assert_array_equal(rows.indices, expected[first:past].indices)
                assert rows.indices.dtype == expected.indices.dtype


def test_empty_contributions_give_empty_rows() -> None:
    assert list(gram_contributions(csr_array((3, 50)), 7)) == []
    ids = np.zeros(0, int)
    empty = RowContribution(ids, np.zeros(1, int), ids, np.zeros(0))
    assert split_by_rows(empty, 10) == {}
    for pieces in ([], [empty]):
        M = merge_contributions(pieces, 20, 30, 50)
        assert (M.shape, M.nnz) == ((10, 50), 0)
