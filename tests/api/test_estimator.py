"""LocallyLinearEmbedding follows scikit-learn's protocol and runs the same stages as the command."""

import pickle
import shutil
from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.sparse import csr_array, csr_matrix
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import make_s_curve
from sklearn.exceptions import NotFittedError
from sklearn.manifold import LocallyLinearEmbedding as Reference
from sklearn.manifold._locally_linear import barycenter_weights
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lle import EmbeddingWarning, LocallyLinearEmbedding, embed, open_run
from lle.config.models import Config
from lle.core.errors import BoundsNotMet, StoreError, StoreHeld
from lle.engine import plan_sizes
from lle.search import among_stored
from lle.search.among_stored import PLACED_COMPONENT
from lle.storage.lock import RunLock
from lle.storage.store import Store
from tests.support.commands import lle, refused
from tests.support.oracle import largest_angle
from tests.support.points import curved, swiss_roll

pytestmark = pytest.mark.filterwarnings("ignore::lle.EmbeddingWarning")

PLAIN = {"neighbors": {"reverse": 0}, "quality": {"sample": 50}}


@pytest.fixture(scope="module")
def roll() -> np.ndarray:
    return swiss_roll(500, np.random.default_rng(29))


@pytest.fixture(scope="module")
def fitted(roll) -> LocallyLinearEmbedding:
    return LocallyLinearEmbedding(reg=1e-3, config=PLAIN).fit(roll)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:n_neighbors is:UserWarning")
@parametrize_with_checks([LocallyLinearEmbedding()])
def test_estimator_passes_scikit_learns_checks(estimator, check):
    check(estimator)


def test_defaults_are_those_of_the_config():
    defaults = Config.model_validate({"input": {"kind": "npy", "path": "x"}, "output": {"store": "y"}})
    model = LocallyLinearEmbedding()
    assert model.n_neighbors == defaults.neighbors.n_neighbors
    assert model.n_components == defaults.eigensolver.n_components
    assert (model.reg, model.tol, model.method) == (defaults.weights.reg, defaults.eigensolver.tol, defaults.method)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("standard", "standard"), ("ltsa", "ltsa"), pytest.param("modified", "modified", marks=pytest.mark.slow)],
)
def test_embedding_equals_scikit_learns(roll, ours, theirs):
    model = LocallyLinearEmbedding(method=ours, reg=1e-3, config=PLAIN)
    reference = Reference(n_neighbors=12, n_components=2, method=theirs, eigen_solver="dense").fit(roll)
    embedding = model.fit_transform(roll)
    assert largest_angle(embedding, reference.embedding_) < 0.1
    assert largest_angle(embedding[::-1].copy(), reference.embedding_) > 1.0
    assert model.reconstruction_error_ == pytest.approx(reference.reconstruction_error_, rel=1e-3)
    assert model.eigenvalues_.shape == (1, 2)
    assert model.store_ is None
    assert model.metrics_["trustworthiness"]["sample"] == 50


class TestTransform:
    def test_transform_agrees_with_scikit_learn(self, roll, fitted):
        """Both give W Y for the same weights W; the embeddings Y differ by a linear map."""
        new = swiss_roll(200, np.random.default_rng(31))
        reg = fitted.metrics_["reg"]["value"]
        reference = Reference(n_neighbors=12, n_components=2, reg=reg, eigen_solver="dense").fit(roll)
        to_ours = np.linalg.lstsq(reference.embedding_, fitted.embedding_, rcond=None)[0]
        np.testing.assert_allclose(fitted.transform(new), reference.transform(new) @ to_ours, atol=1e-3)

    def test_fitted_points_keep_their_coordinates(self, roll, fitted):
        np.testing.assert_array_equal(fitted.transform(roll), fitted.embedding_)
        np.testing.assert_array_equal(fitted.transform(roll[7:9]), fitted.embedding_[7:9])

    def test_rows_among_approximate_neighbors_have_nearly_all_true_neighbors(self, monkeypatch):
        """They are searched in their nearest cells. Points of pieces apart are no neighbours: they are placed too."""
        monkeypatch.setattr(plan_sizes, "CELL_POINTS", 60)
        X, new = (curved(n, np.random.default_rng(n)) for n in (1500, 300))
        apart = np.concatenate([curved(45, np.random.default_rng(i + 5)) + 40.0 * i for i in range(-5, 6) if i])
        X = np.concatenate([X[:700], apart, X[700:]])
        config = {"neighbors": {"method": "pynndescent", "min_recall": 0.9}, "graph": {"min_component": 50}}
        searched, search = [], among_stored._nearest_in_cells

        def recorded(*arguments):
            searched.append(len(arguments[1]))
            return search(*arguments)

        monkeypatch.setattr(among_stored, "_nearest_in_cells", recorded)
        model = LocallyLinearEmbedding(reg=1e-3, config={**PLAIN, **config}).fit(X)
        assert (model.component_[700:1150] == PLACED_COMPONENT).all()
        assert sum(searched) == 450
        assert model._points().n_cells < 6  # of 25: wrong rows of the cells would need all
        is_fitted = model.component_ == 0
        np.testing.assert_array_equal(model.transform(X[is_fitted]), model.embedding_[is_fitted])
        for rows, found in ((new, model.transform(new)), (X[700:1150], model.embedding_[700:1150])):
            near = np.argsort(cdist(rows, X[is_fitted]), axis=1)[:, :12]
            weights = barycenter_weights(rows, X[is_fitted], near, reg=1e-3)
            expected = np.einsum("bk,bkm->bm", weights, model.embedding_[is_fitted][near])
            assert np.isclose(found, expected, rtol=0, atol=1e-7).all(axis=1).mean() > 0.8

    def test_rows_with_too_few_points_in_their_cells_are_searched_exactly(self, monkeypatch):
        monkeypatch.setattr(plan_sizes, "CELL_POINTS", 60)
        X, new = (curved(n, np.random.default_rng(n)) for n in (1500, 300))
        config = {"neighbors": {"method": "pynndescent", "min_recall": 0.9}}
        training = LocallyLinearEmbedding(reg=1e-3, config={**PLAIN, **config}).fit(X)._points()
        some = replace(training, n_neighbors=60, n_cells=1)
        cell = np.argmin(cdist(new, some.cells.centers), axis=1)
        is_short = (some.cells.stop - some.cells.start)[cell] < 60
        assert 10 < is_short.sum() < 290
        is_equal = np.isclose(some.place(new), replace(some, cells=None).place(new), rtol=0, atol=1e-12).all(axis=1)
        assert is_equal[is_short].all()
        assert not is_equal[~is_short].all()

    def test_preprocessing_is_applied_to_new_points(self, roll):
        config = {**PLAIN, "preprocess": {"scale": "standard"}}
        model = LocallyLinearEmbedding(reg=1e-3, config=config).fit(roll * [1.0, 100.0, 1.0])
        np.testing.assert_allclose(model.transform(roll * [1.0, 100.0, 1.0]), model.embedding_, atol=1e-9)
        new = swiss_roll(50, np.random.default_rng(31))
        assert np.ptp(model.transform(new * [1.0, 100.0, 1.0]), axis=0).min() > 1.0

    def test_transform_uses_cosine_distances_if_fit_did(self, roll):
        rows = roll + np.array([0.0, 30.0, 0.0])
        model = LocallyLinearEmbedding(reg=1e-3, config={**PLAIN, "neighbors": {"metric": "cosine"}}).fit(rows)
        lengths = np.linspace(0.5, 2.0, len(rows))[:, None]
        np.testing.assert_allclose(model.transform(rows * lengths), model.embedding_, atol=1e-6)

    def test_dask_distinguishes_models_of_different_data(self, roll):
        models = [LocallyLinearEmbedding(method="pca", config=PLAIN).fit(roll * scale) for scale in (1.0, 2.0)]
        rows = da.from_array(roll[:10])
        found = dask.compute(*(rows.map_blocks(model.transform, dtype=float, chunks=(10, 2)) for model in models))
        for model, coordinates in zip(models, found, strict=True):
            np.testing.assert_array_equal(coordinates, model.transform(roll[:10]))

    def test_transform_of_pca_projects_on_the_components(self, roll):
        model = LocallyLinearEmbedding(method="pca", config=PLAIN).fit(roll)
        far = 3.0 * roll[:10]
        map_ = np.linalg.lstsq(roll - roll.mean(axis=0), model.embedding_, rcond=None)[0]
        np.testing.assert_allclose(model.transform(far), (far - roll.mean(axis=0)) @ map_, atol=1e-8)

    def test_components_do_not_mix_and_rows_of_small_ones_are_placed(self, roll):
        X = np.concatenate([roll, roll[:200] + 300.0, roll[:30] - 300.0])
        model = LocallyLinearEmbedding(reg=1e-3, config={**PLAIN, "graph": {"min_component": 100}}).fit(X)
        assert model.eigenvalues_.shape == (2, 2)
        assert (model.component_[700:] == -2).all()
        assert np.isfinite(model.embedding_).all()
        np.testing.assert_array_equal(model.transform(X[:700]), model.embedding_[:700])
        between = model.transform(X[500:700] + 0.01)
        assert np.abs(between - model.embedding_[500:700]).max() < 0.5

    def test_rows_outside_the_largest_component_are_nan_with_a_warning(self, roll):
        X = np.concatenate([roll, roll[:30] - 300.0])
        with pytest.warns(EmbeddingWarning, match=r"30 rows \(5.7%\) are in components that were not embedded"):
            model = LocallyLinearEmbedding(reg=1e-3, config={**PLAIN, "graph": {"components": "largest"}}).fit(X)
        assert np.isnan(model.embedding_[500:]).all()

    def test_point_between_two_components_is_placed_in_the_nearest(self):
        """Two crossed layers, closer than the size of a neighbourhood; the test recomputes the weights."""
        rng = np.random.default_rng(41)
        flat = np.column_stack([rng.uniform(0, 3, 400), rng.uniform(0, 1, 400)])
        above = np.column_stack([flat[:, ::-1], np.full(400, 0.5)])
        X = np.concatenate([np.column_stack([flat, np.zeros(400)]), above])
        model = LocallyLinearEmbedding(reg=1e-3, config=PLAIN).fit(X)
        assert model.eigenvalues_.shape == (2, 2)
        query = np.array([0.5, 0.5, 0.24])
        near = np.argsort(np.linalg.norm(X - query, axis=1))[:12]
        assert set(model.component_[near]) == {0, 1}
        own = near[model.component_[near] == model.component_[near[0]]]
        G = (X[own] - query) @ (X[own] - query).T
        w = np.linalg.solve(G + 1e-3 * np.trace(G) * np.eye(len(own)), np.ones(len(own)))
        np.testing.assert_allclose(model.transform([query])[0], w / w.sum() @ model.embedding_[own], rtol=1e-8)

    def test_transform_before_fit_is_refused(self, roll):
        with pytest.raises(NotFittedError):
            LocallyLinearEmbedding().transform(roll)

    def test_refuses_other_widths_and_nan_in_chunked_arrays(self, roll, fitted):
        with pytest.raises(ValueError, match="X has 2 features, but LocallyLinearEmbedding is expecting 3"):
            fitted.transform(da.from_array(roll[:, :2]))
        with pytest.raises(ValueError, match="input: 1 of 5 rows hold NaN"):
            fitted.transform(da.from_array(np.vstack([roll[:4], [[np.nan, 0.0, 0.0]]]))).compute()


class TestInverseTransform:
    @pytest.mark.parametrize("config", [PLAIN, {**PLAIN, "preprocess": {"scale": "standard"}}])
    def test_new_coordinates_give_rows_near_the_surface(self, config):
        """A surface of 2 x 2 x 4, the second coordinate in other units; points are some 0.15 apart."""
        units = np.array([1.0, 100.0 if "preprocess" in config else 1.0, 1.0])
        X, new = (make_s_curve(n, random_state=n)[0] * units for n in (600, 200))
        model = LocallyLinearEmbedding(reg=1e-3, config=config).fit(X)
        np.testing.assert_allclose(model.inverse_transform(model.embedding_), X, atol=1e-9)
        errors = np.linalg.norm((model.inverse_transform(model.transform(new)) - new) / units, axis=1)
        assert np.median(errors) < 0.05
        shuffled = np.linalg.norm((model.inverse_transform(model.transform(new[::-1])) - new) / units, axis=1)
        assert np.median(shuffled) > 1.0

    def test_pca_has_a_linear_map(self, roll):
        model = LocallyLinearEmbedding(method="pca", n_components=3, config=PLAIN).fit(roll)
        Y = model.transform(2.0 * roll[:10])
        np.testing.assert_allclose(model.inverse_transform(Y), 2.0 * roll[:10], atol=1e-8)

    def test_refuses_what_is_no_coordinate(self, fitted):
        for Y in (np.empty((0, 2)), csr_array(np.ones((3, 2))), [[1j, 2]], [1.0, 2.0]):
            with pytest.raises(ValueError, match="coordinates: expected"):
                fitted.inverse_transform(Y)
        with pytest.raises(ValueError, match=r"coordinates: expected shape \(b, 2\), found shape \(4, 3\)"):
            fitted.inverse_transform(np.zeros((4, 3)))
        with pytest.raises(ValueError, match="coordinates: 1 of 2 rows hold NaN"):
            fitted.inverse_transform([[0.0, 0.0], [np.nan, 0.0]])

    def test_warns_that_components_overlap(self, roll):
        X = np.concatenate([roll, roll + 300.0])
        model = LocallyLinearEmbedding(reg=1e-3, config=PLAIN).fit(X)
        with pytest.warns(UserWarning, match="2 components whose coordinates overlap"):
            rows = model.inverse_transform(model.embedding_[:5])
        assert np.isfinite(rows).all()


class TestGraph:
    def test_holds_the_distances_to_the_nearest_rows(self, roll, fitted):
        distances = np.linalg.norm(roll[:, None] - roll[None], axis=2)
        graph = fitted.graph_
        assert graph.shape == (500, 500)
        assert (np.diff(graph.indptr) == 12).all()
        for row in (0, 77, 499):
            columns = graph.indices[graph.indptr[row] : graph.indptr[row + 1]]
            assert set(columns) == set(np.argsort(distances[row])[1:13])
            np.testing.assert_allclose(
                graph.data[graph.indptr[row] : graph.indptr[row + 1]], distances[row, columns], rtol=1e-5
            )

    def test_equal_rows_have_the_same_neighbours_and_dropped_rows_none(self, roll, tmp_path):
        X = np.concatenate([roll[:1], [[np.nan] * 3], roll])
        np.save(tmp_path / "rows.npy", X)
        config = {**PLAIN, "preprocess": {"invalid": "drop"}}
        with pytest.warns(EmbeddingWarning, match="1 of 502 rows hold NaN or infinity; their coordinates are NaN"):
            model = LocallyLinearEmbedding(reg=1e-3, config=config).fit(
                {"kind": "npy", "path": str(tmp_path / "rows.npy")}
            )
        dense = model.graph_.toarray()
        np.testing.assert_array_equal(dense[2], dense[0])
        assert not dense[1].any()
        assert not dense[:, 1:3].any()
        distances = np.linalg.norm(roll - roll[400], axis=1)
        assert set(np.flatnonzero(dense[402])) == {0 if row == 0 else row + 2 for row in np.argsort(distances)[1:13]}

    def test_graph_is_read_from_the_store_of_the_fit(self, roll, fitted, tmp_path):
        model = LocallyLinearEmbedding(store=str(tmp_path / "run.zarr"), reg=1e-3, config=PLAIN).fit(roll)
        assert (model.graph_ != fitted.graph_).nnz == 0
        LocallyLinearEmbedding(store=str(tmp_path / "run.zarr"), n_neighbors=9, reg=1e-3, config=PLAIN).fit(roll)
        with pytest.raises(StoreError, match="expected the fitted run, found another"):
            model.graph_  # noqa: B018


class TestChunkedArrays:
    @pytest.fixture
    def stored(self, roll, tmp_path):
        array = zarr.create_array(tmp_path / "points.zarr", shape=roll.shape, dtype="float64", chunks=(130, 3))
        array[:] = roll
        return array

    def test_all_kinds_of_arrays_give_the_same_embedding(self, roll, fitted, stored):
        for X in (da.from_array(roll, chunks=(170, 2)), stored, roll.tolist(), pd.DataFrame(roll)):
            model = LocallyLinearEmbedding(reg=1e-3, config=PLAIN).fit(X)
            np.testing.assert_array_equal(model.embedding_, fitted.embedding_)
            assert model.n_features_in_ == 3

    def test_transform_returns_the_kind_of_array_it_was_given(self, roll, fitted, stored):
        lazy = fitted.transform(da.from_array(roll, chunks=(170, 2)))
        assert isinstance(lazy, da.Array)
        assert lazy.chunks == ((170, 170, 160), (2,))
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), fitted.embedding_)
        np.testing.assert_array_equal(fitted.transform(stored), fitted.embedding_)

    def test_fit_accepts_an_input_section(self, fitted, stored):
        section = {"kind": "zarr", "url": str(stored.store.root)}
        model = LocallyLinearEmbedding(reg=1e-3, config=PLAIN).fit(section)
        np.testing.assert_array_equal(model.embedding_, fitted.embedding_)
        np.testing.assert_array_equal(model.transform(stored), fitted.embedding_)


def test_workers_are_started_for_many_rows_only():
    sections = LocallyLinearEmbedding(n_jobs=3)._sections(np.zeros((20_000, 2)))
    assert sections["execution"]["cluster"] == {"kind": "local", "workers": 3}
    assert "cluster" not in LocallyLinearEmbedding(n_jobs=3)._sections(np.zeros((19_999, 2)))["execution"]


class TestGivenStore:
    def test_given_store_is_kept_and_read_by_transform(self, roll, fitted, tmp_path):
        model = LocallyLinearEmbedding(store=str(tmp_path / "run.zarr"), reg=1e-3, config=PLAIN).fit(roll)
        assert model.store_ == str(tmp_path / "run.zarr")
        np.testing.assert_array_equal(open_run(model.store_)["embedding"], fitted.embedding_)
        new = swiss_roll(20, np.random.default_rng(31))
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copy.transform(new), fitted.transform(new))

    def test_given_store_is_resumed(self, roll, tmp_path):
        store = tmp_path / "run.zarr"
        LocallyLinearEmbedding(store=str(store), reg=1e-3, config=PLAIN).fit(roll)
        found = {path: path.stat().st_mtime_ns for path in (store / "_done" / "find_neighbors").iterdir()}
        LocallyLinearEmbedding(store=str(store), config=PLAIN, reg=1e-2).fit(da.from_array(roll, chunks=(170, 3)))
        assert {path: path.stat().st_mtime_ns for path in (store / "_done" / "find_neighbors").iterdir()} == found
        assert open_run(str(store)).config["weights"]["reg"] == 1e-2

    def test_transform_refuses_a_store_that_another_run_has_overwritten(self, roll, tmp_path):
        store = str(tmp_path / "run.zarr")
        first = LocallyLinearEmbedding(store=store, config=PLAIN, reg=1e-3).fit(roll)
        second = LocallyLinearEmbedding(store=store, config=PLAIN, reg=1e-2).fit(roll)
        np.testing.assert_array_equal(second.transform(roll), second.embedding_)
        with pytest.raises(StoreError, match="expected the fitted run, found another"):
            first.transform(roll)

    def test_a_store_that_was_deleted_is_not_called_damaged(self, roll, tmp_path):
        model = LocallyLinearEmbedding(store=str(tmp_path / "run.zarr"), reg=1e-3, config=PLAIN).fit(roll)
        shutil.rmtree(tmp_path / "run.zarr")
        for read in (lambda: model.transform(roll), lambda: model.graph_):
            with pytest.raises(StoreError, match=r"run\.zarr: .* found nothing; fit again"):
                read()

    @pytest.mark.slow
    def test_each_fit_of_a_pattern_has_a_store(self, roll, tmp_path):
        """Two simultaneous fits use different stores; a repeated fit resumes its own."""
        pattern = str(tmp_path / "grid-{fit}.zarr")
        fits = [({}, roll), ({"reg": 1e-2}, roll), ({}, roll[:400]), ({}, roll)]
        urls = [LocallyLinearEmbedding(store=pattern, config=PLAIN, **given).fit(X).store_ for given, X in fits]
        assert urls[0] == urls[3]
        assert len(set(urls)) == 3
        assert "{fit}" not in urls[0]

    def test_store_in_use_names_the_pattern(self, roll, tmp_path):
        store = str(tmp_path / "run.zarr")
        LocallyLinearEmbedding(store=store, reg=1e-3, config=PLAIN).fit(roll)
        with RunLock(Store(store)), pytest.raises(StoreHeld) as caught:
            LocallyLinearEmbedding(store=store, config=PLAIN, reg=1e-2).fit(roll)
        assert "grid-{fit}.zarr" in caught.value.__notes__[0]

    @pytest.mark.slow
    def test_labels_reach_the_report(self, roll, tmp_path):
        store, labels = str(tmp_path / "run.zarr"), np.where(roll[:, 1] > 10, "high", "low")
        LocallyLinearEmbedding(store=store, reg=1e-3, config={**PLAIN, "output": {"report": True}}).fit(roll, labels)
        np.testing.assert_array_equal(open_run(store)["label"].compute()[:, 0], labels == "low")
        assert ">high<" in (tmp_path / "run.zarr" / "report" / "index.html").read_text()
        assert len(list((tmp_path / "run.zarr" / "_run").glob("labels-*.npy"))) == 1


class TestColumnNames:
    def test_transform_of_the_store_matches_a_table_by_name(self, roll, tmp_path):
        frame = pd.DataFrame(roll, columns=["x", "y", "z"])
        model = LocallyLinearEmbedding(n_neighbors=8, reg=1e-3, store=str(tmp_path / "run.zarr")).fit(frame)
        frame[["z", "x", "y"]][:30].to_parquet(tmp_path / "new.parquet")
        lle("transform", tmp_path / "run.zarr", tmp_path / "new.parquet", tmp_path / "y.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, :2], model.embedding_[:30])
        frame.rename(columns={"z": "height"}).to_parquet(tmp_path / "new.parquet")
        words = refused(2, "transform", tmp_path / "run.zarr", tmp_path / "new.parquet", tmp_path / "y.npy")
        assert "missing: z; not in the run: height" in words

    def test_names_of_an_input_section_are_checked_by_transform(self, roll, tmp_path):
        frame = pd.DataFrame(roll, columns=["x", "y", "z"])
        frame.to_csv(tmp_path / "x.csv", index=False)
        model = LocallyLinearEmbedding(n_neighbors=8, reg=1e-3).fit({"kind": "csv", "path": str(tmp_path / "x.csv")})
        assert model.feature_names_in_.tolist() == ["x", "y", "z"]
        np.testing.assert_array_equal(model.transform(frame[:5]), model.embedding_[:5])
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            model.transform(frame[["z", "x", "y"]])


class TestInScikitLearn:
    @pytest.mark.slow
    def test_parallel_grid_search_keeps_a_store_per_fit(self, roll, tmp_path):
        model = LocallyLinearEmbedding(store=str(tmp_path / "grid-{fit}.zarr"), reg=1e-3, config=PLAIN)
        split = ShuffleSplit(2, test_size=0.2, random_state=5)
        search = GridSearchCV(
            make_pipeline(model, KNeighborsRegressor(5)),
            n_jobs=2,
            cv=split,
            error_score="raise",
            param_grid={"locallylinearembedding__reg": [1e-3, 1e-2]},
        )
        search.fit(roll, roll[:, 1])
        assert len(list(tmp_path.glob("grid-*.zarr"))) == 5

    @pytest.mark.slow
    def test_pipeline_and_grid_search(self):
        X, along = make_s_curve(400, random_state=13)
        steps = make_pipeline(StandardScaler(), LocallyLinearEmbedding(reg=1e-3, config=PLAIN), KNeighborsRegressor(8))
        grid, split = {"locallylinearembedding__n_neighbors": [8, 14]}, ShuffleSplit(1, test_size=0.25, random_state=5)
        search = GridSearchCV(steps, grid, cv=split, error_score="raise").fit(X, along)
        assert search.best_score_ > 0.95
        assert search.score(X, np.roll(along, 7)) < 0.5
        assert set(search.cv_results_["param_locallylinearembedding__n_neighbors"]) == {8, 14}

    def test_names_of_the_coordinates(self, roll):
        model = LocallyLinearEmbedding(reg=1e-3, config=PLAIN).set_output(transform="pandas")
        frame = model.fit_transform(pd.DataFrame(roll[:200], columns=["x", "y", "z"]))
        assert list(frame.columns) == ["locallylinearembedding0", "locallylinearembedding1"]

    def test_random_states(self, roll):
        for state in (3, np.int64(3), np.random.RandomState(3)):
            model = clone(LocallyLinearEmbedding(random_state=state))
            assert isinstance(model._sections(roll)["neighbors"]["seed"], int)
        assert "seed" not in LocallyLinearEmbedding()._sections(roll)["neighbors"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"method": "tsne"}, "method: should be 'lle', 'modified'"),
        ({"n_neighbors": 2.5}, "neighbors.n_neighbors"),
        ({"n_neighbors": 2}, "eigensolver.n_components is 2 and neighbors.n_neighbors is 2"),
        ({"n_components": 4}, "^n_components is 4, but the input has 3 features"),
        ({"reg": -1.0}, "weights.reg"),
        ({"n_jobs": 0}, "n_jobs: expected None or a number of workers other than 0"),
        ({"config": {"weights": {"reg": 1.0}}}, "config: weights.reg is the parameter reg"),
        ({"config": {"method": "ltsa"}}, "config: method is a separate parameter"),
        ({"config": {"weights": 3}}, "config: weights: expected a section"),
        ({"config": 3}, "config: expected sections of keys and values, found 3"),
        ({"config": {"input": {}}}, "config: the section input is not allowed beside X"),
        ({"config": {"wheights": {}}}, "wheights: unknown key"),
        ({"config": {"output": {"store": "x"}}}, "output.store is the parameter store; give it there only"),
        ({"store": 3}, "^config:\n  - output.store: should be text[^\n]*$"),
        ({"store": ""}, "output.store: should not be empty"),
    ],
)
def test_invalid_parameters_raise_value_errors_that_name_them(roll, parameters, said):
    with pytest.raises(ValueError, match=said):
        LocallyLinearEmbedding(**parameters).fit(roll)


@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_sparse_rows_are_refused_with_a_way_to_reduce_them(roll, kind):
    for method in (LocallyLinearEmbedding().fit, embed):
        with pytest.raises(ValueError, match=r"found a sparse matrix of shape \(500, 3\); pass X\.toarray\(\)$"):
            method(kind(roll))
        with pytest.raises(
            ValueError, match=r"\(2000, 9000\); reduce .*TruncatedSVD\(50\), .* X\.toarray\(\) \(0\.13 GiB"
        ):
            method(kind((2000, 9000)))


def test_too_few_points_lower_n_neighbors_with_a_warning(roll):
    with pytest.warns(UserWarning, match="n_neighbors is 12, but there are 9 rows; 8 is used"):
        model = LocallyLinearEmbedding().fit(roll[:9])
    assert model.embedding_.shape == (9, 2)
    for method, n in (("standard", 4), ("ltsa", 5), ("hessian", 7), ("pca", 3)):
        if method != "pca":
            with pytest.raises(ValueError, match=f"^{n - 1} rows are too few for 2 coordinates; .* at least {n} rows"):
                LocallyLinearEmbedding(method=method).fit(roll[: n - 1])
        with pytest.warns(UserWarning, match=f"there are {n} rows"):
            assert LocallyLinearEmbedding(method=method, reg=1e-3).fit(roll[:n]).embedding_.shape == (n, 2)


def test_other_errors_keep_their_type(roll):
    with pytest.raises(BoundsNotMet, match="components is error"):
        LocallyLinearEmbedding(config={"graph": {"components": "error"}}).fit(np.concatenate([roll, roll + 300.0]))


@pytest.mark.slow
def test_workers_give_the_same_embedding(roll, fitted):
    config = {**PLAIN, "execution": {"block_points": 200}}
    alone = LocallyLinearEmbedding(reg=1e-3, config=config).fit(roll)
    config["execution"]["cluster"] = {"kind": "local", "workers": 2}
    model = LocallyLinearEmbedding(reg=1e-3, config=config).fit(roll)
    np.testing.assert_array_equal(model.embedding_, alone.embedding_)
