"""Each benchmark case runs once with small data."""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

from lle.kernels.neighbors.knn import exact_distances
from lle.storage.store import Store
from tests.benchmarks import (
    against_others,
    against_sklearn,
    coordinates,
    explore,
    growth,
    methods,
    nightly,
    one_index,
    reg_choice,
    scaling,
    solvers,
    storage,
    stories,
    styles,
    unrolled,
    workers,
)
from tests.support import traffic
from tests.support.commands import lle, write_config
from tests.support.paths import REPOSITORY

pytestmark = pytest.mark.slow


def test_against_sklearn():
    [(ours, theirs)] = against_sklearn.compare(600, repeat=1, cluster="serial")
    assert min(ours.seconds, theirs.seconds) > 0
    assert min(ours.processor_seconds, theirs.processor_seconds) > 0.1
    assert min(ours.peak_bytes, theirs.peak_bytes) > 10**7
    assert all(seconds > 0 for pair in against_sklearn.fits(300, repeat=2) for seconds in pair)


def test_methods():
    assert methods.angle("ltsa", methods.points("swiss_roll", 300, 23)) < 0.1
    measured, metrics = methods.cost("laplacian", 400)
    assert measured.seconds > 0
    assert metrics["solver"]["converged"]


def test_methods_rows(monkeypatch):
    monkeypatch.setattr(methods, "AGREEMENT_POINTS", 300)
    monkeypatch.setattr(methods, "DATA", {"s_curve": "S-curve"})
    name, value = methods.agreement("pca", (23, 37)).strip("| ").split(" | ")
    assert name == "pca"
    assert 0 <= float(value) < 1e-4
    assert methods.costs("hessian", 9) == "| 9 | hessian | failed with exit code 2 | | | | |"


def test_solvers():
    routes = ["factored", "multigrid", solvers.PEERS[1]]
    factored, multigrid, peer = solvers.rows("900", routes, n_components=2, max_seconds=120)
    assert factored.startswith("| 900 | factored | 0.")
    assert "did not finish" not in factored + multigrid + peer
    assert 0 < float(multigrid.split("|")[-2]) < 1e-6  # the same eigenvalues, not the same bytes
    assert float(peer.split("|")[-2]) < 1e-3
    [replaced] = solvers.rows("900", ["multigrid"], n_components=2, max_seconds=120, reg=1e-9)
    assert replaced.startswith("| 900 | multigrid (failed, by ")


def test_growth():
    power, *_, forecast = growth.study(2, [1500, 2500, 4000], 6000, (10**5,))
    entries, work = (float(cell) for cell in power.split("|")[3:5])
    assert 1 < entries < 1.5
    assert 1 < work < 2.5
    assert forecast.startswith("| 2 | 100,000 | ")


def test_reg_choice(monkeypatch):
    monkeypatch.setattr(reg_choice, "GRID", (1e-3, 1.0))
    line = reg_choice.compare("blobs", reg_choice.blobs(300, 3, 12, 2.0), 2)
    name, _, _, reg, trustworthiness, hit, *_ = line[2:].split(" | ")
    assert (name, reg) == ("blobs", "1")
    for cell in (trustworthiness, hit):
        plain, auto, best = (float(value) for value in cell.partition(" (")[0].split(", "))
        assert max(plain, auto) <= best <= 1


def test_coordinates():
    line = str(coordinates.compare("strip", coordinates.sheet(300, 5, coordinates.wave)))
    name, taken, best, *measures, seconds = line[2:-2].split(" | ")
    assert (name, len(taken.split(", ")), len(best.split(", "))) == ("strip", 2, 2)
    first, independent, highest = (float(cell.partition(" / ")[0]) for cell in measures)
    assert first - 0.005 <= independent <= highest <= 1
    assert min(map(float, seconds.split(", "))) > 0
    assert all(len(load()[0]) > 100 for load in coordinates.data_sets(150).values())


def test_against_others():
    data = against_others.roll(700)
    found = against_others.runs(data, 2, sys.executable, cluster="serial")
    assert {"lle run", "scikit-learn, LLE"} <= set(found)
    _, _, *lines = against_others.rows(data, found)
    assert len(lines) == len(found)
    ours, theirs = lines[:2]
    assert ours.endswith(" 0 |")  # the same bytes
    for line in (ours, theirs):
        seconds, used, _, trust, along, change = (float(cell) for cell in line.split("|")[2:-1])
        assert min(seconds, used) > 0.1
        assert 0.9 < trust <= 1
        assert 0.9 < along <= 1
        assert change < 1e-6


def test_page_of_the_comparison_is_written_between_its_marks(tmp_path, monkeypatch):
    page, own = tmp_path / "page.md", (REPOSITORY / "docs" / "how_it_compares.md").read_text()
    page.write_text(own)
    monkeypatch.setattr(against_others, "DATA", {"Roll: 300 x 3": lambda: against_others.roll(300)})
    monkeypatch.setattr("sys.argv", ["against_others", "--repeat", "1", "--write", str(page)])
    against_others.main()
    first, last = against_others.MARKS
    assert page.read_text().partition(first)[0] == own.partition(first)[0]
    assert page.read_text().partition(last)[2] == own.partition(last)[2]
    written = page.read_text().partition(first)[2].partition(last)[0].splitlines()
    assert f"scikit-learn {version('scikit-learn')}" in written[2]
    assert [line.partition(" (")[0] for line in written if line.startswith("**")] == ["**Roll: 300 x 3**"]
    [ours] = [line for line in written if line.startswith("| lle run |")]
    assert ours.endswith("| - |")  # one run shows no change
    page.write_text(f"no marks\n{last}")
    with pytest.raises(ValueError, match="expected the lines"):
        against_others.main()


def test_change_and_order():
    data, other = against_others.roll(300), np.random.default_rng(3).random((300, 2))
    turned = other @ [[0.0, -3.0], [3.0, 0.0]] + 5
    assert against_others.change(other, turned) < 1e-12
    assert against_others.change(other, other[::-1]) > 0.9
    assert against_others.found_again(data, np.column_stack([other[:, 0], -(data.along**3)])) == pytest.approx(1)
    assert against_others.found_again(data, other) < 0.3
    classes = against_others.Data(data.points, (other[:, 0] > 0.5).astype(float))
    assert against_others.found_again(classes, other) > 0.8
    assert against_others.found_again(classes, other[::-1]) < 0.7


@pytest.mark.parametrize(("name", "least"), [("spectra", 0.98), ("motion", 0.8), ("sensor", 0.8), ("cells", 0.9)])
def test_story_finds_what_the_run_does_not_see(name, least, tmp_path):
    learned = stories.tell(name, 900, tmp_path, ("execution.cluster.kind=serial",))
    learned.pop("of the better principal component", None)
    assert len(learned) >= 2
    assert min(learned.values()) > least, learned
    stories.keep_picture(tmp_path / f"{name}.zarr", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < 100_000


def test_story_of_images(tmp_path):
    learned = stories.tell("images", 900, tmp_path, ("execution.cluster.kind=serial",))
    same, *mixed, trustworthiness = learned.values()
    assert min(same, trustworthiness) > 0.8
    assert sorted(mixed, reverse=True) == mixed
    assert 0 < mixed[0] < 0.3


def test_nightly(tmp_path):
    surface, n, seed, free, aligned, near = nightly.row("bowl", 800, 3, tmp_path)
    assert (surface, n, seed) == ("bowl", "800", "3")
    assert float(aligned) <= float(free)
    assert float(aligned) < 0.2
    assert near.endswith("%")


def test_unrolled(tmp_path, monkeypatch, capsys):
    sweep = {"grid": {"method": ["hessian"], "neighbors.n_neighbors": [12, 500], "input.noise": [0.0, 3.0]}}
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 450}, sweep=sweep)
    monkeypatch.setattr("sys.argv", ["unrolled", str(config), "--set", "execution.cluster.kind=serial"])
    unrolled.main()
    lines = capsys.readouterr().out.splitlines()
    flat, noisy = [line for line in lines if line.startswith("| hessian |")]
    assert "| noise 0, method / n_neighbors | 12 | 500 |" in lines
    assert flat == "| hessian | **0.00** | - |"
    assert float(noisy.split()[3]) > unrolled.UNROLLED


def test_styles():
    places = np.random.default_rng(5).random((300, 2))
    chosen = places[styles.spread_out(places, 0.2)]
    gaps = np.abs(chosen[:, np.newaxis] - chosen).max(axis=2)
    assert gaps[~np.eye(len(chosen), dtype=bool)].min() >= 0.2
    assert np.abs(places[:, np.newaxis] - chosen).max(axis=2).min(axis=1).max() < 0.2  # no room is left
    assert styles.scaled(places * [3, 7] - 1).max(axis=0) == pytest.approx([1, 1])
    stroke = np.zeros((2, 28, 28))
    stroke[0, range(4, 24), range(4, 24)] = stroke[1, 4:24, 14] = 9.0
    assert styles.slant(stroke.reshape(2, -1)) == pytest.approx([1, 0])


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
def test_storage(tmp_path):
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    row = storage.measure("moto", 32, tmp_path / "moto", {"kind": "serial"})
    assert row.seconds > 0
    assert min(row.requests[kind] for kind in ("GET", "PUT", "HEAD", "LIST")) > 10
    assert row.bytes_written > 32 * 3 * 8
    assert str(row).count("|") == 6


def test_scaling(tmp_path):
    jobs = [scaling.Job("wide", n, 1, "2GiB", block_points=500) for n in (600, 1200)]
    costs = {}
    for job in jobs:
        folder = tmp_path / str(job.n_points)
        folder.mkdir()
        scaling.write_wide(folder, job.n_points)
        costs[job], recall = scaling.measure(job, folder)
        assert recall == 1.0  # so few points are compared with all
        assert len(scaling.rows(job, costs[job], recall)) == 7
    for name, cost in costs[jobs[1]].items():
        assert cost.worker_peak > 5 * 10**7, name
        assert 0 < cost.modelled[2] <= cost.modelled[1] <= cost.modelled[0] <= cost.seconds, name
    sizes = [4 * n * scaling.WIDE_FEATURES for n in (600, 1200)]
    written = [costs[job]["order_points"].written for job in jobs]  # sorted, then gathered
    assert written[1] - written[0] > 2 * (sizes[1] - sizes[0])
    assert 0 < float(scaling.powers(costs, "wide", 1)[-1].split("|")[-2]) < 1.3
    assert scaling.speedups(costs, "wide", 1200)[-1].endswith("| 1.00 |")


def test_scaling_on_an_object_store(tmp_path, monkeypatch):
    """Every request would wait; the test counts the waits."""
    waited = []
    monkeypatch.setattr(traffic, "time", SimpleNamespace(sleep=waited.append))
    job = scaling.Job("swiss_roll", 300, 1, "2GiB", block_points=150, models=(2,))
    with scaling.place_of_stores("moto", 0.05, tmp_path) as stores:
        Store(stores).put_json("probe", {})
        assert waited == [0.05]
        costs, _ = scaling.measure(job, tmp_path, stores)
    assert len(waited) > 100
    assert set(waited) == {0.05}
    assert stores.startswith("s3://")
    assert not (tmp_path / "run.zarr").exists()
    assert len(costs["ingest"].modelled) == 2
    assert costs["order_points"].modelled[1] < costs["order_points"].modelled[0]


def test_wide_manifold_has_ten_dimensions(tmp_path):
    points = zarr.open_group(scaling.write_wide(tmp_path, 20_000), mode="r")["points"][:].astype(np.float64)
    distances = np.linalg.norm(points - points[0], axis=1)
    near = points[np.argsort(distances)[:200]] - points[0]
    variances = np.linalg.svd(near, compute_uv=False) ** 2
    assert variances[:10].sum() > 0.8 * variances.sum()  # noise of fifty dimensions: about 0.4
    assert np.linalg.matrix_rank(points[:200] - points[:200].mean(axis=0), tol=1e-3) == scaling.WIDE_FEATURES


@pytest.mark.timeout(300)
def test_one_index(tmp_path):
    rng = np.random.default_rng(43)
    points = np.repeat(rng.normal(size=(1500, 12)).astype(np.float32), 2, axis=0)  # every row twice
    pair = one_index.compare(points, 8, n_workers=0, memory="2GiB", folder=tmp_path)
    ours, index = pair.recalls
    assert len(ours) == len(index) == 1500
    assert ours.min() == 1.0  # so few points are compared with all
    assert 0.8 < index.mean() <= 1.0
    assert "reported 1.0000" in pair.ours.details
    assert one_index.rows(pair)[2].startswith("| ours - one index | +")
    ids, distinct = pair.ours.ids, points[::2]
    kth = exact_distances(distinct, distinct, ids).max(axis=1)
    for listed, lowest, highest in ((ids, 1.0, 1.0), (np.roll(ids, 1, axis=0), 0.0, 0.1)):
        assert lowest <= one_index.recall(distinct, np.arange(1500), listed, kth).mean() <= highest


def test_explore(tmp_path):
    start, *rows, peak = explore.study(20_000, 2, tmp_path)
    assert start.startswith("start ")
    assert len(rows) == (len(explore.ZOOMS) + 1) * len(explore.COLORS) + 2
    assert all(0 <= float(row.split("|")[3]) < 60 for row in rows)
    assert 0.05 < float(peak.split()[2]) < 3


def test_workers(tmp_path, capsys):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 3000})
    lle("run", config)
    workers.main([str(tmp_path / "run.zarr"), "--workers", "1", "--model", "16"])
    measured, modelled = capsys.readouterr().out.splitlines()[2:4]
    assert float(measured.split("|")[5]) > 0.1
    assert modelled.startswith("| 16 |")
