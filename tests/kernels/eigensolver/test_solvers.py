import math
from functools import partial

import pytest

from lle.kernels.eigensolver import costs, pardiso, solvers
from lle.kernels.eigensolver.pardiso import FactorSize
from lle.kernels.eigensolver.solvers import SOLVERS, auto_methods, chosen, exact_seconds, prediction_of
from tests.support.eigenproblems import problem, solve
from tests.support.sampled_factors import edge_factor, lle_factor, points, roll_coordinates, roll_factor
from tests.support.seeds import seeds

PLENTY = 2**33
FACTOR = FactorSize(60_000, 10**6, 0.01)

needs_mkl = pytest.mark.skipif(not pardiso.is_available(), reason="only PARDISO analyses before it factors")


def predict(A, names=tuple(SOLVERS), pin=0, max_memory=PLENTY):
    return [prediction_of(problem(A, 2, pin=pin, max_memory=max_memory), name) for name in names]


@needs_mkl
@pytest.mark.parametrize("seed", seeds(3, 19))
def test_prediction_equals_the_cost_of_the_solve(seed):
    A = roll_factor(3000, seed)
    predicted = {prediction.method: prediction for prediction in predict(A)}
    assert list(predicted) == list(SOLVERS)
    for method in ("factored", "shift_invert", "multigrid"):
        prediction = predicted[method]
        spectrum = solve(A, 2, method, pin=0, max_memory=PLENTY, candidates=lambda: roll_coordinates(3000, seed))
        assert prediction.factor_nnz == pytest.approx(spectrum.stats.factor_nnz, rel=0.01)
        # the hierarchy of a roll has nearly the expected size
        within = 0.15 if method == "multigrid" else 0.01
        assert prediction.predicted_bytes == pytest.approx(spectrum.stats.predicted_bytes, rel=within)
        assert prediction.basis == ("entries of A" if method == "multigrid" else "analysis")
        assert 0 < prediction.seconds < 10


@needs_mkl
def test_first_method_that_fits_and_is_fast_is_chosen(monkeypatch):
    monkeypatch.setattr(costs, "HIERARCHY_BYTES", 0)  # of so few points a factor is the smallest
    A = lle_factor(points("cube", 3000, 3), 12, 1e-3)
    predicted = predict(A)
    assert chosen(predicted, 600).method == "factored"
    assert chosen(predicted, 0.0).method == "multigrid"
    single = predict(A, max_memory=predicted[0].predicted_bytes - 1)
    assert (chosen(single, 600).method, single[0].predicted_bytes < predicted[0].predicted_bytes) == ("factored", True)
    tight = predict(A, max_memory=predict(A, max_memory=0)[0].predicted_bytes - 1)
    assert [prediction.fits for prediction in tight[:2]] == [False, True]
    assert chosen(tight, 600).method == "multigrid"
    assert chosen(predict(A, max_memory=1000), 600).method == "multigrid on M"


def test_without_pardiso_the_predicted_method_is_the_one_that_solves(monkeypatch):
    monkeypatch.setattr(pardiso, "is_available", lambda: False)
    A = roll_factor(3000, 5)
    predicted, spectrum = predict(A), solve(A, 2, "auto", n_threads=2)
    assert chosen(predicted, costs.patience_seconds(A.nnz, 2, square=True)).method == spectrum.stats.method
    assert all(math.isfinite(prediction.seconds) for prediction in predicted)
    assert "nan" not in spectrum.stats.reason


@pytest.mark.parametrize("size", [costs.multigrid_size, partial(costs.preconditioned_size, size=FACTOR)])
def test_basis_of_block_davidson_takes_the_memory_that_is_left(size):
    A = roll_factor(3000, 5)
    (width, fewest, least), (_, most, enough) = (size(A, 2, max_memory=n_bytes)[:3] for n_bytes in (0, PLENTY))
    assert (fewest, most) == (3 * width, 10 * size(A, 2, max_memory=PLENTY)[0])
    for allowed in (least, (least + enough) // 2, enough - 1):
        _, columns, n_bytes, *cycles = size(A, 2, max_memory=allowed)
        assert fewest <= columns <= most
        assert n_bytes <= allowed
        if columns < most:
            assert max(cycles, default=0) <= costs.ENOUGH_CYCLES  # more cycles come after the basis
    assert columns == most if cycles else columns < most


def test_auto_tries_only_methods_that_the_factor_permits(monkeypatch):
    A, F = lle_factor(points("cube", 500, 3), 12, 1e-3), edge_factor(points("sheet", 500, 3), 5)
    of_lle, on_m = problem(A, 2), ["shift_invert", "multigrid on M"]
    assert auto_methods(problem(F, 2), {}) == on_m
    assert auto_methods(of_lle._replace(is_square=False), {}) == on_m, "a factor of ltsa can be square by chance"
    assert auto_methods(of_lle, {"factored": "was killed"}) == on_m
    monkeypatch.setattr(costs, "MULTIGRID_POINTS", 500)
    assert auto_methods(of_lle, {}) == list(SOLVERS)


@needs_mkl
def test_pieces_predict_bytes_and_work(monkeypatch):
    A = lle_factor(points("cube", 12_000, 3), 12, 1e-3)
    [exact] = predict(A, ["factored"], 6_000)
    monkeypatch.setattr(costs, "MIN_ROWS", 10_000)
    monkeypatch.setattr(costs, "MIN_PIECE", 6_000)
    [message] = predict(A, ["factored"], 6_000)
    assert (exact.basis, message.basis) == ("analysis", "pieces")
    for name in ("factor_nnz", "gflop", "predicted_bytes"):
        assert 0.6 < getattr(message, name) / getattr(exact, name) < 1.6, name


@needs_mkl
def test_exact_seconds_come_from_the_whole_matrix(monkeypatch):
    A = lle_factor(points("cube", 3000, 3), 12, 1e-3)
    given = problem(A, 2, pin=0, analyses={})
    [known] = predict(A, ["factored"])
    monkeypatch.setattr(costs, "MIN_ROWS", 3000)
    monkeypatch.setattr(costs, "MIN_PIECE", 1200)
    assert predict(A, ["factored"])[0].seconds != known.seconds
    assert exact_seconds(given._replace(max_memory=1000), "factored") == math.inf
    assert not given.analyses, "it does not fit by its pieces"
    assert exact_seconds(given, "factored") == known.seconds
    monkeypatch.setattr(solvers, "PinnedLU", lambda *_: pytest.fail("analysed again"))
    assert exact_seconds(given, "factored") == known.seconds


def test_more_work_takes_longer():
    size = pardiso.FactorSize(10**6, 10**7, 1.0)
    hard = size._replace(gflop=100.0)
    assert costs.factor_seconds(hard, 10**5, 1) > costs.factor_seconds(size, 10**5, 1)
    assert costs.factor_seconds(size, 10**5, 4) < costs.factor_seconds(size, 10**5, 1)
    assert costs.multigrid_seconds(10**6, 4, on_m=True) < costs.multigrid_seconds(10**6, 1, on_m=True)


def test_little_memory_allows_few_cycles():
    A = roll_factor(3000, 1)
    enough = costs.multigrid_size(A, 2, 2**34)
    assert enough[1:2] + enough[3:] == (40, costs.MOST_CYCLES)
    for share in (0.3, 0.6, 0.9):
        width, columns, n_bytes, cycles = costs.multigrid_size(A, 2, int(share * enough[2]))
        assert cycles == costs.FEW_CYCLES or n_bytes <= share * enough[2]
        assert cycles >= costs.ENOUGH_CYCLES or (width, columns // 4) == (4, 3)
    width, columns, n_bytes, cycles = costs.multigrid_size(A, 2, 1)
    assert (width, columns, cycles) == (4, 12, costs.FEW_CYCLES)
    more = 3000 * 4 * 4 * (costs.ENOUGH_CYCLES - costs.FEW_CYCLES)
    assert costs.multigrid_size(A, 2, n_bytes + more) == (4, 12, n_bytes + more, costs.ENOUGH_CYCLES)
    between = costs.multigrid_size(A, 2, int(0.75 * enough[2]))
    assert between[3] >= costs.ENOUGH_CYCLES
    further = 4 * width * (between[3] - cycles) + 8 * (between[1] - columns)  # for each point
    assert (between[0], between[2] - n_bytes) == (4, 3000 * further)


def test_a_finished_setup_needs_no_memory():
    A = roll_factor(3000, 1)
    expected = costs.HIERARCHY_BYTES * A.nnz
    vectors = costs.multigrid_size(A, 2, 1, 0, expected)[2] - expected
    assert costs.multigrid_size(A, 2, 1, 0, 10 * expected)[2] == 10 * expected + vectors
    fuller = lle_factor(points("cube", 3000, 1), 40, 1e-3)
    setup = costs.SETUP_SHARE * costs.HIERARCHY_BYTES * fuller.nnz
    assert costs.multigrid_size(fuller, 2, 1)[2] > setup > costs.multigrid_size(fuller, 2, 1, 0, 1)[2]
