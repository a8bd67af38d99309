"""Each benchmark case runs once with small data."""

from importlib.util import find_spec

import numpy as np
import pytest
import zarr

from tests.benchmarks import against_sklearn, against_umap, explore, methods, reg_choice, scaling, solvers, storage

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
    factored, peer = solvers.rows("900", ["factored", solvers.PEERS[1]], n_components=2, max_seconds=120)
    assert factored.startswith("| 900 | factored | 0.")
    assert "did not finish" not in factored + peer
    assert float(peer.split("|")[-2]) < 1e-3  # the same eigenvalues


def test_reg_choice(monkeypatch):
    monkeypatch.setattr(reg_choice, "GRID", (1e-3, 1.0))
    line = reg_choice.compare("blobs", reg_choice.blobs(300, 3, 12, 2.0), 2)
    name, _, _, reg, trustworthiness, hit, *_ = line[2:].split(" | ")
    assert (name, reg) == ("blobs", "0.1")
    for cell in (trustworthiness, hit):
        plain, auto, best = (float(value) for value in cell.partition(" (")[0].split(", "))
        assert max(plain, auto) <= best <= 1


@pytest.mark.skipif(find_spec("umap") is None, reason="NOT CHECKED: umap-learn is not installed")
def test_against_umap(tmp_path):
    np.save(tmp_path / "x.npy", methods.points("s_curve", 400, 3))
    [(ours, theirs)] = against_umap.compare(str(tmp_path / "x.npy"), 2, repeat=1)
    assert min(ours.seconds, theirs.seconds) > 0


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
def test_storage(tmp_path):
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    row = storage.measure("moto", 300, tmp_path / "moto", {"kind": "serial"})
    assert row.seconds > 0
    assert min(row.requests[kind] for kind in ("GET", "PUT", "HEAD", "LIST")) > 10
    assert row.bytes_written > 300 * 3 * 8
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


def test_wide_manifold_has_ten_dimensions(tmp_path):
    points = zarr.open_group(scaling.write_wide(tmp_path, 20_000), mode="r")["points"][:].astype(np.float64)
    distances = np.linalg.norm(points - points[0], axis=1)
    near = points[np.argsort(distances)[:200]] - points[0]
    variances = np.linalg.svd(near, compute_uv=False) ** 2
    assert variances[:10].sum() > 0.8 * variances.sum()  # noise of fifty dimensions: about 0.4
    assert np.linalg.matrix_rank(points[:200] - points[:200].mean(axis=0), tol=1e-3) == scaling.WIDE_FEATURES


def test_explore(tmp_path):
    start, *rows, peak = explore.study(20_000, 2, tmp_path)
    assert start.startswith("start ")
    assert len(rows) == len(explore.ZOOMS) * len(explore.COLORS) + 2
    assert all(0 < float(row.split("|")[3]) < 60 for row in rows)
    assert 0.05 < float(peak.split()[2]) < 3
