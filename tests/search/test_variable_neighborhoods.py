"""Neighbourhoods of varying size through the command line: the lists, and all later steps on them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.neighbors import NearestNeighbors, radius_neighbors_graph

from lle.kernels.manifolds import sample
from lle.storage.store import Store
from tests.support.commands import lle, refused, write_config
from tests.support.method_oracle import (
    hessian_matrix,
    laplacian_matrices,
    ltsa_matrix,
    modified_matrix,
    modified_spread,
)
from tests.support.oracle import dense_factor, exact_neighbors, largest_angle, point_weights
from tests.support.stored import sum_rows

RADIUS = 3.0
METHODS = ["lle", "modified", "hessian", "ltsa", "laplacian"]
EVERY_METHOD = [METHODS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS[1:])]
EVERY_ROUTE = ["kdtree", *(pytest.param(name, marks=pytest.mark.slow) for name in ("brute", "pynndescent"))]
N = 700


def roll(n: int = N, seed: int = 7) -> np.ndarray:
    return sample("swiss_roll", 0, n, seed, 0.0, 0.0).points


def config_of(folder: Path, X: np.ndarray, neighbors: dict, **sections) -> Path:
    if not (folder / "x.npy").exists():  # a new file would be a new input
        np.save(folder / "x.npy", X)
    defaults = {
        "input": {"kind": "npy", "path": str(folder / "x.npy")},
        "execution": {"block_points": 350},
        "output": {"report": False},
        "quality": {"sample": 50},
        "graph": {"min_component": 20},
    }
    return write_config(folder, neighbors=neighbors, **{**defaults, **sections})


def run_on(folder: Path, X: np.ndarray, neighbors: dict, *overrides: str, **sections) -> tuple[Store, dict]:
    result = lle("run", config_of(folder, X, neighbors, **sections), *overrides)
    return Store(str(folder / "run.zarr")), result


def refusal(folder: Path, X: np.ndarray, neighbors: dict, *overrides: str, **sections) -> str:
    return refused(2, "run", config_of(folder, X, neighbors, **sections), *overrides)


def listed_rows(store: Store, name: str = "_work/knn_indices") -> list[list[int]]:
    """Each input row's neighbours as input rows."""
    original, lists = store.read_all("original_index"), store.read_all(name)
    neighbors: list[list[int]] = [[]] * len(original)
    for row, ids in zip(original, lists, strict=True):
        neighbors[row] = original[ids[ids >= 0]].tolist()
    return neighbors


class TestRadius:
    @pytest.mark.slow
    @pytest.mark.parametrize("route", EVERY_ROUTE)
    def test_lists_are_those_of_scikit_learn(self, tmp_path, route):
        X = roll()
        store, result = run_on(tmp_path, X, {"method": route, "radius": RADIUS, "k_min": 1, "k_max": 60, "reverse": 0})
        graph = radius_neighbors_graph(X, RADIUS).tolil().rows
        counts = np.array([len(row) for row in graph])
        assert counts.max() < 60
        nearest = exact_neighbors(X, 1)[0]
        for row, actual in enumerate(listed_rows(store)):
            assert sorted(actual) == (graph[row] or nearest[row].tolist())
        metrics = result["metrics"]
        assert metrics["list_sizes"]["mean"] == pytest.approx(np.maximum(counts, 1).mean())
        assert metrics["list_sizes"]["raised_to_k_min"] == (counts < 1).sum()
        assert metrics["recall"]["value"] == 1.0

    @pytest.mark.slow
    def test_radius_lists_have_from_k_min_to_k_max_neighbors(self, tmp_path):
        X = roll()
        store, result = run_on(tmp_path, X, {"radius": RADIUS, "k_min": 8, "k_max": 15})
        within = (np.linalg.norm(X[:, None] - X, axis=2) <= RADIUS).sum(axis=1) - 1
        nearest = exact_neighbors(X, 15)[0]
        for row, actual in enumerate(listed_rows(store)):
            assert actual == nearest[row, : np.clip(within[row], 8, 15)].tolist()
        sizes = result["metrics"]["list_sizes"]
        assert (sizes["raised_to_k_min"], sizes["at_k_max"]) == ((within < 8).sum(), (within >= 15).sum())
        sentences = " ".join(finding["sentence"] for finding in result["metrics"]["findings"])
        assert f"{sizes['raised_to_k_min']} points have fewer than k_min" in sentences
        assert f"{sizes['at_k_max']} points have k_max or more" in sentences
        assert store.read_all("_work/knn_indices").shape == (N, 15)

    @pytest.mark.slow
    def test_changed_radius_needs_no_search(self, tmp_path):
        X = roll()
        store, first = run_on(tmp_path, X, {"radius": RADIUS, "k_max": 30})
        embedding = store.read_all("embedding")
        assert "list_sizes" in first["metrics"]
        _, result = run_on(tmp_path, X, {"radius": 1.3 * RADIUS, "k_max": 30})
        assert result["blocks_computed"]["find_neighbors"] == 2  # cut, and nothing before it
        repeated, _ = run_on(tmp_path, X, {"radius": RADIUS, "k_max": 30}, "--fresh")
        np.testing.assert_array_equal(repeated.read_all("embedding"), embedding)

    @pytest.mark.slow
    def test_fixed_n_neighbors_after_a_radius(self, tmp_path):
        X = roll()
        store, result = run_on(tmp_path, X, {"n_neighbors": 9})
        embedding = store.read_all("embedding").tobytes()
        assert result["metrics"]["list_sizes"] is None
        run_on(tmp_path, X, {"radius": RADIUS})
        store, result = run_on(tmp_path, X, {"n_neighbors": 9})
        assert result["metrics"]["list_sizes"] is None
        assert store.read_all("embedding").tobytes() == embedding
        assert not store.has_array("_work/searched_indices")

    def test_final_lists_are_sorted_padded_and_weighted(self, tmp_path):
        """With reverse neighbours: by distance, -1 and inf and weight 0 in the empty slots, rows sum to 1."""
        X = roll()
        store, result = run_on(tmp_path, X, {"radius": 2.2, "k_max": 20, "reverse": 4})
        assert result["metrics"]["reverse_added"] > 0
        indices, distances, weights = (
            store.read_all(name) for name in ("neighbor_indices", "neighbor_distances", "weights")
        )
        empty = indices < 0
        counts = (~empty).sum(axis=1)
        assert empty.any(axis=1).mean() > 0.5
        assert (empty == (np.arange(indices.shape[1]) >= counts[:, None])).all()
        assert np.isinf(distances[empty]).all()
        assert (weights[empty] == 0).all()
        assert all((np.diff(row[:count]) >= 0).all() for row, count in zip(distances, counts, strict=True))
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        points = store.read_all("points")
        exact = np.linalg.norm(points[indices] - points[:, None], axis=2)
        np.testing.assert_allclose(distances[~empty], exact[~empty], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_method_agrees_with_its_dense_matrices(tmp_path, method):
    """M and the embedding from the stored lists, one point at a time as the papers write them."""
    X, m, reg = roll(), 2, 1e-3
    store, result = run_on(tmp_path, X, {"radius": 3.5, "k_max": 20}, "--set", f"method={method}")
    points = store.read_all("points")
    lists = [row[row >= 0] for row in store.read_all("neighbor_indices")]
    assert len({len(ids) for ids in lists}) > 5
    assert result["metrics"]["skipped_neighborhoods"] in (0, None)
    M, null = np.zeros((N, N)), np.ones(N)
    if method == "lle":
        A = np.eye(N)
        for i, ids in enumerate(lists):
            A[i, ids] -= point_weights(points[i], points[ids], reg)
        M = A.T @ A
    elif method == "laplacian":
        squares = np.square(points[:, None] - points).sum(axis=2)
        t = np.concatenate([squares[i, ids] for i, ids in enumerate(lists)])
        padded = np.full((N, max(map(len, lists))), -1)
        for i, ids in enumerate(lists):
            padded[i, : len(ids)] = ids
        stored = np.square(store.read_all("neighbor_distances")[padded >= 0].astype(np.float64)).mean()
        assert stored == pytest.approx(t.mean(), rel=1e-6)
        L, degree = laplacian_matrices(padded, np.exp(-squares / stored))
        M, null = L / np.sqrt(np.outer(degree, degree)), np.sqrt(degree)
    else:
        unlisted = set(range(N)) - set(np.concatenate(lists).tolist())
        threshold = np.median([modified_spread(points[i], points[ids], m) for i, ids in enumerate(lists)])
        for i, ids in enumerate(lists):
            ids_and_self = np.append(ids, i)
            if method == "modified":
                M[np.ix_(ids_and_self, ids_and_self)] += modified_matrix(points[i], points[ids], threshold, reg)
            else:
                members = ids_and_self if i in unlisted else ids
                local = {"ltsa": ltsa_matrix, "hessian": hessian_matrix}[method](points[members], m)
                M[np.ix_(members, members)] += local
    np.testing.assert_allclose(sum_rows(store, N).toarray(), M, atol=1e-6)
    vectors = np.linalg.eigh(M)[1][:, 1 : m + 1] / null[:, None]
    embedding = store.read_all("embedding")[store.read_all("original_index")]
    assert largest_angle(embedding, vectors) < 0.05


class TestGivenNumbers:
    """A number of neighbours for each input row."""

    def check(self, store: Store, X: np.ndarray, counts: np.ndarray) -> None:
        nearest = exact_neighbors(X, int(counts.max()))[0]
        for row, actual in enumerate(listed_rows(store)):
            assert actual == nearest[row, : counts[row]].tolist()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "dtype",
        [np.int64, pytest.param(np.float32, marks=pytest.mark.slow), pytest.param(np.uint8, marks=pytest.mark.slow)],
    )
    @pytest.mark.parametrize("route", EVERY_ROUTE)
    def test_numbers_of_neighbors_from_an_array(self, tmp_path, route, dtype):
        X, counts = roll(), np.random.default_rng(5).integers(4, 15, N)
        np.save(tmp_path / "k.npy", counts.astype(dtype))
        neighbors = {"method": route, "k_per_point": str(tmp_path / "k.npy"), "k_max": 14, "reverse": 0}
        store, result = run_on(tmp_path, X, neighbors)
        self.check(store, X, counts)
        assert result["metrics"]["recall"]["value"] == 1.0
        A = dense_factor(store.read_all("neighbor_indices"), store.read_all("weights"))
        embedding = store.read_all("embedding")[store.read_all("original_index")]
        np.testing.assert_allclose(
            np.square(A @ embedding).sum(axis=0) / np.square(embedding).sum(axis=0),
            result["metrics"]["eigenvalues"][0],
            rtol=1e-6,
        )
        assert largest_angle(embedding, np.linalg.svd(A)[2][-3:-1].T) < 0.05

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_numbers_of_neighbors_of_rows_selected_by_another_column(self, tmp_path, kind):
        X, rng = roll(), np.random.default_rng(6)
        counts, side = rng.integers(5, 12, N), rng.integers(0, 2, N)
        table = pd.DataFrame({**dict(zip("abc", X.T, strict=True)), "k": counts, "side": side})
        path = tmp_path / f"x.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        source = {"kind": kind, "path": str(path), "columns": ["a", "b", "c"], "label": "side", "where": 1}
        store, _ = run_on(tmp_path, X, {"k_per_point": "k"}, input=source)
        self.check(store, X[side == 1], counts[side == 1])

    @pytest.mark.slow
    def test_numbers_of_neighbors_from_a_zarr_array(self, tmp_path):
        X, counts = roll(), np.random.default_rng(6).integers(5, 12, N)
        group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w")
        group["points"], group["k"] = X, counts
        source = {"kind": "zarr", "url": str(tmp_path / "x.zarr"), "array": "points"}
        store, _ = run_on(tmp_path, X, {"k_per_point": "k"}, input=source)
        self.check(store, X, counts)

    @pytest.mark.slow
    def test_duplicate_rows_use_the_number_of_the_first(self, tmp_path):
        X = roll()
        k_per_point = np.full(N + 2, 7)
        k_per_point[3], k_per_point[N + 1] = 11, 500  # a repetition of row 3 does not count
        np.save(tmp_path / "k.npy", k_per_point)
        store, result = run_on(
            tmp_path,
            np.concatenate([X, [[np.nan] * 3], X[3:4]]),
            {"k_per_point": str(tmp_path / "k.npy")},
            preprocess={"invalid": "drop"},
        )
        assert result["metrics"]["duplicates_merged"] == 1
        lists = store.read_all("_work/knn_indices")
        counts = (lists >= 0).sum(axis=1)[np.argsort(store.read_all("original_index"))]
        assert counts[3] == 11
        assert set(np.delete(counts, 3).tolist()) == {7}

    @pytest.mark.slow
    def test_changed_numbers_are_read_again(self, tmp_path):
        X = roll()
        for k in (6, 9):
            np.save(tmp_path / "k.npy", np.full(N, k))
            store, result = run_on(tmp_path, X, {"k_per_point": str(tmp_path / "k.npy")})
            assert result["metrics"]["list_sizes"]["mean"] == k
            assert "order_points" not in result["blocks_computed"] or k == 6
        store, _ = run_on(tmp_path, X, {"n_neighbors": 9}, "--fresh")
        fixed = store.read_all("embedding")
        store, _ = run_on(tmp_path, X, {"k_per_point": str(tmp_path / "k.npy"), "k_max": 9}, "--fresh")
        np.testing.assert_array_equal(store.read_all("embedding"), fixed)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (3, "found others for 2 of 700 points: 3 in row 5, 3 in row 17"),
            (25, "from 6 to 24"),
            (7.5, "whole numbers"),
            (np.nan, "nan in row 5"),
        ],
    )
    def test_numbers_that_do_not_fit_are_refused(self, tmp_path, value, message):
        k_per_point = np.full(N, 8.0)
        k_per_point[[5, 17]] = value
        np.save(tmp_path / "k.npy", k_per_point)
        text = refusal(tmp_path, roll(), {"k_per_point": str(tmp_path / "k.npy")}, "--set", "method=hessian")
        assert message in text
        assert "hessian needs at least 6" in text

    def test_text_and_other_lengths_are_refused(self, tmp_path):
        np.save(tmp_path / "t.npy", np.array(["5", "x"])[np.arange(N) % 2])
        np.save(tmp_path / "s.npy", np.full(N - 1, 8))
        text = refusal(tmp_path, roll(), {"k_per_point": str(tmp_path / "t.npy")})
        assert "expected numbers, found text such as 'x';" in text
        assert "one label per row" in refusal(tmp_path, roll(), {"k_per_point": str(tmp_path / "s.npy")})


class TestCosine:
    @pytest.mark.parametrize("route", EVERY_ROUTE)
    def test_neighbors_are_those_of_scikit_learn(self, tmp_path, route):
        X = np.random.default_rng(8).normal(size=(500, 6)) + 0.5
        store, result = run_on(tmp_path, X, {"method": route, "metric": "cosine", "n_neighbors": 9, "reverse": 0})
        distances, nearest = NearestNeighbors(n_neighbors=9, metric="cosine").fit(X).kneighbors()
        assert listed_rows(store) == nearest.tolist()
        original = store.read_all("original_index")
        chords = store.read_all("neighbor_distances").astype(np.float64)
        np.testing.assert_allclose(chords**2 / 2, distances[original], rtol=1e-5)  # squared chord = 2 (1 - cos)
        assert result["metrics"]["recall"]["value"] == 1.0
        assert (nearest != exact_neighbors(X, 9)[0]).any()

    @pytest.mark.slow
    def test_steps_after_the_search_are_euclidean_on_unit_rows(self, tmp_path):
        X = np.random.default_rng(8).normal(size=(400, 5))
        (tmp_path / "unit").mkdir()
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        cosine, _ = run_on(tmp_path, X, {"metric": "cosine"})
        plain, _ = run_on(tmp_path / "unit", unit, {})
        np.testing.assert_allclose(cosine.read_all("points"), plain.read_all("points"), atol=1e-15)
        assert largest_angle(cosine.read_all("embedding"), plain.read_all("embedding")) < 1e-4
        scaled, _ = run_on(tmp_path, X * 7e150, {"metric": "cosine"}, "--fresh")
        assert largest_angle(scaled.read_all("embedding"), plain.read_all("embedding")) < 1e-4

    def test_radius_is_a_cosine_distance(self, tmp_path):
        X = np.random.default_rng(9).normal(size=(400, 4))
        store, _ = run_on(tmp_path, X, {"metric": "cosine", "radius": 0.1, "k_min": 1, "k_max": 60})
        graph = radius_neighbors_graph(X, 0.1, metric="cosine").tolil().rows
        for row, actual in enumerate(listed_rows(store)):
            assert sorted(actual) == graph[row] or (len(actual) == 1 and not graph[row])
        assert 4 < np.mean([len(row) for row in graph]) < 40

    @pytest.mark.slow
    def test_cosine_is_measured_after_scaling_and_components(self, tmp_path):
        X = np.random.default_rng(9).normal(size=(400, 8)) * np.arange(1, 9) + 3.0
        store, _ = run_on(tmp_path, X, {"metric": "cosine"}, preprocess={"scale": "standard", "pca": 5})
        points = store.read_all("points")
        assert points.shape == (400, 5)
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-12)

    @pytest.mark.parametrize("block", [400, 64])
    def test_zero_rows_are_refused(self, tmp_path, block):
        X = np.random.default_rng(9).normal(size=(400, 4))
        X[[3, 200]] = 0.0
        X[7] = -0.0
        text = refusal(tmp_path, X, {"metric": "cosine"}, execution={"block_points": block})
        assert "1 of 398 distinct rows are zero" in text
        assert "input rows 3" in text
        assert "set neighbors.metric: euclidean" in text


class TestPrecomputed:
    def graph(self, folder: Path, lists: np.ndarray, kind: str = "npy") -> dict:
        if kind == "npy":
            np.save(folder / "graph.npy", lists)
            return {"kind": "npy", "path": str(folder / "graph.npy")}
        group = zarr.open_group(str(folder / "graph.zarr"), mode="w")
        group["knn"] = lists
        return {"kind": "zarr", "url": str(folder / "graph.zarr"), "array": "knn"}

    @pytest.mark.slow
    @pytest.mark.parametrize("method", EVERY_METHOD)
    def test_precomputed_graph_of_a_search_gives_the_same_result(self, tmp_path, method):
        X = roll()
        (tmp_path / "searched").mkdir()
        searched, _ = run_on(tmp_path / "searched", X, {"n_neighbors": 10}, "--set", f"method={method}")
        lists = np.column_stack([np.arange(N), exact_neighbors(X, 10)[0][:, ::-1]])  # self first, the farthest next
        neighbors = {"precomputed": self.graph(tmp_path, lists)}
        store, result = run_on(tmp_path, X, neighbors, "--set", f"method={method}")
        assert result["metrics"]["recall"] is None
        expected, actual = listed_rows(searched, "neighbor_indices"), listed_rows(store, "neighbor_indices")
        assert actual == expected
        assert largest_angle(store.read_all("embedding"), searched.read_all("embedding")) < 1e-4

    @pytest.mark.parametrize(
        "dtype", [np.int16, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (np.int64, np.float64))]
    )
    def test_lists_of_varying_length_from_zarr(self, tmp_path, dtype):
        X = roll()
        lists = exact_neighbors(X, 12)[0]
        lists[::3, 7:] = -1
        store, result = run_on(tmp_path, X, {"precomputed": self.graph(tmp_path, lists.astype(dtype), "zarr")})
        for row, actual in enumerate(listed_rows(store)):
            assert actual == lists[row, : 7 if row % 3 == 0 else 12].tolist()
        assert result["metrics"]["list_sizes"]["least"] == 7
        assert result["metrics"]["trustworthiness"]["value"] > 0.9

    @pytest.mark.slow
    def test_a_radius_truncates_a_precomputed_graph(self, tmp_path):
        X, rule = roll(), {"radius": RADIUS, "k_max": 15}
        graph = self.graph(tmp_path, exact_neighbors(X, 20)[0])
        store, _ = run_on(tmp_path, X, {"precomputed": graph, **rule})
        cut = listed_rows(store)
        store, _ = run_on(tmp_path, X, rule, "--fresh")
        assert cut == listed_rows(store)
        assert len({len(row) for row in cut}) > 3

    @pytest.mark.slow
    def test_precomputed_graph_with_duplicate_and_dropped_rows(self, tmp_path):
        """Ids of equal rows become their representative's, ids of dropped rows go, and so do repetitions."""
        X = np.concatenate([roll(), [[np.nan] * 3], roll()[5:6]])
        lists = exact_neighbors(X[:N], 8)[0]
        lists = np.pad(lists, ((0, 2), (0, 2)), constant_values=-1)
        lists[:N, 8], lists[:N, 9] = N, N + 1  # the dropped row, and the repetition of row 5
        store, _ = run_on(tmp_path, X, {"precomputed": self.graph(tmp_path, lists)}, preprocess={"invalid": "drop"})
        original = store.read_all("original_index")
        for row, ids in zip(original, store.read_all("_work/knn_indices"), strict=True):
            expected = set(lists[row, :8].tolist()) | {5}
            assert set(original[ids[ids >= 0]].tolist()) == expected - {row}
        Y = store.read_all("embedding")
        np.testing.assert_array_equal(Y[-1], Y[5])
        assert np.isnan(Y[N]).all()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (N, "in 1 rows (17, counted from 0)"),
            (-2, "-1 in empty slots"),
            (0.5, "expected row numbers from 0 to 699"),
            (np.nan, "in 1 rows (17"),
        ],
    )
    def test_ids_beyond_the_rows_are_refused(self, tmp_path, bad, message):
        lists = exact_neighbors(roll(), 8)[0].astype(float)
        lists[17, 3] = bad
        assert message in refusal(tmp_path, roll(), {"precomputed": self.graph(tmp_path, lists)})

    def test_too_few_neighbors_and_other_lengths_are_refused(self, tmp_path):
        lists = exact_neighbors(roll(), 8)[0]
        lists[[4, 9], 5:] = -1
        neighbors = {"precomputed": self.graph(tmp_path, lists)}
        text = refusal(tmp_path, roll(), neighbors, "--set", "method=hessian")
        assert "2 points have fewer than 6 neighbours" in text
        assert "input rows 4, 9" in text
        neighbors = {"precomputed": self.graph(tmp_path, lists[:-1])}
        assert "a row for each of the 700 input rows, found 699" in refusal(tmp_path, roll(), neighbors)
        neighbors = {"precomputed": {"kind": "npy", "path": str(tmp_path / "none.npy")}}
        assert "none.npy" in refusal(tmp_path, roll(), neighbors)


@pytest.mark.parametrize(
    ("neighbors", "overrides", "message"),
    [
        ({"precomputed": {"kind": "npy", "path": "x", "key": 3}}, [], "allowed: kind, path"),
        ({"precomputed": {"kind": "npy", "path": "x"}, "method": "brute"}, [], "need no search"),
        ({"metric": "cosine", "radius": 2.5}, [], "1 - cos is at most 2"),
        ({"radius": 1.0, "k_per_point": "k"}, [], "radius and k_per_point each set"),
        ({"k_min": 4}, [], "k_min bound lists of varying length"),
        ({"radius": 1.0, "k_min": 9, "k_max": 7}, [], "k_min is 9 and neighbors.k_max is 7"),
        ({"radius": 1.0, "k_min": 5}, ["method=hessian"], "method hessian needs at least 6 neighbours"),
        ({"radius": 1.0, "k_min": 1, "k_max": 2}, [], "2 neighbours span at most 1 dimension;"),
        ({"radius": 1.0, "k_max": 700}, [], "neighbors.k_max is 700"),
        ({"radius": 0.0}, [], "neighbors.radius"),
        ({"k_per_point": "k"}, ["input={kind: synthetic, name: s_curve, n_points: 90}"], "no such column"),
        ({"k_per_point": "k"}, ["input={kind: csv, path: x.csv}"], "list the features in input.columns"),
    ],
)
def test_settings_that_contradict_are_refused(tmp_path, neighbors, overrides, message):
    arguments = [part for override in overrides for part in ("--set", override)]
    assert message in refusal(tmp_path, roll(), neighbors, *arguments)
    assert not (tmp_path / "run.zarr").exists()


def test_plan_uses_the_longest_list(tmp_path):
    small, large = (
        {row["step"]: row for row in lle("plan", config_of(tmp_path, roll(), {"radius": 2.0, "k_max": k}))["steps"]}
        for k in (20, 60)
    )
    for step in ("search", "cut", "solve", "contribute"):
        assert large[step]["bytes_per_task"] > small[step]["bytes_per_task"]
