"""Each benchmark case runs, tiny."""

from tests.benchmarks import against_sklearn


def test_against_sklearn():
    [(ours, theirs)] = against_sklearn.compare(600, repeat=1, cluster="serial")
    assert min(ours.seconds, theirs.seconds) > 0
    assert min(ours.peak_bytes, theirs.peak_bytes) > 10**7
