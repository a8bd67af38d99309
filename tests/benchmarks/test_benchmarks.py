"""Each benchmark case runs, tiny."""

from tests.benchmarks import against_sklearn, methods


def test_against_sklearn():
    [(ours, theirs)] = against_sklearn.compare(600, repeat=1, cluster="serial")
    assert min(ours.seconds, theirs.seconds) > 0
    assert min(ours.peak_bytes, theirs.peak_bytes) > 10**7


def test_methods():
    assert methods.angle("ltsa", methods.points("swiss_roll", 300, 23)) < 0.1
    measured, metrics = methods.cost("laplacian", 400)
    assert measured.seconds > 0
    assert metrics["solver"]["converged"]
