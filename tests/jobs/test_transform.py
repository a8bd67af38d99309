"""lle transform: training points keep their coordinates, and new points get those of a run that includes them."""

import io
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.manifold._locally_linear import barycenter_weights
from typer.testing import CliRunner

from lle.api.place_in_memory import read_training, state_of
from lle.cli.commands import app
from lle.cli.output import describe_transform
from lle.engine import plan_sizes
from lle.engine.progress import RunProgress
from lle.jobs import transform as transforms
from lle.linalg.alignment import align
from lle.search.among_stored import cells_to_search
from lle.storage.store import Store
from tests.support.aligned_job import Job, rms
from tests.support.commands import lle, refused
from tests.support.points import bowl, curved, swiss_roll

K, BLOCK = 12, 400


def trained(folder, points, **sections) -> Job:
    sections = {"execution": {"block_points": BLOCK}, **sections}
    job = Job(folder, points, **sections)
    job.run()
    return job


@pytest.fixture(scope="module")
def roll(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("roll"), swiss_roll(1000, np.random.default_rng(5)))


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """Standardised, then principal components."""
    points = curved(600, np.random.default_rng(6)).astype(np.float32)
    return trained(tmp_path_factory.mktemp("scaled"), points, preprocess={"scale": "standard", "pca": 12})


@pytest.fixture(scope="module")
def approximate(tmp_path_factory):
    """With approximate neighbours, so that new rows are searched in their nearest cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_sizes, "CELL_POINTS", 60)
        neighbors = {"neighbors": {"method": "pynndescent", "min_recall": 0.9}}
        points = curved(1500, np.random.default_rng(7))
        return trained(tmp_path_factory.mktemp("approximate"), points, **neighbors)


def embed(job: Job, folder, new, *options: str) -> tuple[pd.DataFrame, dict]:
    """(the table, what the command printed)."""
    np.save(folder / "new.npy", new)
    out = folder / "y.parquet"
    printed = lle("transform", job.store.url, str(folder / "new.npy"), str(out), *options)
    return pd.read_parquet(out), printed


def coordinates(table: pd.DataFrame) -> np.ndarray:
    return table[["y1", "y2"]].to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("rule", [pytest.param({"radius": 1.5}, marks=pytest.mark.slow), {"radius": 0.5}])
def test_new_points_between_lists_of_varying_length_are_not_far(tmp_path, rule):
    """New points from the same distribution, near lists that are shorter or longer than n_neighbors."""
    points = swiss_roll(2000, np.random.default_rng(8))
    job = trained(tmp_path / "job", points[:1500], neighbors=rule, quality={"sample": 50})
    table, printed = embed(job, tmp_path, points[1500:])
    assert printed["far"] < 10
    assert table["distance_ratio"].median() == pytest.approx(1, abs=0.1)


refusal = partial(refused, 2, "transform")


@pytest.mark.parametrize("name", ["roll", "scaled", "approximate"])
def test_training_points_keep_their_coordinates(request, tmp_path, name):
    job = request.getfixturevalue(name)
    points = np.load(job.path)
    order = np.random.default_rng(3).permutation(len(points))
    order = np.concatenate([order, order[:7]])  # some of them twice
    table, printed = embed(job, tmp_path, points[order].astype(np.float64))
    np.testing.assert_array_equal(coordinates(table), job.embedding()[order])
    np.testing.assert_array_equal(table["row"], np.arange(len(order)))
    assert (table["component"] == 0).all()
    assert (printed["rows"], printed["training_points"], printed["invalid"]) == (len(order), len(order), 0)
    assert {path.name for path in tmp_path.iterdir()} == {"new.npy", "y.parquet"}  # no work folder is left


@pytest.mark.parametrize("preprocess", [{}, {"scale": "standard"}])
@pytest.mark.parametrize(("is_aligned", "side"), [(False, 1.0), (False, -1.0), (True, 1.0)])
def test_new_points_are_projected_onto_the_components_of_pca(tmp_path, preprocess, is_aligned, side):
    """Also far ones, and one that differs in a column with the same value in nearly all rows; and in Python."""
    rng = np.random.default_rng(15)
    points, new = rng.normal(size=(800, 5)) * [5.0, 4.0, 0.2, 0.1, 0.0], 3 * rng.normal(size=(40, 5))
    points[7, 4] = 40.0
    points *= side  # the signs of the coordinates are those of their largest entries
    settings = {"preprocess": preprocess}
    if is_aligned:  # rotated onto other coordinates of the same rows
        (other := Job(tmp_path / "other", points)).run("method=pca", "preprocess.scale=none")
        settings["embedding"] = {"align": other.store.url}
    (job := Job(tmp_path / "job", points, **settings)).run("method=pca")
    assert not is_aligned or job.alignment()["components"][0]["rows_shared"] == 800
    expected = (
        np.column_stack([new, np.ones(40)])
        @ np.linalg.lstsq(np.column_stack([points, np.ones(800)]), job.embedding(), rcond=None)[0]
    )
    table, _ = embed(job, tmp_path, new)
    np.testing.assert_allclose(coordinates(table), expected, atol=1e-9)
    np.testing.assert_allclose(read_training(job.store.url, state_of(job.store)).place(new), expected, atol=1e-9)


def test_a_given_limit_of_the_ratio_is_that_of_approximate_runs_too(approximate, tmp_path, rng):
    new = curved(100, rng)
    new[:30] += 3.0
    far = [embed(approximate, tmp_path, new, *options)[1] for options in ((), ("--max-ratio", "1e6"))]
    assert (far[0]["far"], far[1]["far"], far[1]["max_ratio"]) == (30, 0, 1e6)


def test_rows_among_approximate_neighbors_have_nearly_all_true_neighbors(approximate, tmp_path, rng):
    new = curved(400, rng)
    table, _ = embed(approximate, tmp_path, new)
    store, original = approximate.store, approximate.store.read_all("original_index")
    points, embedding = store.read_all("points"), approximate.embedding()[original]
    order = np.argsort(cdist(new, points), axis=1)[:, :K]
    weights = barycenter_weights(new, points, order, reg=1e-3)
    expected = np.einsum("bk,bkm->bm", weights, embedding[order])
    is_equal = np.isclose(coordinates(table), expected, rtol=0, atol=1e-9).all(axis=1)
    in_python = read_training(store.url, state_of(store)).place(new)
    np.testing.assert_allclose(coordinates(table), in_python, rtol=0, atol=1e-12)
    assert is_equal.mean() > 0.8  # a row with one wrong neighbour differs
    assert 2 <= cells_to_search(store, np.arange(0, 1500, 8), K, 0) < len(store.read_bundle("_work/cells")["centers"])
    assert rms(coordinates(table) - expected) < 0.02 * rms(embedding)


@pytest.mark.parametrize("name", ["roll", "scaled"])
def test_equals_dense_search_and_scikit_learns_weights(request, tmp_path, name, rng):
    job = request.getfixturevalue(name)
    new = swiss_roll(500, rng) if name == "roll" else curved(500, rng).astype(np.float32)
    table, printed = embed(job, tmp_path, new)
    points, original = job.store.read_all("points"), job.store.read_all("original_index")
    queries = new.astype(np.float64)
    if name == "scaled":
        fitted = job.store.read_bundle("_work/transform")
        queries = ((queries - fitted["mean"]) / fitted["scale"] - fitted["center"]) @ fitted["components"].T
    distances = cdist(queries, points)
    order = np.argsort(distances, axis=1)[:, :K]
    weights = barycenter_weights(queries, points.astype(np.float64), order, reg=1e-3)
    expected = np.einsum("bk,bkm->bm", weights, job.embedding()[original][order])
    np.testing.assert_allclose(coordinates(table), expected, atol=1e-9)
    reach = np.sort(cdist(points, points), axis=1)[:, K]
    ratio = np.take_along_axis(distances, order, axis=1)[:, -1] / reach[order].mean(axis=1)
    np.testing.assert_allclose(table["distance_ratio"], ratio, rtol=1e-5)
    assert printed["far"] == (ratio > printed["max_ratio"]).sum() < 15


def test_default_limit_is_a_quantile_of_training_points(roll, tmp_path):
    points = roll.store.read_all("points")
    distances = np.sort(cdist(points, points), axis=1)
    order = np.argsort(cdist(points, points), axis=1)[:, 1 : K + 1]
    ratios = distances[:, K] / distances[:, K][order].mean(axis=1)
    _, printed = embed(roll, tmp_path, points[:3])
    assert printed["max_ratio"] == pytest.approx(np.quantile(ratios, 0.999), rel=1e-5)
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05)


def test_far_points_are_counted_and_can_be_nan(roll, tmp_path):
    base = roll.store.read_all("points")[500]
    offsets = np.array([0.0, 1.0, 3.0, 30.0, 1e6])
    new = base + offsets[:, None] * [0.0, 21.0, 0.0]  # along the axis, past the end
    table, printed = embed(roll, tmp_path, new)
    ratio = table["distance_ratio"].to_numpy()
    assert ratio[0] <= 1.1
    assert (np.diff(ratio[1:]) > 0).all()
    assert printed["far"] == 4
    assert np.isfinite(coordinates(table)).all()
    blanked, _ = embed(roll, tmp_path, new, "--far-as-nan")
    assert np.isnan(coordinates(blanked)[1:]).all()
    np.testing.assert_array_equal(coordinates(blanked)[0], coordinates(table)[0])
    assert embed(roll, tmp_path, new, "--max-ratio", str(ratio[3]))[1]["far"] == 1


def test_training_points_are_never_far(roll, tmp_path):
    table, printed = embed(roll, tmp_path, roll.store.read_all("points")[:9], "--max-ratio", "0.01", "--far-as-nan")
    assert (printed["training_points"], printed["far"]) == (9, 0)
    assert np.isfinite(coordinates(table)).all()


def test_output_has_singular_and_plural_nouns():
    counts = {"path": "y.npy", "seconds": 0.1, "max_ratio": 1.5, "first_invalid": [7]}
    for count, noun in ((1, "1 row"), (2000, "2,000 rows")):
        numbers = dict.fromkeys(("rows", "training_points", "far", "mixed_components", "invalid"), count)
        lines = describe_transform({**counts, **numbers}).splitlines()
        assert [line.removeprefix("warning: ").startswith(f"{noun} ") for line in lines] == [True] * 5


def test_rows_that_are_not_finite_are_counted(roll, approximate, tmp_path):
    new = swiss_roll(900, np.random.default_rng(8))
    expected, _ = embed(roll, tmp_path, new)
    invalid = [3, 401, 402, 899]
    new[invalid, [0, 1, 2, 0]] = [np.nan, np.inf, -np.inf, 1e200]
    table, printed = embed(roll, tmp_path, new)
    assert (printed["invalid"], printed["first_invalid"]) == (4, invalid)
    assert np.isnan(table.loc[invalid, ["y1", "y2", "distance_ratio"]].to_numpy()).all()
    assert (table["component"].to_numpy() == -1).sum() == 4
    finite = np.setdiff1d(np.arange(900), invalid)
    np.testing.assert_array_equal(coordinates(table)[finite], coordinates(expected)[finite])
    with np.errstate(all="raise"):
        assert embed(roll, tmp_path, np.full((2, 3), np.nan))[1]["invalid"] == 2
        assert embed(approximate, tmp_path, np.full((2, 15), np.nan))[1]["invalid"] == 2


@pytest.mark.parametrize("method", ["lle", "ltsa", "pca"])
@pytest.mark.slow
def test_new_points_are_placed_near_their_coordinates_in_a_run_that_includes_them(tmp_path, method):
    """The larger run is rotated onto the smaller one over their common points; the new points are then close too."""
    points = swiss_roll(1230, np.random.default_rng(12))
    partial_run = Job(tmp_path / "part", points[:1200])
    full_run = Job(tmp_path / "whole", points)
    partial_run.run(f"method={method}")
    full_run.run(f"method={method}")
    table, _ = embed(partial_run, tmp_path, points[1200:])
    full_embedding = full_run.embedding()
    turned = full_embedding @ align(full_embedding[:1200], partial_run.embedding()).rotation
    changed = rms(turned[:1200] - partial_run.embedding()) / rms(turned)
    assert rms(coordinates(table) - turned[1200:]) / rms(turned) < changed + 0.03
    assert changed < 0.2  # of so few points the coordinates themselves move (lle 0.14), else nothing would be compared


@pytest.mark.parametrize("rng", [19, pytest.param(83, marks=pytest.mark.slow)], indirect=True)
def test_neighbors_of_two_components_do_not_mix(tmp_path, rng):
    """Two sheets and a clump that is too small to be embedded; new points between them, near one, and in the clump."""
    left, right = bowl(300, rng), np.array([2.8, 0.0, 0.0]) + bowl(400, rng)
    clump = np.array([0.0, 9.0, 0.0]) + 0.01 * rng.normal(size=(15, 3))
    job = trained(tmp_path / "job", np.concatenate([left, right, clump]), neighbors={"n_neighbors": K, "reverse": 0})
    assert job.store.read_all("eigenvalues").shape[0] == 2
    new = np.array([[1.39, 0.0, 1.0], [1.41, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    table, printed = embed(job, tmp_path, new)
    points, component = np.load(job.path), Store(job.store.url).read_all("component")
    embedded = np.flatnonzero(component >= 0)
    assert len(embedded) == 700
    for row, place in enumerate(new):
        near = embedded[np.argsort(np.linalg.norm(points[embedded] - place, axis=1))[:K]]
        members = near[component[near] == component[near[0]]]
        weights = barycenter_weights(place[None], points, members[None], reg=1e-3)[0]
        np.testing.assert_allclose(coordinates(table)[row], weights @ job.embedding()[members], atol=1e-9)
        assert table["component"][row] == component[near[0]]
    assert set(table["component"][:2]) <= {0, 1}
    assert printed["mixed_components"] >= 1
    assert table["distance_ratio"][3] > printed["max_ratio"]  # those it belongs to have no coordinates


def test_block_size_does_not_change_coordinates(roll, tmp_path):
    new = swiss_roll(1300, np.random.default_rng(21))
    in_one_block, _ = embed(roll, tmp_path, new)
    (tmp_path / "c.yaml").write_text(
        "input: {kind: npy, path: x}\noutput: {store: y}\nexecution: {block_points: 400, cluster: {kind: serial}}\n"
    )
    in_blocks, _ = embed(roll, tmp_path, new, "--config", str(tmp_path / "c.yaml"))
    pd.testing.assert_frame_equal(in_one_block, in_blocks, check_exact=True)


@pytest.mark.slow
def test_workers_give_the_same_bytes(roll, tmp_path):
    new = swiss_roll(3000, np.random.default_rng(22))
    serial, _ = embed(roll, tmp_path, new)
    parallel, _ = embed(roll, tmp_path, new, "--workers", "2")
    pd.testing.assert_frame_equal(serial, parallel, check_exact=True)


def test_interrupted_transform_resumes(roll, tmp_path, monkeypatch):
    new = swiss_roll(50, np.random.default_rng(23))
    monkeypatch.setattr(transforms, "export_embedding", None)
    np.save(tmp_path / "new.npy", new)
    arguments = [roll.store.url, str(tmp_path / "new.npy"), str(tmp_path / "y.npy")]
    assert CliRunner().invoke(app, ["transform", *arguments]).exit_code == 1
    monkeypatch.undo()
    monkeypatch.setattr("lle.stages.embed_new.nearest_points", None)  # not needed any more
    lle("transform", *arguments)
    assert np.load(tmp_path / "y.npy").shape == (50, 3)
    assert not (tmp_path / "y.npy.work").exists()


def test_simultaneous_transforms_to_one_file_are_complete(roll, tmp_path, monkeypatch):
    """The second transform starts while the first holds the lock, waits, and computes the rows again."""
    np.save(tmp_path / "new.npy", swiss_roll(50, np.random.default_rng(23)))
    monkeypatch.setattr("lle.storage.lock.POLL_SECONDS", 0.05)
    waiting = threading.Event()
    outcomes, quiet, new = [], RunProgress(io.StringIO()), str(tmp_path / "new.npy")
    monkeypatch.setattr(RunProgress, "print_line", lambda self, text: waiting.set())

    def start() -> None:
        out = str(tmp_path / "y.csv")
        outcomes.append(transforms.transform(transforms.NewRows(roll.store.url, new, out), quiet))

    class RunBoth(transforms.PlacingRun):
        def drive(self, steps):
            if not threads:
                threads.append(threading.Thread(target=start))
                threads[0].start()
                assert waiting.wait(60)
            return super().drive(steps)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(transforms, "PlacingRun", RunBoth)
    start()
    first = (tmp_path / "y.csv").read_bytes()
    threads[0].join()
    assert [outcome["rows"] for outcome in outcomes] == [50, 50]
    assert (tmp_path / "y.csv").read_bytes() == first
    assert len(pd.read_csv(tmp_path / "y.csv")) == 50
    assert not (tmp_path / "y.csv.work").exists()


def test_run_changed_during_the_transform_is_detected(roll, tmp_path, monkeypatch):
    np.save(tmp_path / "new.npy", swiss_roll(5, np.random.default_rng(24)))
    monkeypatch.setattr(transforms, "state_of", lambda run: {"fingerprint": "of another run", "begun": 2.0})
    result = CliRunner().invoke(app, ["transform", roll.store.url, f"{tmp_path}/new.npy", f"{tmp_path}/y.csv"])
    assert (result.exit_code, "computed again during the transform" in result.output) == (1, True)
    assert not (tmp_path / "y.csv").exists()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """(folder, the table in its x.parquet): three numeric columns and a numeric label."""
    folder = tmp_path_factory.mktemp("table")
    rows = pd.DataFrame(swiss_roll(400, np.random.default_rng(31)), columns=["a", "b", "c"])
    rows = rows.assign(kind=np.arange(400) % 3)
    rows.to_parquet(folder / "x.parquet")
    return folder, rows


def test_cosine_run_compares_directions_of_new_points(tmp_path):
    """Cosine distances do not depend on the length of a row, and a zero row has no direction."""
    points = 3.0 + swiss_roll(500, np.random.default_rng(26)) / 20
    job = trained(tmp_path / "job", points, neighbors={"metric": "cosine"})
    lengths = np.random.default_rng(27).uniform(0.5, 2.0, (500, 1))
    table, printed = embed(job, tmp_path, np.concatenate([points * lengths, np.zeros((1, 3))]))
    np.testing.assert_allclose(coordinates(table)[:500], job.embedding(), atol=1e-6)
    assert (printed["invalid"], printed["first_invalid"]) == (1, [500])


def test_damage_of_the_run_is_named(tmp_path):
    job = trained(tmp_path / "job", swiss_roll(400, np.random.default_rng(25)))
    embedding = job.embedding()
    job.store.objects.delete("points/c/0/0")
    np.save(tmp_path / "new.npy", embedding[:, [0, 0, 0]])
    result = CliRunner().invoke(app, ["transform", job.store.url, f"{tmp_path}/new.npy", f"{tmp_path}/y.csv"])
    assert result.exit_code == 1
    assert f"{job.store.url}: array 'points', chunk 0" in result.output
    np.testing.assert_array_equal(job.embedding(), embedding)


def run_of(folder, **source) -> str:
    """The URL of a run on the table in a folder."""
    job = Job(folder / "-".join(source), np.zeros((1, 1)))
    url = f"{folder}/{'-'.join(source)}.zarr"
    section = {"kind": "parquet", "path": str(folder / "x.parquet"), **source}
    lle("run", job.config, "--store", url, "--set", f"input={section}")
    return url


@pytest.fixture(scope="module")
def labelled(table) -> str:
    return run_of(table[0], label="kind")


class TestInputs:
    def test_the_label_is_left_out_with_or_without_it(self, table, labelled, tmp_path):
        rows, url = table[1], labelled
        expected = Store(url).read_all("embedding")[:50]
        rows[:50].to_csv(tmp_path / "with.csv", index=False)
        rows[:50].drop(columns="kind").to_parquet(tmp_path / "without.pq")
        worded = rows[:50].assign(kind="word")
        worded.to_csv(tmp_path / "text.csv", index=False)
        worded.to_parquet(tmp_path / "text.parquet")
        for name in ("with.csv", "without.pq", "text.csv", "text.parquet"):
            lle("transform", url, str(tmp_path / name), str(tmp_path / "y.npy"))
            np.testing.assert_allclose(np.load(tmp_path / "y.npy")[:, :2], expected, atol=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_columns_are_matched_by_name(self, table, labelled, tmp_path, suffix):
        rows, url = table[1], labelled
        other_order = rows[["b", "kind", "c", "a"]][:50]
        write = other_order.to_parquet if suffix == "parquet" else other_order.to_csv
        write(tmp_path / f"x.{suffix}", index=suffix == "csv")  # a row index without a name is no feature
        lle("transform", url, str(tmp_path / f"x.{suffix}"), str(tmp_path / "y.npy"))
        expected = Store(url).read_all("embedding")[:50]
        np.testing.assert_allclose(np.load(tmp_path / "y.npy")[:, :2], expected, atol=1e-9)

    def test_other_columns_are_refused_with_both_names(self, table, labelled, tmp_path):
        rows, url = table[1], labelled
        rows.rename(columns={"b": "beta"}).to_parquet(tmp_path / "x.parquet")
        words = refusal(url, tmp_path / "x.parquet", tmp_path / "y.npy")
        assert "expected the columns of the run, a, b, c; found a, beta, c, kind" in words
        assert "missing: b; not in the run: beta" in words
        rows.assign(d=1.0).to_csv(tmp_path / "x.csv", index=False)
        assert "not in the run: d" in refusal(url, tmp_path / "x.csv", tmp_path / "y.npy")
        named = ("--input", "columns=[a,beta,c]")
        assert lle("transform", url, str(tmp_path / "x.parquet"), str(tmp_path / "y.npy"), *named)["rows"] == 400

    def test_columns_are_those_of_the_run(self, table, tmp_path):
        folder, rows = table
        url = run_of(folder, columns=["c", "a", "b"])
        rows[["b", "kind", "a", "c"]][:50].to_parquet(tmp_path / "x.parquet")
        lle("transform", url, str(tmp_path / "x.parquet"), str(tmp_path / "y.npy"))
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, :2], Store(url).read_all("embedding")[:50])

    def test_keys_of_the_input_section(self, roll, tmp_path):
        points = np.load(roll.path)
        np.savez(tmp_path / "x.npz", points=points[:30, [2, 0, 1]], other=points[:4])
        settings = ("--input", "key=points", "--input", "columns=[1,2,0]")
        lle("transform", roll.store.url, tmp_path / "x.npz", tmp_path / "y.npy", *settings)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, :2], roll.embedding()[:30])

    def test_generated_points(self, roll, tmp_path):
        settings = ("--input", "kind=synthetic", "--input", "n_points=20")
        result = lle("transform", roll.store.url, "swiss_roll", tmp_path / "y.csv", *settings)
        assert result["rows"] == len(pd.read_csv(tmp_path / "y.csv")) == 20


class TestRefusals:
    @pytest.fixture
    def new(self, tmp_path):
        np.save(tmp_path / "new.npy", np.zeros((4, 3)))
        return str(tmp_path / "new.npy")

    def test_wrong_number_of_columns(self, roll, tmp_path):
        np.save(tmp_path / "new.npy", np.zeros((4, 5)))
        message = refusal(roll.store.url, tmp_path / "new.npy", tmp_path / "y.csv")
        assert "expected 3 columns" in message
        assert "found 5" in message

    def test_input_without_rows_is_refused(self, roll, tmp_path):
        np.save(tmp_path / "new.npy", np.zeros((0, 3)))
        refusal(roll.store.url, tmp_path / "new.npy", tmp_path / "y.csv")

    @pytest.mark.parametrize(
        ("name", "out"), [("new.txt", "y.csv"), ("new.npy", "y.txt"), ("new.npy", "no/y.csv"), ("none.npy", "y.csv")]
    )
    def test_unknown_file_suffix_is_refused(self, roll, new, tmp_path, name, out):
        refusal(roll.store.url, tmp_path / name, tmp_path / out)
        assert [path.name for path in tmp_path.iterdir()] == ["new.npy"]

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("colums=[0]", "allowed"),
            ("columns", "expected a.b=value"),
            ("columns=[0,1,9]", "columns"),
            ("kind=tables", "kind"),
        ],
    )
    def test_invalid_settings_are_refused(self, roll, new, tmp_path, setting, message):
        assert message in refusal(roll.store.url, new, tmp_path / "y.csv", "--input", setting)

    def test_run_without_embedding_is_refused(self, new, tmp_path):
        assert "no run has been started" in refusal(tmp_path / "none.zarr", new, tmp_path / "y.csv")

    def test_work_store_that_is_a_run_is_refused(self, roll, new, tmp_path):
        message = refusal(roll.store.url, new, tmp_path / "y.csv", "--work", roll.store.url)
        assert "is the store of a run" in message
        assert roll.embedding().shape == (1000, 2)

    def test_workers_option_with_a_config_is_refused(self, roll, new, tmp_path):
        assert "one of them" in refusal(
            roll.store.url, new, tmp_path / "y.csv", "--workers", "2", "--config", roll.config
        )
