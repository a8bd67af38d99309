"""Each benchmark case runs, tiny."""

from tests.benchmarks import against_sklearn, growth, methods, solvers


def test_against_sklearn():
    [(ours, theirs)] = against_sklearn.compare(600, repeat=1, cluster="serial")
    assert min(ours.seconds, theirs.seconds) > 0
    assert min(ours.peak_bytes, theirs.peak_bytes) > 10**7


def test_methods():
    assert methods.angle("ltsa", methods.points("swiss_roll", 300, 23)) < 0.1
    measured, metrics = methods.cost("laplacian", 400)
    assert measured.seconds > 0
    assert metrics["solver"]["converged"]


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
