"""Sampled rows and their neighbours among all rows: exact, bounded memory, duplicates once, invalid rows reported."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from lle.core.errors import InputError
from lle.jobs import suggest_sample
from lle.jobs.suggest_sample import pieces, sample_neighbors
from lle.stages.ingest import open_input
from tests.support.seeds import seeds

SEEDS = seeds(19, 83)


@pytest.fixture
def look(tmp_path, make_config):
    def run(points, sample=60, k=7, seed=5, metric="euclidean", **preprocess):
        config = make_config(tmp_path, points, preprocess=preprocess, neighbors={"metric": metric})
        return sample_neighbors(config, open_input(config), sample, k, seed)

    return run


@pytest.fixture(params=[None, 64])
def block(request, monkeypatch):
    """In one block, and in many."""
    if request.param:
        monkeypatch.setattr(suggest_sample, "block_points", lambda *sizes: request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("d", "dtype"), [(3, "f8"), (15, "f4")])
def test_neighbours_are_the_nearest_of_all_distinct_rows(look, seed, d, dtype):
    distinct = np.random.default_rng(seed).normal(size=(500, d)).astype(dtype)
    found = look(np.concatenate([distinct, distinct[:200]]), seed=seed)
    distances = np.sort(cdist(found.points.astype("f8"), distinct.astype("f8")), axis=1)
    assert (distances[:, 0] == 0).all()  # the points are rows of the input
    assert len(np.unique(found.points, axis=0)) == len(found.points)
    assert 50 <= len(found.points) <= 60
    np.testing.assert_allclose(found.lists.distances, distances[:, 1:8], rtol=1e-12)


def test_sample_depends_on_the_seed_only(look):
    points = np.random.default_rng(3).normal(size=(400, 3))
    first, again, other = look(points), look(points), look(points, seed=6)
    np.testing.assert_array_equal(first.points, again.points)
    assert not np.isin(first.points, other.points).all()


def test_sample_is_preprocessed_as_in_the_config(look):
    rng = np.random.default_rng(4)
    points = rng.normal(size=(300, 4)) * [1, 100, 1e4, 1e-3] + 7
    scaled = look(points, sample=300, scale="standard")
    np.testing.assert_allclose(scaled.points.std(axis=0), 1, rtol=1e-9)
    assert look(points, sample=300, scale="standard", pca=2).points.shape == (300, 2)


def test_column_that_is_constant_in_the_sample_only_is_left_out(look):
    points = np.random.default_rng(5).normal(size=(500, 4))
    points[:, 2] = np.arange(500) == 123  # a rare category, not among the sampled rows
    found = look(points, scale="standard")
    assert (found.points[:, 2] == 0).all()
    assert "1 of 4 columns" in found.left_out
    points[:, 2] = 0
    with pytest.raises(InputError, match="1 of 4 columns hold one value only"):
        look(points, sample=500, scale="standard")


@pytest.mark.usefixtures("block")
def test_cosine_sample_has_unit_rows(look):
    points = np.random.default_rng(6).normal(size=(300, 4)) + 1
    found = look(points, sample=300, metric="cosine")
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(found.points, axis=1), 1, rtol=1e-12)
    expected = np.sort(cdist(found.points, unit), axis=1)[:, 1:8]
    np.testing.assert_allclose(found.lists.distances, expected, rtol=1e-9)
    points[7] = 0.0
    with pytest.raises(InputError, match="rows are zero"):
        look(points, metric="cosine")


def test_invalid_rows(look):
    points = np.random.default_rng(8).normal(size=(300, 4))
    points[::7, 2] = np.nan
    with pytest.raises(InputError, match="43 rows with NaN"):
        look(points)
    found = look(points, sample=300, invalid="drop")
    assert len(found.points) == 300 - 43
    assert np.isfinite(found.lists.distances).all()


def test_too_few_rows(look):
    with pytest.raises(InputError, match="30 distinct valid rows"):
        look(np.repeat(np.arange(90.0).reshape(30, 3), 5, axis=0), sample=150)


def test_searches_among_all_rows_are_bounded(look, monkeypatch):
    monkeypatch.setattr(suggest_sample, "QUERY_ELEMENTS", 3 * 7 * 60)
    found = look(np.random.default_rng(9).normal(size=(500, 3)), sample=200)
    assert (len(found.points), len(found.lists.ids)) == (200, 60)


@pytest.mark.parametrize(("n_lines", "n_rows", "fewest"), [(1, 160, 8), (1, 160**1.25, 11), (2, 320, 8)])
def test_fewer_neighbours_leave_no_more_pieces(n_lines, n_rows, fewest):
    """Groups of eight points along a line: a list of seven neighbours does not leave its group. A sample needs 8 of 10
    neighbours if log(rows) is 1.25 times as large."""
    groups = np.column_stack([np.repeat(np.arange(20.0), 8), *np.random.default_rng(7).random((2, 160)) / 10])
    lines = np.concatenate([groups + np.array([0, 99 * line, 0]) for line in range(n_lines)])
    number, largest, fewest_found = pieces(lines, len(lines) - 5, 12, n_rows)
    assert (number, fewest_found) == (n_lines, fewest)
    np.testing.assert_array_equal(largest, np.arange(160 if n_lines > 1 else 155))
