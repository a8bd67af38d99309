"""Every method of the family through the command line: against scikit-learn, resumed, changed, refused, reported."""

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import LocallyLinearEmbedding, spectral_embedding, trustworthiness
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.kernels.manifolds import sample
from lle.storage.store import Store
from tests.benchmarks.methods import K, or_graph, points, reference
from tests.support.commands import lle, npy_config, refused, write_config
from tests.support.dask_processes import two_workers
from tests.support.method_oracle import hessian_matrix
from tests.support.oracle import exact_neighbors, largest_angle
from tests.support.seeds import seeds
from tests.support.stored import sum_rows

FAMILY_PARAMS = ["hessian", *(pytest.param(name, marks=pytest.mark.slow) for name in ("modified", "ltsa"))]
FAMILY = ["modified", "hessian", "ltsa"]
METHODS = ["lle", *FAMILY, "laplacian", "pca"]
SEEDS = seeds(11, 23, 37)
DATA = [
    ("swiss_roll", 11),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("swiss_roll", 23), ("swiss_roll", 37), ("digits", 11))),
]


def run_on(folder: Path, X: np.ndarray, method: str, *overrides: str, **sections) -> tuple[Store, dict]:
    if not (folder / "x.npy").exists():  # a new file would be a new input
        np.save(folder / "x.npy", X)
    defaults = {
        "neighbors": {"n_neighbors": K},
        "execution": {"block_points": 700},
        "output": {"report": False},
        "quality": {"sample": 100},
    }
    config = write_config(folder, input={"kind": "npy", "path": str(folder / "x.npy")}, **{**defaults, **sections})
    result = lle("run", config, "--set", f"method={method}", *overrides)
    return Store(str(folder / "run.zarr")), result


@pytest.mark.slow
@pytest.mark.parametrize(("method", "block_points"), [("ltsa", 500), ("modified", 150)])
def test_large_neighborhoods_take_memory_for_lists_only(tmp_path, method, block_points):
    """Rows of F would take n K^2 entries. Points of small blocks have most others as neighbours."""
    X, k = points("digits", 420, 3), 105
    sections = {"neighbors": {"n_neighbors": k}, "execution": {"block_points": block_points}}
    store, _ = run_on(tmp_path, X, method, quality={"sample": 20}, **sections)
    model = LocallyLinearEmbedding(n_neighbors=k, n_components=2, method=method, eigen_solver="dense")
    assert largest_angle(store.read_all("embedding"), model.fit_transform(X)) < 1e-3
    blocks = [store.read_rows("local_factors", number) for number in range(-(-420 // block_points))]
    assert sum(block.nnz for block in blocks) < 420 * k * (3 if block_points == 500 else 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "preprocess"),
    [("lle", {"pca": 4}), ("lle", {"pca": 4, "scale": "standard"}), *((name, {}) for name in METHODS[1:])],
)
def test_block_sizes_give_the_same_bytes(tmp_path, method, preprocess):
    """Rows of float16 on a grid have many ties, which directions that differ in the last bits break differently."""
    X = np.random.default_rng(3).integers(-4, 5, (500, 6)).astype(np.float16)
    found = set()
    for size in (500, 96):
        (tmp_path / str(size)).mkdir()
        execution = {"block_points": size}
        store, _ = run_on(tmp_path / str(size), X, method, preprocess=preprocess, execution=execution)
        found.add(store.read_all("embedding").tobytes())
    assert len(found) == 1


class TestScaleOfTheData:
    """Powers of two change nothing until squares leave the range of float64; then the run ends with exit code 2."""

    @pytest.mark.parametrize("method", ["lle", *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS[1:])])
    def test_underflow_is_refused(self, tmp_path, method):
        for scale in (1e-155, 1e-162, 1e-310):
            config = npy_config(tmp_path, scale * points("swiss_roll", 300, 1))
            message = refused(2, "run", config, "--set", f"method={method}")
            assert "squares of differences underflow in float64" in message
            assert "Multiply the numbers, for instance by 2.0**" in message

    @pytest.mark.slow
    @pytest.mark.parametrize("method", METHODS)
    def test_within_the_range_the_unit_has_no_effect(self, tmp_path, method):
        X, embeddings = points("swiss_roll", 300, 1), []
        for scale in (1.0, 2.0**-470, 2.0**490):
            (tmp_path / str(scale)).mkdir()
            sections = {"weights": {"reg": 1e-3, "edges": "binary"}, "quality": {"sample": 50}}
            store, result = run_on(tmp_path / str(scale), scale * X, method, **sections)
            embeddings.append(store.read_all("embedding"))
            assert np.isfinite(result["metrics"]["residuals"]).all()
        assert max(largest_angle(embeddings[0], other) for other in embeddings[1:]) < 1e-4

    def test_distances_outside_of_float32_are_reported_or_refused(self, tmp_path):
        X, connect = 1e40 * points("swiss_roll", 300, 1), {"components": "connect"}
        X[150:, 0] += 1e43
        _, result = run_on(tmp_path, X, "lle", graph=connect, weights={"reg": 1e-3})
        assert 0.9e43 < result["metrics"]["longest_link"] < 1e43
        assert result["metrics"]["intrinsic_dimension"] is None
        message = refused(2, "run", npy_config(tmp_path, X, graph=connect), "--set", "method=laplacian")
        assert "outside of the range of float32" in message

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["lle", "modified"])
    def test_few_rows_whose_differences_underflow_count_as_equal(self, tmp_path, method):
        """Thirty rows within 1e-155, beside others at distances of 1; each lists only rows of the thirty."""
        X = points("swiss_roll", 300, 1)
        X[:30] *= 1e-155
        store, _ = run_on(tmp_path, X, method, neighbors={"n_neighbors": 9})
        assert np.isfinite(store.read_all("embedding")).all()


def hessian_with_noise(X: np.ndarray) -> np.ndarray:
    """Dense linear algebra with the local matrices of the oracle, as scikit-learn has no rows for noise."""
    lists, M = exact_neighbors(X, K)[0], np.zeros((len(X), len(X)))
    for members in lists:
        M[np.ix_(members, members)] += hessian_matrix(X[members], 2)
    return scipy.linalg.eigh(M, subset_by_index=(1, 2))[1]


@pytest.mark.slow
def test_hessian_of_noisy_data_keeps_neighbours_as_scikit_learns(tmp_path):
    """The second derivatives alone reach 0.79 on digits with 30 neighbours."""
    X, k = load_digits().data, 30
    ours = run_on(tmp_path, X, "hessian", neighbors={"n_neighbors": k})[0].read_all("embedding")
    model = LocallyLinearEmbedding(n_neighbors=k, n_components=2, method="hessian", eigen_solver="dense")
    assert trustworthiness(X, ours, n_neighbors=k) >= trustworthiness(X, model.fit_transform(X), n_neighbors=k)


@pytest.mark.parametrize(("name", "seed"), DATA)
@pytest.mark.parametrize("method", FAMILY_PARAMS)
def test_equals_scikit_learn(tmp_path, method, name, seed):
    noisy = (method, name) == ("hessian", "digits")
    X = points(name, 600 if noisy else 1000, seed)
    store, _ = run_on(tmp_path, X, method)
    embedding, theirs = store.read_all("embedding"), hessian_with_noise(X) if noisy else reference(method, X)
    assert largest_angle(embedding, theirs) < 0.1
    assert largest_angle(embedding[::-1].copy(), theirs) > 1.0


@pytest.mark.slow
def test_hessian_of_scikit_learn_equals_its_ltsa(tmp_path):
    """The difference is described in the README; there is none if k gives no further columns."""
    X = points("swiss_roll", 900, 11)
    hessian, ltsa = (
        LocallyLinearEmbedding(n_neighbors=K, n_components=2, method=method, eigen_solver="dense").fit_transform(X)
        for method in ("hessian", "ltsa")
    )
    assert largest_angle(hessian, ltsa) < 1e-3
    ours = run_on(tmp_path, X, "ltsa")[0].read_all("embedding")
    assert largest_angle(ours, hessian) < 1e-3
    ours = run_on(tmp_path, X, "hessian")[0].read_all("embedding")
    assert largest_angle(ours, hessian) > 1e-2


@pytest.mark.parametrize(("name", "seed"), DATA)
def test_pca_equals_scikit_learn(tmp_path, name, seed):
    X = points(name, 1000, seed)
    store, result = run_on(tmp_path, X, "pca")
    model = PCA(n_components=2, svd_solver="full").fit(X)
    embedding, scores = store.read_all("embedding"), model.transform(X)
    np.testing.assert_allclose(embedding * np.sign((embedding * scores).sum(axis=0)), scores, atol=1e-5 * scores.std())
    np.testing.assert_allclose(result["metrics"]["eigenvalues"], [model.explained_variance_], rtol=1e-6)
    solver = result["metrics"]["solver"]
    assert (solver["method"], solver["requested_failed"]) == ("pca", "")
    assert max(result["metrics"]["residuals"][0]) < 1e-9


class TestLaplacian:
    @pytest.mark.parametrize(
        ("name", "keys", "t", "seed"),
        [
            ("swiss_roll", ["weights.edges=binary"], 0.0, 11),
            pytest.param("swiss_roll", [], None, 23, marks=pytest.mark.slow),
            pytest.param("digits", [], None, 11, marks=pytest.mark.slow),
            pytest.param("digits", ["weights.t=300"], 300.0, 37, marks=pytest.mark.slow),
        ],
    )
    def test_equals_scikit_learn(self, tmp_path, name, keys, t, seed):
        """scikit-learn averages A and A' for its own neighbour graph, so it is given the graph symmetrised by OR."""
        X = points(name, 1000, seed)
        store, result = run_on(tmp_path, X, "laplacian", *(part for key in keys for part in ("--set", key)))
        weights = or_graph(X, t)
        theirs = spectral_embedding(weights, n_components=2, eigen_solver="arpack", random_state=4)
        embedding, degree = store.read_all("embedding"), weights.sum(axis=1)
        assert largest_angle(embedding, theirs) < 0.1
        assert largest_angle(embedding[::-1].copy(), theirs) > 1.0
        np.testing.assert_allclose(store.read_all("degree"), degree[store.read_all("original_index")], rtol=1e-5)
        # L f = lambda D f, normalised by the mean degree
        residual = degree[:, None] * embedding - weights @ embedding
        eigenvalues = np.array(result["metrics"]["eigenvalues"][0])
        np.testing.assert_allclose(residual, eigenvalues * degree[:, None] * embedding, atol=1e-6 * degree.max())
        gram = embedding.T @ (degree[:, None] * embedding) / degree.sum()
        np.testing.assert_allclose(gram, np.eye(2), atol=1e-6)
        np.testing.assert_allclose(degree @ embedding, 0, atol=1e-6 * degree.sum())

    @pytest.mark.parametrize("solver", ["multigrid", pytest.param("shift_invert", marks=pytest.mark.slow)])
    @pytest.mark.parametrize("n", [300, pytest.param(900, marks=pytest.mark.slow)])
    def test_all_solvers_agree_with_the_dense_problem(self, tmp_path, solver, n):
        X = sample("s_curve", 0, n, 5, 0.0, 0.0).points
        store, result = run_on(
            tmp_path, X, "laplacian", "--set", f"eigensolver.method={solver}", eigensolver={"n_components": 3}
        )
        weights = or_graph(X, None)
        degree = weights.sum(axis=1)
        values, vectors = scipy.linalg.eigh(np.diag(degree) - weights, np.diag(degree), subset_by_index=[1, 3])
        np.testing.assert_allclose(result["metrics"]["eigenvalues"][0], values, rtol=1e-5)
        embedding = store.read_all("embedding")
        assert largest_angle(embedding, vectors) < 0.01
        assert (embedding[np.abs(embedding).argmax(axis=0), range(3)] > 0).all()

    def test_each_component_has_its_own_null_vector(self, tmp_path):
        X = sample("s_curve", 0, 500, 5, 0.0, 0.0).points
        store, result = run_on(tmp_path, np.concatenate([X, 0.9 * X[:300] + 50.0]), "laplacian")
        assert result["metrics"]["n_components_weak"] == 2
        Y = store.read_all("embedding")
        degree = np.empty(800)
        degree[store.read_all("original_index")] = store.read_all("degree")
        for part in (slice(0, 500), slice(500, 800)):
            gram = Y[part].T @ (degree[part, None] * Y[part]) / degree[part].sum()
            np.testing.assert_allclose(gram, np.eye(2), atol=1e-6)

    @pytest.mark.parametrize(("t", "message"), [("1e-9", "exp(-d^2 / t) is zero"), ("1e-3", "raise weights.t")])
    def test_too_small_scale_of_the_heat_kernel_is_refused(self, tmp_path, t, message):
        config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 500})
        assert message in refused(2, "run", config, "--set", "method=laplacian", "--set", f"weights.t={t}")


@pytest.mark.parametrize("method", [pytest.param("hessian", marks=pytest.mark.slow), "ltsa"])
@pytest.mark.parametrize("n", [300, pytest.param(1200, marks=pytest.mark.slow)])
def test_flat_data_give_their_coordinates_exactly(tmp_path, method, n):
    """The coordinates are null vectors of M, in addition to the constant. This is a result, not an error."""
    rng = np.random.default_rng(5)
    u = rng.random((n, 2))
    store, result = run_on(tmp_path, u @ rng.normal(size=(2, 5)), method)
    embedding = store.read_all("embedding")
    assert largest_angle(embedding, u - u.mean(axis=0)) < 1e-3
    assert any("flat" in finding["sentence"] for finding in result["metrics"]["findings"])


@pytest.mark.parametrize(
    "method",
    [
        "lle",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("modified", "hessian", "ltsa", "laplacian", "pca")),
    ],
)
class TestEachMethod:
    def test_runs_resumes_and_reports(self, tmp_path, method):
        X = sample("s_curve", 0, 600, 5, 0.0, 0.0).points
        store, first = run_on(tmp_path, X, method, output={"report": True}, execution={"block_points": 300})
        metrics = first["metrics"]
        embedding = store.read_all("embedding").tobytes()
        assert metrics["trustworthiness"]["value"] > 0.9
        assert metrics["solver"]["converged"]
        assert metrics["method"] == method
        assert (metrics["reconstruction_error"] is None) == (method != "lle")
        page = (tmp_path / "run.zarr" / "report" / "index.html").read_text()
        assert page.count("data:image/png") >= 2
        config = tmp_path / "config.yaml"
        status = lle("status", tmp_path / "run.zarr")
        assert status["state"] == "done"
        planned = lle("plan", config, "--set", f"method={method}")
        for stage, entry in status["stages"].items():
            tasks = sum(row["tasks"] for row in planned["steps"] if row["stage"] == stage)
            assert entry["done"] == entry["blocks"] == tasks
        repeated = lle("run", config, "--set", f"method={method}")
        assert not repeated["blocks_computed"]
        for marker in (tmp_path / "run.zarr" / "_done").rglob("*.00001.json"):
            marker.unlink()  # as if killed with one block of every step undone
        resumed = lle("run", config, "--set", f"method={method}")
        assert 0 < sum(resumed["blocks_computed"].values()) < sum(first["blocks_computed"].values())
        assert Store(str(tmp_path / "run.zarr")).read_all("embedding").tobytes() == embedding

    def test_duplicates_and_invalid_rows_come_back_in_place(self, tmp_path, method):
        X = sample("s_curve", 0, 600, 3, 0.0, 0.0).points
        X = np.concatenate([X[:50], np.full((2, 3), np.nan), X, X[7:8]])
        store, result = run_on(tmp_path, X, method, preprocess={"invalid": "drop"})
        Y, component = store.read_all("embedding"), store.read_all("component")
        assert result["metrics"]["duplicates_merged"] == 51
        assert np.isnan(Y[50:52]).all()
        assert component[50:52].tolist() == [-1, -1]
        np.testing.assert_array_equal(Y[:50], Y[52:102])
        np.testing.assert_array_equal(Y[-1], Y[7])
        assert np.isfinite(np.delete(Y, [50, 51], axis=0)).all()


@pytest.mark.parametrize(
    "method", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("modified", "hessian")), "ltsa"]
)
class TestFactor:
    @pytest.mark.slow
    def test_stored_matrix_equals_product_of_the_stored_rows(self, tmp_path, method):
        X = sample("swiss_roll", 0, 700, 9, 0.0, 0.0).points
        store, result = run_on(tmp_path, X, method, execution={"block_points": 256})
        rows = [store.read_rows("local_factors", block) for block in range(3)]
        F = np.concatenate([block.toarray() for block in rows])
        M = sum_rows(store, 700).toarray()
        np.testing.assert_allclose(M, F.T @ F, atol=1e-12)
        np.testing.assert_array_equal(M, M.T)
        np.testing.assert_allclose(M.sum(axis=1), 0, atol=1e-11)
        Y = store.read_all("embedding")[store.read_all("original_index")]
        eigenvalues = result["metrics"]["eigenvalues"][0]
        np.testing.assert_allclose(np.square(F @ Y).sum(axis=0) / np.square(Y).sum(axis=0), eigenvalues, rtol=1e-6)

    @pytest.mark.slow
    def test_components_are_embedded_separately(self, tmp_path, method):
        roll = sample("swiss_roll", 0, 900, 5, 0.0, 0.0).points
        both, metrics = run_on(tmp_path, np.concatenate([roll, roll[:400] + 500.0]), method)
        assert metrics["metrics"]["n_components_weak"] == 2
        assert metrics["metrics"]["reverse_added"] == 0
        Y = both.read_all("embedding")
        (tmp_path / "alone").mkdir()
        if method != "modified":  # its threshold is the median over all points
            alone, _ = run_on(tmp_path / "alone", roll, method)
            assert largest_angle(Y[:900], alone.read_all("embedding")) < 1e-4
        assert np.isfinite(Y).all()

    def test_points_in_no_list_get_coordinates(self, tmp_path, method):
        """Far points are in no list but their own; they must not change the coordinates of the others."""
        rng = np.random.default_rng(3)
        roll = sample("swiss_roll", 0, 1000, 5, 0.0, 0.0).points
        outliers = roll[:40] + rng.normal(size=(40, 3)) * [0.0, 4.0, 0.0]
        _, result = run_on(tmp_path, np.concatenate([roll, outliers]), method)
        metrics = result["metrics"]
        assert metrics["unlisted_points"] is None if method == "modified" else metrics["unlisted_points"] > 0
        assert min(metrics["participation"][0]) > 100
        assert metrics["solver"]["converged"]

    @pytest.mark.slow
    def test_multigrid_agrees(self, tmp_path, method):
        X = sample("s_curve", 0, 500, 5, 0.0, 0.0).points
        store, _ = run_on(tmp_path, X, method)
        direct = store.read_all("embedding")
        _, result = run_on(tmp_path, X, method, "--set", "eigensolver.method=multigrid")
        assert result["metrics"]["solver"]["method"] == "multigrid on M"
        assert set(result["blocks_computed"]) == {"solve_embedding", "measure_quality", "write_report"}
        assert largest_angle(Store(store.url).read_all("embedding"), direct) < 1e-4


@pytest.mark.slow
def test_changed_method_keeps_the_neighbors_and_deletes_arrays_of_the_old_one(tmp_path):
    X = sample("swiss_roll", 0, 700, 9, 0.0, 0.0).points
    store, _ = run_on(tmp_path, X, "ltsa")
    first = store.read_all("embedding").tobytes()
    for method in METHODS:
        _, result = run_on(tmp_path, X, method)
        assert not {"ingest", "order_points", "find_neighbors"} & set(result["blocks_computed"])
        rows = {"local_factors", "cost_matrix"}
        stored = {name for name in ("weights", "degree", *rows) if (tmp_path / "run.zarr" / name).exists()}
        expected = {"lle": {"weights", "cost_matrix"}, "pca": set(), "laplacian": {"degree", *rows}}.get(method, rows)
        assert stored == expected
    run_on(tmp_path, X, "ltsa")
    assert Store(store.url).read_all("embedding").tobytes() == first


def test_requested_cholesky_of_a_flat_m_is_replaced_with_a_warning(tmp_path):
    """LTSA with as many coordinates as features: M of exactly flat data cannot be factored with one point pinned."""
    X = np.random.default_rng(7).standard_normal((450, 3))
    store, result = run_on(tmp_path, X, "ltsa", eigensolver={"n_components": 3, "method": "shift_invert"})
    assert result["metrics"]["solver"]["method"] == "multigrid on M"
    [finding] = [finding for finding in result["metrics"]["findings"] if finding["measure"] == "solvers"]
    assert finding["sentence"].startswith("Method shift_invert could not factor")
    assert "not positive definite" in finding["sentence"]
    assert finding["key"] == {"eigensolver.method": "auto"}
    assert largest_angle(store.read_all("embedding"), X - X.mean(axis=0)) < 1e-5


def test_square_factor_of_another_method_is_not_treated_as_lle(tmp_path):
    """A Hessian eigenmap of one coordinate has one row for each point, without diagonal entries."""
    along = np.sort(np.random.default_rng(5).uniform(0.0, 6.0, 600))
    X = np.column_stack([np.cos(along), np.sin(along), along])  # a curve; noise would add rows
    store, result = run_on(tmp_path, X, "hessian", eigensolver={"n_components": 1})
    assert store.read_rows("local_factors", 0).shape == (600, 600)
    assert result["metrics"]["solver"]["method"] == "shift_invert"
    vectors = np.linalg.svd(store.read_rows("local_factors", 0).toarray())[2]
    embedding = store.read_all("embedding")[store.read_all("original_index")]
    assert largest_angle(embedding, vectors[-2:-1].T) < 1e-4


def test_pca_embeds_all_components_together(tmp_path):
    roll = sample("swiss_roll", 0, 500, 5, 0.0, 0.0).points
    store, result = run_on(tmp_path, np.concatenate([roll, roll[:300] + 500.0]), "pca")
    assert result["metrics"]["n_components_weak"] == 2
    assert "n_components_weak" not in [finding["measure"] for finding in result["metrics"]["findings"]]
    np.testing.assert_array_equal(store.read_all("component"), 0)
    assert store.read_all("embedding")[:500, 0].std() > 0


@pytest.mark.slow
def test_workers_give_the_bytes_of_a_serial_run(tmp_path):
    X = sample("swiss_roll", 0, 900, 5, 0.0, 0.0).points
    with two_workers() as client:
        cluster = f"execution.cluster={{kind: address, address: '{client.scheduler.address}'}}"
        for method in ("modified", "ltsa", "laplacian", "pca"):
            serial = run_on(tmp_path, X, method, "--fresh")[0].read_all("embedding").tobytes()
            store, _ = run_on(tmp_path, X, method, "--fresh", "--set", cluster)
            assert Store(store.url).read_all("embedding").tobytes() == serial, method


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_far", [1, 2])
def test_auto_scale_keeps_the_edges_of_far_points(tmp_path, n_far, seed):
    """With the mean squared distance the weights of all edges from far points to others would be zero in float64."""
    X = np.random.default_rng(seed).normal(size=(500, 3))
    X[:n_far] += 1e3
    store = run_on(tmp_path, X, "laplacian")[0]
    embedding = store.read_all("embedding")[n_far:]
    assert np.abs(np.corrcoef(embedding.T, X[n_far:].T)[:2, 2:]).max() > 0.5
    degree = store.read_all("degree")
    assert degree.min() > np.finfo(np.float64).eps


def test_auto_scale_of_coincident_points_is_refused(tmp_path):
    X = 1e-47 * np.random.default_rng(3).random((200, 3))
    config = npy_config(tmp_path, X)
    result = CliRunner().invoke(app, ["run", str(config), "--set", "method=laplacian"])
    assert result.exit_code == 2, result.output
    assert "weights.t: auto" in " ".join(result.output.split())


@pytest.mark.slow
def test_modified_uses_reg_unlike_scikit_learn(tmp_path):
    X = sample("swiss_roll", 0, 700, 9, 0.0, 0.0).points
    small, _ = run_on(tmp_path, X, "modified")
    embedding = small.read_all("embedding")
    _, result = run_on(tmp_path, X, "modified", "--set", "weights.reg=0.5")
    assert "local_factors" in result["blocks_computed"]
    assert largest_angle(Store(small.url).read_all("embedding"), embedding) > 0.01
    _, result = run_on(tmp_path, X, "ltsa")
    _, result = run_on(tmp_path, X, "ltsa", "--set", "weights.reg=0.5")  # which has no weights to regularise
    assert not result["blocks_computed"].keys() - {"write_report"}


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["method=hessian", "neighbors.n_neighbors=5"], ["method is hessian", "n_neighbors 5", "at least 6"]),
        (["method=hessian", "eigensolver.n_components=4"], ["method is hessian", "at least 15", "lower n_components"]),
        (["method=ltsa", "neighbors.n_neighbors=3"], ["method is ltsa", "at least 4", "raise n_neighbors"]),
        (["method=modified", "neighbors.n_neighbors=2"], ["eigensolver.n_components is 2", "n_neighbors is 2"]),
        (["method=ltsa", "eigensolver.method=factored"], ["eigensolver.method is factored", "method is ltsa"]),
        (["method=pca", "eigensolver.n_components=4"], ["eigensolver.n_components is 4", "3 features"]),
    ],
)
def test_parameters_that_do_not_fit_the_method_are_refused(tmp_path, overrides, parts):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 300})
    arguments = [part for override in overrides for part in ("--set", override)]
    result = CliRunner().invoke(app, ["run", str(config), *arguments])
    assert result.exit_code == 2
    assert all(part in " ".join(result.output.split()) for part in parts), result.output
    assert not (tmp_path / "run.zarr").exists()


def test_smallest_number_of_neighbors_is_accepted(tmp_path):
    for method, k in (("hessian", 6), ("ltsa", 4), ("modified", 3)):
        config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 300})
        assert lle("validate", config, "--set", f"method={method}", "--set", f"neighbors.n_neighbors={k}")
