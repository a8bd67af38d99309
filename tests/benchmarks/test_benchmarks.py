"""Each benchmark case runs, tiny."""

from importlib.util import find_spec

import numpy as np
import pytest
from test_end_to_end import lle, write_config

from pipeline.store import Store
from tests.benchmarks import against_sklearn, against_umap, filters, growth, methods, nightly, solvers, storage
from tests.benchmarks.factors import stored_factor


def test_against_sklearn():
    [(ours, theirs)] = against_sklearn.compare(600, repeat=1, cluster="serial")
    assert min(ours.seconds, theirs.seconds) > 0
    assert min(ours.peak_bytes, theirs.peak_bytes) > 10**7


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


def test_growth():
    power, *_, forecast = growth.study(2, [1500, 2500, 4000], 6000, (10**5,))
    entries, work = (float(cell) for cell in power.split("|")[3:5])
    assert 1 < entries < 1.5
    assert 1 < work < 2.5
    assert forecast.startswith("| 2 | 100,000 | ")


def test_filters(tmp_path):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 450})
    lle("run", config)
    store = Store(str(tmp_path / "run.zarr"))
    factor = stored_factor(store.url)
    assert len(list(filters.product_rows(factor, (1, 8), degree=2))) == 2
    rows = list(filters.start_rows(store, store, 2, [300], [1e-4]))
    counts = [int(row.split("|")[3].replace(",", "")) for row in rows]
    assert len(counts) == 5
    assert counts[2] == counts[3] < counts[0] / 2  # its own embedding, as this and as the other run
    unscaled, scaled = (float(filters.scaling_row(factor, 2).split("|")[cell]) for cell in (1, 4))
    assert 1 < scaled < unscaled


@pytest.mark.skipif(find_spec("umap") is None, reason="NOT CHECKED: umap-learn is not installed")
def test_against_umap(tmp_path):
    np.save(tmp_path / "x.npy", methods.points("s_curve", 400, 3))
    [(ours, theirs)] = against_umap.compare(str(tmp_path / "x.npy"), 2, repeat=1)
    assert min(ours.seconds, theirs.seconds) > 0


def test_nightly(tmp_path):
    surface, n, seed, free, aligned, near = nightly.row("bowl", 800, 3, tmp_path)
    assert (surface, n, seed) == ("bowl", "800", "3")
    assert float(aligned) <= float(free)
    assert float(aligned) < 0.2
    assert near.endswith("%")


@pytest.mark.filterwarnings("ignore:.*:zarr.errors.ZarrUserWarning")
def test_storage(tmp_path):
    pytest.importorskip("obstore", reason="object stores need the extra s3")
    row = storage.measure("moto", 300, tmp_path / "moto", {"kind": "serial"})
    assert row.seconds > 0
    assert min(row.requests[kind] for kind in ("GET", "PUT", "HEAD", "LIST")) > 10
    assert row.bytes_written > 300 * 3 * 8
    assert str(row).count("|") == 6
